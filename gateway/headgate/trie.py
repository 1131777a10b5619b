"""The subscription trie: from a topic to the clients that want it. No I/O, never waits.

In: `add` and `remove` of (pattern, subscriber, policy). Out: `match(topic)`, an `Audience`: who gets it. Patterns are
AMQP's: `*` is exactly one word, `#` zero or more, anywhere.

Three levels of remembering, none ever wrong: a topic's audience is cached until a pattern that could match it appears or
disappears; an audience is shared by all topics that reach the same patterns; an audience's list of clients is rebuilt only
after one of its patterns gained or lost a client. So clients come and go without touching the cache of topics, and one that
brings a wildcard of its own costs a match (2 µs) per topic in use. Looking for the cached topics that the wildcard matches
would cost 4 to 9 ms with the cache full, at every connect.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from .protocol import Overflow
from .topic import is_wildcard

S = TypeVar("S", bound=Hashable)

# Topics whose audience is remembered, 4,096 × about 200 bytes: beyond that the one unused for longest goes. Also audiences:
# beyond that all of them go, as they are only worth keeping while they are few.
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

    __slots__ = ("_clients", "_patterns")

    def __init__(self, patterns: tuple[_Pattern[S], ...]) -> None:
        self._patterns = patterns
        self._clients: tuple[S, ...] | None = None

    @property
    def clients(self) -> tuple[S, ...]:
        """Everyone who gets an event with this audience, pattern by pattern in the order in which they subscribed."""
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
    __slots__ = ("children", "is_hash", "pattern")

    def __init__(self, is_hash: bool) -> None:
        self.is_hash = is_hash
        self.children: dict[str, _Node[S]] = {}
        self.pattern: _Pattern[S] | None = None


class SubscriptionTrie(Generic[S]):
    """Patterns with their subscribers. Branches without a pattern prune themselves."""

    def __init__(self, max_cached_topics: int = MAX_CACHED_TOPICS) -> None:
        self._root: _Node[S] = _Node(False)
        self._max_cached_topics = max_cached_topics
        self._topics: OrderedDict[str, Audience[S]] = OrderedDict()
        self._audiences: dict[tuple[_Pattern[S], ...], Audience[S]] = {}
        self.patterns = 0
        self.subscriptions = 0

    def add(self, pattern: str, subscriber: S, policy: Overflow = Overflow.CATCH_UP) -> bool:
        """Subscribe, or change the policy of a subscription. Returns whether the pattern is new to the trie."""
        node = self._root
        for word in pattern.split("."):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(word == "#")
            node = child
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
        for audience in tuple(entry.audiences):
            self._forget_audience(audience)
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
        patterns = tuple(self._reached(topic))
        audience = self._audiences.get(patterns)
        if audience is None:
            if len(self._audiences) >= self._max_cached_topics:
                self._topics.clear()
                for old in tuple(self._audiences.values()):
                    self._forget_audience(old)
            audience = self._audiences[patterns] = Audience(patterns)
            for entry in patterns:
                entry.audiences.add(audience)
        self._topics[topic] = audience
        if len(self._topics) > self._max_cached_topics:
            self._topics.popitem(last=False)
        return audience

    def __iter__(self) -> Iterator[str]:
        """Yield every pattern."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.pattern is not None:
                yield node.pattern.text
            stack.extend(node.children.values())

    def _reached(self, topic: str) -> Iterator[_Pattern[S]]:
        """Yield the patterns that match, each once.

        Word by word with the set of nodes that the words so far can reach: no pattern makes it cost more than its nodes times
        the words. (Trying the ways to spread words over many `#` one by one took 6 ms for a single topic.)
        """
        nodes = _with_hashes(self._root, {})
        for word in topic.split("."):
            after: dict[_Node[S], None] = {}
            for node in nodes:
                if node.is_hash:
                    after[node] = None  # eats this word too
                children = node.children
                if children:
                    for child in (children.get(word), children.get("*")):
                        if child is not None:
                            _with_hashes(child, after)
            nodes = after
        for node in nodes:
            if node.pattern is not None:
                yield node.pattern

    def _forget_topics(self, pattern: str) -> None:
        """Drop from the cache at least the topics that this pattern matches."""
        if is_wildcard(pattern):
            self._topics.clear()
        else:
            self._topics.pop(pattern, None)

    def _forget_audience(self, audience: Audience[S]) -> None:
        """Let go of an audience that no cached topic has any more; whoever still holds it may go on reading it."""
        del self._audiences[audience._patterns]
        for entry in audience._patterns:
            entry.audiences.discard(audience)


def _with_hashes(node: _Node[S] | None, reached: dict[_Node[S], None]) -> dict[_Node[S], None]:
    """Add a node, and through `#`, which may stand for no word, those below it."""
    while node is not None and node not in reached:
        reached[node] = None
        node = node.children.get("#")
    return reached
