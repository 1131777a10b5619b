"""The subscription trie: from a topic to the clients that want it. No I/O, never waits.

In: `add` and `remove` of (pattern, subscriber, policy). Out: `match(topic)`, an `Audience`: who gets it. Patterns are
AMQP's: `*` is exactly one word, `#` zero or more, anywhere.

Three levels of remembering, each exact: a topic's audience is cached until a pattern that matches the topic appears or
disappears; an audience is shared by all topics that reach the same patterns; an audience's list of clients is rebuilt only
after one of its patterns gained or lost a client. So clients come and go without touching the cache of topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from .protocol import Overflow
from .topic import is_wildcard, matches

S = TypeVar("S", bound=Hashable)

# Topics whose audience is remembered: 4,096 × about 200 bytes. Beyond that the one unused for longest goes.
MAX_CACHED_TOPICS = 4096


class _Pattern(Generic[S]):
    """The subscribers of one pattern."""

    __slots__ = ("audiences", "subscribers", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.subscribers: dict[S, Overflow] = {}
        self.audiences: set[Audience[S]] = set()


class Audience(Generic[S]):
    """The patterns that a topic reaches, and through them the clients, each once."""

    __slots__ = ("_clients", "_patterns", "references")

    def __init__(self, patterns: tuple[_Pattern[S], ...]) -> None:
        self._patterns = patterns
        self._clients: tuple[S, ...] | None = None
        self.references = 0

    @property
    def clients(self) -> tuple[S, ...]:
        """Everyone who gets an event with this audience, in the order in which they subscribed."""
        if self._clients is None:
            if len(self._patterns) == 1:
                self._clients = tuple(self._patterns[0].subscribers)
            else:
                merged: dict[S, None] = {}
                for pattern in self._patterns:
                    merged.update(dict.fromkeys(pattern.subscribers))
                self._clients = tuple(merged)
        return self._clients

    def patterns_of(self, client: S) -> list[tuple[str, Overflow]]:
        """Return the (pattern, policy) pairs through which a client is reached."""
        return [(p.text, p.subscribers[client]) for p in self._patterns if client in p.subscribers]

    def _changed(self) -> None:
        self._clients = None


class _Node(Generic[S]):
    __slots__ = ("children", "pattern")

    def __init__(self) -> None:
        self.children: dict[str, _Node[S]] = {}
        self.pattern: _Pattern[S] | None = None


class SubscriptionTrie(Generic[S]):
    """Patterns with their subscribers. Branches without a pattern prune themselves."""

    def __init__(self, max_cached_topics: int = MAX_CACHED_TOPICS) -> None:
        self._root: _Node[S] = _Node()
        self._max_cached_topics = max_cached_topics
        self._topics: OrderedDict[str, Audience[S]] = OrderedDict()
        self._audiences: dict[tuple[_Pattern[S], ...], Audience[S]] = {}
        self.patterns = 0
        self.subscriptions = 0

    def add(self, pattern: str, subscriber: S, policy: Overflow = Overflow.CATCH_UP) -> bool:
        """Subscribe, or change the policy of a subscription. Returns whether the pattern is new to the trie."""
        node = self._root
        for word in pattern.split("."):
            node = node.children.setdefault(word, _Node())
        new = node.pattern is None
        if node.pattern is None:
            node.pattern = _Pattern(pattern)
            self.patterns += 1
            self._forget_topics(pattern)
        entry = node.pattern
        if subscriber not in entry.subscribers:
            self.subscriptions += 1
            for audience in entry.audiences:
                audience._changed()
        entry.subscribers[subscriber] = policy
        return new

    def remove(self, pattern: str, subscriber: S) -> bool:
        """Unsubscribe; nothing happens if there was no such subscription. Returns whether the pattern is gone from the trie."""
        words = pattern.split(".")
        path = [self._root]
        for word in words:
            child = path[-1].children.get(word)
            if child is None:
                return False
            path.append(child)
        entry = path[-1].pattern
        if entry is None or subscriber not in entry.subscribers:
            return False
        del entry.subscribers[subscriber]
        self.subscriptions -= 1
        for audience in entry.audiences:
            audience._changed()
        if entry.subscribers:
            return False
        path[-1].pattern = None
        self.patterns -= 1
        self._forget_topics(pattern)
        for parent, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = parent.children[word]
            if child.children or child.pattern is not None:
                break
            del parent.children[word]
        return True

    def match(self, topic: str) -> Audience[S]:
        """Return who gets an event on a valid topic."""
        audience = self._topics.get(topic)
        if audience is not None:
            self._topics.move_to_end(topic)
            return audience
        found: dict[_Pattern[S], None] = {}
        self._walk(self._root, topic.split("."), 0, found)
        patterns = tuple(found)
        audience = self._audiences.get(patterns)
        if audience is None:
            audience = self._audiences[patterns] = Audience(patterns)
            for entry in patterns:
                entry.audiences.add(audience)
        audience.references += 1
        self._topics[topic] = audience
        if len(self._topics) > self._max_cached_topics:
            self._release(self._topics.popitem(last=False)[1])
        return audience

    def __iter__(self) -> Iterator[str]:
        """Yield every pattern."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.pattern is not None:
                yield node.pattern.text
            stack.extend(node.children.values())

    def _walk(self, node: _Node[S], words: list[str], index: int, found: dict[_Pattern[S], None]) -> None:
        children = node.children
        hashed = children.get("#")
        if hashed is not None:
            # `#` eats nothing, or one more word at a time; from its node every rest of the topic is tried.
            for start in range(index, len(words) + 1):
                self._walk(hashed, words, start, found)
        if index == len(words):
            if node.pattern is not None:
                found[node.pattern] = None
            return
        for word in (words[index], "*"):
            child = children.get(word)
            if child is not None:
                self._walk(child, words, index + 1, found)

    def _forget_topics(self, pattern: str) -> None:
        """Drop from the cache exactly the topics that this pattern matches."""
        if is_wildcard(pattern):
            stale = [topic for topic in self._topics if matches(pattern, topic)]
        else:
            stale = [pattern] if pattern in self._topics else []
        for topic in stale:
            self._release(self._topics.pop(topic))

    def _release(self, audience: Audience[S]) -> None:
        audience.references -= 1
        if audience.references == 0:
            del self._audiences[audience._patterns]
            for entry in audience._patterns:
                entry.audiences.discard(audience)
