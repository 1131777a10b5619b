"""Topic matchers to compare: those of the field's classic comparison, Headgate's, and Headgate's without what it remembers.

Each has `subscribe(pattern, subscriber)`, `unsubscribe(pattern, subscriber)` and `match(topic)` → the subscribers, in any
order. All but Headgate's are reference implementations for this bench alone, and take `*` only, or `#` at the end as well
(`WordTrie` and `OptimizedInvertedBitmap`), because bitmaps cannot express more."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.pattern_map import PatternMap
from headgate.events.topic import MAX_TOPIC_WORDS, matches


class Matcher(Protocol):
    """From topics to subscribers."""

    def subscribe(self, pattern: str, subscriber: int) -> None: ...
    def unsubscribe(self, pattern: str, subscriber: int) -> None: ...
    def match(self, topic: str) -> Collection[int]: ...


class NaiveMap:
    """A dictionary of patterns, each tried in turn."""

    def __init__(self) -> None:
        self._subscribers: dict[str, set[int]] = {}

    def subscribe(self, pattern: str, subscriber: int) -> None:
        self._subscribers.setdefault(pattern, set()).add(subscriber)

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        self._subscribers[pattern].discard(subscriber)
        if not self._subscribers[pattern]:
            del self._subscribers[pattern]

    def match(self, topic: str) -> Collection[int]:
        found: set[int] = set()
        for pattern, subscribers in self._subscribers.items():
            if matches(pattern, topic):
                found |= subscribers
        return found


class InvertedBitmap:
    """For every topic that can occur, known beforehand, a bitmap of the subscriptions that match it."""

    def __init__(self, universe: Iterable[str]) -> None:
        self._bits = dict.fromkeys(universe, 0)
        self._table = _Table()

    def subscribe(self, pattern: str, subscriber: int) -> None:
        mask = 1 << self._table.add(pattern, subscriber)
        fits = re.compile(pattern.replace(".", r"\.").replace("*", "[^.]+")).fullmatch
        for topic in self._bits:
            if fits(topic):
                self._bits[topic] |= mask

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        keep = ~(1 << self._table.remove(pattern, subscriber))
        for topic in self._bits:
            self._bits[topic] &= keep

    def match(self, topic: str) -> Collection[int]:
        return self._table.subscribers(self._bits[topic])


class OptimizedInvertedBitmap:
    """A bitmap per position and word, combined at each match: no universe to know, far less to keep. Takes `#` at the end too."""

    def __init__(self) -> None:
        self._exact: list[dict[str, int]] = [{} for _ in range(MAX_TOPIC_WORDS)]
        self._any = [0] * MAX_TOPIC_WORDS
        self._ends = [0] * (MAX_TOPIC_WORDS + 1)
        self._table = _Table()

    def subscribe(self, pattern: str, subscriber: int) -> None:
        mask = 1 << self._table.add(pattern, subscriber)
        self._change(pattern, lambda bits: bits | mask)

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        keep = ~(1 << self._table.remove(pattern, subscriber))
        self._change(pattern, lambda bits: bits & keep)

    def match(self, topic: str) -> Collection[int]:
        words = topic.split(".")
        bits = self._ends[len(words)]
        for position, word in enumerate(words):
            bits &= self._exact[position].get(word, 0) | self._any[position]
        return self._table.subscribers(bits)

    def _change(self, pattern: str, changed: Callable[[int], int]) -> None:
        words = pattern.split(".")
        open_end = words[-1] == "#"
        if open_end:
            words.pop()
            for position in range(len(words), MAX_TOPIC_WORDS):
                self._any[position] = changed(self._any[position])
                self._ends[position + 1] = changed(self._ends[position + 1])
        if words:
            self._ends[len(words)] = changed(self._ends[len(words)])
        for position, word in enumerate(words):
            if word == "*":
                self._any[position] = changed(self._any[position])
            else:
                bits = self._exact[position][word] = changed(self._exact[position].get(word, 0))
                if not bits:
                    del self._exact[position][word]


class WordTrie:
    """A node for each word, `*` and `#` that patterns begin with; nothing is remembered. `#` at the end only."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}

    def subscribe(self, pattern: str, subscriber: int) -> None:
        node = self._root
        for word in pattern.split("."):
            node = node.setdefault(word, {})
        node.setdefault("", set()).add(subscriber)

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        words = pattern.split(".")
        path = [self._root]
        for word in words:
            path.append(path[-1][word])
        path[-1][""].remove(subscriber)
        if not path[-1][""]:
            del path[-1][""]
        for node, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            if node[word]:
                return
            del node[word]

    def match(self, topic: str) -> Collection[int]:
        found: set[int] = set()
        nodes = [self._root]
        for word in topic.split("."):
            after = []
            for node in nodes:
                if "#" in node:
                    found |= node["#"][""]
                if word in node:
                    after.append(node[word])
                if "*" in node:
                    after.append(node["*"])
            nodes = after
        for node in nodes:
            found |= node.get("", ())
            if "#" in node:
                found |= node["#"][""]
        return found


class Shapes:
    """Headgate's map of patterns alone: nothing is remembered."""

    def __init__(self) -> None:
        self._subscribers: PatternMap[dict[int, None]] = PatternMap()

    def subscribe(self, pattern: str, subscriber: int) -> None:
        subscribers = self._subscribers.get(pattern)
        if subscribers is None:
            self._subscribers.add(pattern, {subscriber: None})
        else:
            subscribers[subscriber] = None

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        subscribers = self._subscribers.get(pattern)
        if subscribers is not None:
            del subscribers[subscriber]
            if not subscribers:
                self._subscribers.discard(pattern)

    def match(self, topic: str) -> Collection[int]:
        found: dict[int, None] = {}
        for subscribers in self._subscribers.reached(topic):
            found.update(subscribers)
        return found


class Headgate:
    """Headgate's subscriptions as the gateway has them."""

    def __init__(self) -> None:
        self._trie: SubscriptionMatcher[int] = SubscriptionMatcher()

    def subscribe(self, pattern: str, subscriber: int) -> None:
        self._trie.add(pattern, subscriber)

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        self._trie.remove(pattern, subscriber)

    def match(self, topic: str) -> Collection[int]:
        return self._trie.match(topic).clients


class _Table:
    """Numbers for subscriptions, used again when one ends."""

    def __init__(self) -> None:
        self._number: dict[tuple[str, int], int] = {}
        self._subscriber: list[int] = []
        self._free: list[int] = []
        self._seen: dict[int, tuple[int, ...]] = {}

    def add(self, pattern: str, subscriber: int) -> int:
        if self._free:
            number = self._free.pop()
            self._subscriber[number] = subscriber
        else:
            number = len(self._subscriber)
            self._subscriber.append(subscriber)
        self._number[pattern, subscriber] = number
        self._seen.clear()
        return number

    def remove(self, pattern: str, subscriber: int) -> int:
        number = self._number.pop((pattern, subscriber))
        self._free.append(number)
        self._seen.clear()
        return number

    def subscribers(self, bits: int) -> tuple[int, ...]:
        # Remembering what a bitmap means is what makes the bitmaps fast when nothing changes.
        found = self._seen.get(bits)
        if found is None:
            left, members = bits, []
            while left:
                lowest = left & -left
                members.append(self._subscriber[lowest.bit_length() - 1])
                left ^= lowest
            found = self._seen[bits] = tuple(members)
        return found
