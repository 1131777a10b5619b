"""The five matchers of the field's classic comparison, and nothing else. Wildcard: `*`, exactly one word.

Each has `subscribe(pattern, subscriber)`, `unsubscribe(pattern, subscriber)` and `match(topic)` → the subscribers, in any order.
`#` is left out because the bitmaps cannot express it; ours can, and is measured with it elsewhere in this folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from headgate.delivery.trie import SubscriptionTrie
from headgate.topic import matches


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
        for topic in self._bits:
            if matches(pattern, topic):
                self._bits[topic] |= mask

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        keep = ~(1 << self._table.remove(pattern, subscriber))
        for topic in self._bits:
            self._bits[topic] &= keep

    def match(self, topic: str) -> Collection[int]:
        return self._table.subscribers(self._bits[topic])


class OptimizedInvertedBitmap:
    """A bitmap per position and word, combined at each match: no universe to know, far less to keep."""

    def __init__(self, words: int) -> None:
        self._exact: list[dict[str, int]] = [{} for _ in range(words)]
        self._any = [0] * words
        self._table = _Table()

    def subscribe(self, pattern: str, subscriber: int) -> None:
        mask = 1 << self._table.add(pattern, subscriber)
        for position, word in enumerate(pattern.split(".")):
            if word == "*":
                self._any[position] |= mask
            else:
                self._exact[position][word] = self._exact[position].get(word, 0) | mask

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        keep = ~(1 << self._table.remove(pattern, subscriber))
        for position, word in enumerate(pattern.split(".")):
            if word == "*":
                self._any[position] &= keep
            else:
                self._exact[position][word] &= keep

    def match(self, topic: str) -> Collection[int]:
        bits = -1
        for position, word in enumerate(topic.split(".")):
            bits &= self._exact[position].get(word, 0) | self._any[position]
        return self._table.subscribers(bits)


class Trie:
    """Headgate's trie with its cache of topics, or without it (cache_topics = 0)."""

    def __init__(self, cache_topics: int = 4096) -> None:
        self._trie: SubscriptionTrie[int] = SubscriptionTrie(cache_topics)

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
