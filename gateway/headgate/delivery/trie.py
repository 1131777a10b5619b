"""The subscription trie: from a topic to the clients that want it. No I/O, never waits.

In: `add` and `remove` of (pattern, subscriber, policy). Out: `match(topic)`, an `Audience`: who gets it. Patterns are
AMQP's: `*` is exactly one word, `#` zero or more, anywhere.

Three levels of remembering, each exact: a topic's audience is cached until a pattern that matches the topic appears or
disappears (topic_index.py finds those topics; where that would take long, all are forgotten); an audience is shared by all topics
that reach the same patterns; an audience's list of clients is rebuilt only after one of its patterns gained or lost a client. So
clients come and go without touching what is known of topics that are none of theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from headgate.protocol.packets import Overflow

from .topic_index import TopicIndex

S = TypeVar("S", bound=Hashable)

# Topics whose audience is remembered, 4,096 × about 200 bytes: beyond that the one unused for longest goes. Also audiences:
# beyond that all of them go, as they are only worth keeping while they are few.
MAX_CACHED_TOPICS = 4096
# Clients in the lists of all audiences together, 8 bytes each: 4,096 topics that each reach 10,000 clients would hold 330 MB.
MAX_LISTED_CLIENTS = 2_000_000
# Steps to find the remembered topics that a pattern matches, 1 to 2 µs each. `#.*.#.*.#.*.#.*` takes 240,000 among 4,096
# topics of eight words, 0.25 s in which nobody else is served, and 32 of its kind can come in one CONNECT. Beyond this all topics
# are forgotten instead, which takes 1 ms: whoever does that again finds little to search until they have come again.
MAX_FORGET_STEPS = 1024


class _Pattern(Generic[S]):
    """The subscribers of one pattern."""

    __slots__ = ("audiences", "subscribers", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.subscribers: dict[S, Overflow] = {}
        self.audiences: set[Audience[S]] = set()


class Audience(Generic[S]):
    """The patterns that a topic reaches, and through them the clients, each once."""

    __slots__ = ("_clients", "_patterns", "size")

    def __init__(self, patterns: tuple[_Pattern[S], ...]) -> None:
        self._patterns = patterns
        self.size = sum(len(pattern.subscribers) for pattern in patterns)  # about: when it was made
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
    """What follows a word: other words, `*`, `#`. Wildcards have slots of their own, as every match asks for them."""

    __slots__ = ("any_word", "children", "hash", "is_hash", "pattern")

    def __init__(self, is_hash: bool) -> None:
        self.is_hash = is_hash
        self.children: dict[str, _Node[S]] | None = None
        self.any_word: _Node[S] | None = None
        self.hash: _Node[S] | None = None
        self.pattern: _Pattern[S] | None = None

    def child(self, token: str) -> _Node[S] | None:
        if token == "#":
            return self.hash
        if token == "*":
            return self.any_word
        return self.children.get(token) if self.children is not None else None

    def grow(self, token: str) -> _Node[S]:
        """Return the child of a token, made if it is not there."""
        child = self.child(token)
        if child is None:
            child = _Node(token == "#")
            if token == "#":
                self.hash = child
            elif token == "*":
                self.any_word = child
            else:
                self.children = self.children if self.children is not None else {}
                self.children[token] = child
        return child

    def prune(self, token: str) -> None:
        """Remove the child of a token."""
        if token == "#":
            self.hash = None
        elif token == "*":
            self.any_word = None
        elif self.children is not None:
            del self.children[token]
            self.children = self.children or None

    @property
    def bare(self) -> bool:
        """Whether nothing hangs on this node."""
        return self.pattern is None and self.children is None and self.any_word is None and self.hash is None

    def below(self) -> Iterator[_Node[S]]:
        """Yield the children."""
        yield from (self.children or {}).values()
        yield from (child for child in (self.any_word, self.hash) if child is not None)


class SubscriptionTrie(Generic[S]):
    """Patterns with their subscribers. Branches without a pattern prune themselves."""

    def __init__(self, max_cached_topics: int = MAX_CACHED_TOPICS, max_listed_clients: int = MAX_LISTED_CLIENTS) -> None:
        self._root: _Node[S] = _Node(False)
        self._max_cached_topics = max_cached_topics
        self._max_listed_clients = max_listed_clients
        self._listed_clients = 0
        self._topics: OrderedDict[str, Audience[S]] = OrderedDict()
        self._index = TopicIndex()
        self._audiences: dict[tuple[_Pattern[S], ...], Audience[S]] = {}
        self.patterns = 0
        self.subscriptions = 0

    def add(self, pattern: str, subscriber: S, policy: Overflow = Overflow.CATCH_UP) -> bool:
        """Subscribe, or change the policy of a subscription. Returns whether the pattern is new to the trie."""
        node = self._root
        for word in pattern.split("."):
            node = node.grow(word)
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
            child = path[-1].child(word)
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
        for parent, child, word in zip(reversed(path[:-1]), reversed(path), reversed(words), strict=False):
            if not child.bare:
                break
            parent.prune(word)
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
            audience = Audience(patterns)
            if len(self._audiences) >= self._max_cached_topics or self._listed_clients + audience.size > self._max_listed_clients:
                self._topics.clear()
                self._index.clear()
                for old in tuple(self._audiences.values()):
                    self._forget_audience(old)
            self._audiences[patterns] = audience
            self._listed_clients += audience.size
            for entry in patterns:
                entry.audiences.add(audience)
        self._topics[topic] = audience
        self._index.add(topic)
        if len(self._topics) > self._max_cached_topics:
            self._index.discard(self._topics.popitem(last=False)[0])
        return audience

    def reached(self, topic: str) -> list[tuple[str, dict[S, Overflow]]]:
        """Return the patterns that match a valid topic, with their subscribers: for who matches many topics, each about once.

        Nothing is remembered: an audience and its place in the index are a dozen objects, which cost the garbage collector more
        than matching anew costs us.
        """
        return [(entry.text, entry.subscribers) for entry in self._reached(topic)]

    def __iter__(self) -> Iterator[str]:
        """Yield every pattern."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.pattern is not None:
                yield node.pattern.text
            stack.extend(node.below())

    def _reached(self, topic: str) -> list[_Pattern[S]]:
        """Return the patterns that match, each once.

        Word by word with the nodes that the words so far can reach: no pattern makes it cost more than its nodes times the
        words. (Trying the ways to spread words over many `#` one by one took 6 ms for a single topic.)
        """
        nodes: list[_Node[S]] = []
        _reach(self._root, nodes)
        for word in topic.split("."):
            after: list[_Node[S]] = []
            twice = False
            for node in nodes:
                if node.is_hash:
                    after.append(node)  # eats this word too
                    twice = True  # and may have been reached from another node as well
                if node.children is not None:
                    child = node.children.get(word)
                    if child is not None:
                        _reach(child, after)
                if node.any_word is not None:
                    _reach(node.any_word, after)
            nodes = list(dict.fromkeys(after)) if twice else after
        return [node.pattern for node in nodes if node.pattern is not None]

    def _forget_topics(self, pattern: str) -> None:
        """Drop from the cache exactly the topics that this pattern matches, or all, if finding those takes too long."""
        found = self._index.matching(pattern, MAX_FORGET_STEPS)
        if found is None:
            self._topics.clear()
            self._index.clear()
            return
        for topic in found:
            del self._topics[topic]
            self._index.discard(topic)

    def _forget_audience(self, audience: Audience[S]) -> None:
        """Let go of an audience that no cached topic has any more; whoever still holds it may go on reading it."""
        del self._audiences[audience._patterns]
        self._listed_clients -= audience.size
        for entry in audience._patterns:
            entry.audiences.discard(audience)


def _reach(node: _Node[S], reached: list[_Node[S]]) -> None:
    """Add a node, and through `#`, which may stand for no word, those below it."""
    reached.append(node)
    while node.hash is not None:
        node = node.hash
        reached.append(node)
