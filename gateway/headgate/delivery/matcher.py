"""Subscriptions: from a topic to the clients that want it. No I/O, never waits.

In: `add` and `remove` of (pattern, subscriber). Out: `match(topic)`, an `Audience`: the clients that get an event on it. Matching
itself is pattern_map.py's; this module remembers its results.

Three levels of remembering, each exact and bounded:
1. The audience of a topic that has come up twice is remembered until a pattern that matches the topic appears or disappears.
   topic_index.py finds those topics, and no others are forgotten.
2. All topics that reach the same patterns share one audience. A single pattern is an audience itself.
3. The list of clients of several patterns is made on first use, and made anew only after one of its patterns gained or lost a
   client.

A pattern outlives its last client for a while: a page that is loaded anew brings it back, and nothing is forgotten.

Overflow policies are not kept here: they belong to the client, which asks for them only when its queue is full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from headgate.topic import is_wildcard

from .pattern_map import PatternMap
from .topic_index import TopicIndex

S = TypeVar("S", bound=Hashable)

# Topics whose audience is remembered, 300 to 400 bytes each, in two generations. A topic that comes up again moves to the younger
# one; when that is full, the older one goes as a whole. So at least half of this number, those used last, are remembered.
MAX_CACHED_TOPICS = 16_384
# Clients in the lists of all audiences together, 8 bytes each: 16,384 topics that each reach 10,000 clients would hold 1.3 GB. If
# one more is too many, all lists are forgotten. So are they when there would be more lists than there may be topics.
MAX_LISTED_CLIENTS = 2_000_000
# Patterns without a client that are kept, about 200 bytes each; the one left first goes first.
MAX_VACANT_PATTERNS = 1024
# Subscribers of one pattern that are kept in a tuple alone: a dict takes 200 bytes more, and is faster from about here on.
_FEW = 8
# Of a pattern that no audience shares with another.
_UNSHARED = -1


class Audience(Generic[S]):
    """The clients that get the events of a topic."""

    __slots__ = ()

    @property
    def clients(self) -> tuple[S, ...]:
        """Each client once, as of now; the very same tuple as long as nothing has changed."""
        raise NotImplementedError


class _Pattern(Audience[S]):
    """A pattern with its subscribers, in the order in which they came: the audience of the topics that reach no other pattern."""

    __slots__ = ("_clients", "_members", "changed", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.changed = _UNSHARED  # else the number of the last change
        self._clients: tuple[S, ...] | None = ()
        self._members: dict[S, None] | None = None  # None: few, `_clients` has them

    @property
    def clients(self) -> tuple[S, ...]:
        if self._clients is None:
            self._clients = tuple(self._members or ())
        return self._clients

    @property
    def vacant(self) -> bool:
        """Whether nobody subscribes."""
        return self._clients == () and self._members is None

    def add(self, subscriber: S) -> bool:
        """Add a subscriber; False if it was there."""
        if self._members is None:
            clients = self.clients
            if subscriber in clients:
                return False
            self._clients = (*clients, subscriber)
            if len(self._clients) > _FEW:
                self._members = dict.fromkeys(self._clients)
            return True
        if subscriber in self._members:
            return False
        self._members[subscriber] = None
        self._clients = None
        return True

    def remove(self, subscriber: S) -> bool:
        """Remove a subscriber; False if it was not there."""
        if self._members is None:
            clients = self.clients
            if subscriber not in clients:
                return False
            self._clients = tuple([each for each in clients if each != subscriber]) if len(clients) > 1 else ()
            return True
        if subscriber not in self._members:
            return False
        del self._members[subscriber]
        self._clients = None
        if len(self._members) <= _FEW // 2:
            self._clients = tuple(self._members)
            self._members = None
        return True


class _Union(Audience[S]):
    """The clients of several patterns, or of none; each once, pattern by pattern."""

    __slots__ = ("_clients", "_lists", "_made", "patterns")

    def __init__(self, patterns: tuple[_Pattern[S], ...], lists: _Lists[S]) -> None:
        self.patterns = patterns
        self._lists = lists
        self._clients: tuple[S, ...] | None = None
        self._made = 0  # the number of the last change that the list holds
        for pattern in patterns:
            if pattern.changed == _UNSHARED:
                pattern.changed = 0

    @property
    def clients(self) -> tuple[S, ...]:
        if self._clients is None or (self._made != self._lists.changes and self.stale):
            clients = tuple(dict.fromkeys([client for pattern in self.patterns for client in pattern.clients]))
            self._made = self._lists.changes
            self._clients = clients if self._lists.replace(self, self._clients, clients) else None
            return clients
        return self._clients

    @property
    def stale(self) -> bool:
        """Whether a pattern has gained or lost a client since the list was made."""
        made = self._made
        for pattern in self.patterns:
            if pattern.changed > made:
                return True
        self._made = self._lists.changes
        return False

    def forget(self) -> int:
        """Forget the list of clients; return how many there were."""
        count = len(self._clients or ())
        self._clients = None
        return count


class _Lists(Generic[S]):
    """The unions that hold a list of clients, and the bounds of all lists together."""

    __slots__ = ("_clients", "_holders", "_looked_at", "_max_clients", "_max_lists", "changes")

    def __init__(self, max_lists: int, max_clients: int) -> None:
        self.changes = 0  # of patterns that audiences share
        self._max_lists = max_lists
        self._max_clients = max_clients
        self._holders: list[_Union[S]] = []
        self._clients = 0
        self._looked_at = 0

    def replace(self, holder: _Union[S], old: tuple[S, ...] | None, new: tuple[S, ...]) -> bool:
        """Count a new list, held instead of an old one, if any; False if it is too large to be held at all."""
        if old is not None:
            self._clients -= len(old)
        elif len(new) > self._max_clients:
            return False
        if self._clients + len(new) > self._max_clients or (old is None and len(self._holders) >= self._max_lists):
            for each in self._holders:
                each.forget()
            self._holders.clear()
            self._clients = 0
            old = None
            if len(new) > self._max_clients:
                return False
        if old is None:
            self._holders.append(holder)
        self._clients += len(new)
        return True

    def look_at_one(self) -> None:
        """Forget the next list if it is stale, so that one that is not used any more does not keep departed clients in memory."""
        if not self._holders:
            return
        self._looked_at += 1
        if self._looked_at >= len(self._holders):
            self._looked_at = 0
        holder = self._holders[self._looked_at]
        if holder.stale:
            self._clients -= holder.forget()
            self._holders[self._looked_at] = self._holders[-1]
            self._holders.pop()


class _Generation(Generic[S]):
    """Topics that were matched within the same stretch of time."""

    __slots__ = ("audiences", "index", "unions")

    def __init__(self) -> None:
        self.audiences: dict[str, Audience[S] | None] = {}  # None: forgotten, its place in the index waits for it
        self.index = TopicIndex()
        self.unions: dict[tuple[_Pattern[S], ...], _Union[S]] = {}

    def forget(self, pattern: str) -> None:
        """Forget the topics that a pattern matches."""
        if is_wildcard(pattern):
            self.audiences.update(dict.fromkeys(self.index.matching(pattern)))
        elif pattern in self.audiences:
            self.audiences[pattern] = None


class SubscriptionMatcher(Generic[S]):
    """Patterns with their subscribers.

    Attributes:
        subscriptions: how many there are.
    """

    def __init__(self, max_cached_topics: int = MAX_CACHED_TOPICS, max_listed_clients: int = MAX_LISTED_CLIENTS) -> None:
        self._patterns: PatternMap[_Pattern[S]] = PatternMap()
        self._vacant: OrderedDict[_Pattern[S], None] = OrderedDict()
        self._lists: _Lists[S] = _Lists(max_cached_topics, max_listed_clients)
        self._nobody: _Union[S] = _Union((), self._lists)
        self._generation_topics = max(1, max_cached_topics // 2)
        self._young: _Generation[S] = _Generation()
        self._old: _Generation[S] = _Generation()
        self._audiences = self._young.audiences
        self._seen_once: set[str] = set()
        self.subscriptions = 0

    @property
    def patterns(self) -> int:
        """How many patterns have a subscriber."""
        return len(self._patterns) - len(self._vacant)

    def add(self, pattern: str, subscriber: S) -> bool:
        """Subscribe. Idempotent. Returns whether nobody subscribed to the pattern before."""
        entry = self._patterns.get(pattern)
        if entry is None:
            entry = _Pattern(pattern)
            self._patterns.add(pattern, entry)
            self._forget_topics(pattern)
            first = True
        elif first := entry.vacant:
            del self._vacant[entry]
        if entry.add(subscriber):
            self.subscriptions += 1
            self._changed(entry)
        return first

    def remove(self, pattern: str, subscriber: S) -> bool:
        """Unsubscribe, if there is such a subscription. Returns whether nobody subscribes to the pattern any more."""
        entry = self._patterns.get(pattern)
        if entry is None or not entry.remove(subscriber):
            return False
        self.subscriptions -= 1
        self._changed(entry)
        self._lists.look_at_one()
        if not entry.vacant:
            return False
        self._vacant[entry] = None
        if len(self._vacant) > MAX_VACANT_PATTERNS:
            oldest, _ = self._vacant.popitem(last=False)
            self._patterns.discard(oldest.text)
            self._forget_topics(oldest.text)
        return True

    def match(self, topic: str) -> Audience[S]:
        """Return who gets an event on a valid topic."""
        audience = self._audiences.get(topic)
        return audience if audience is not None else self._find(topic)

    def _find(self, topic: str) -> Audience[S]:
        """Find the audience of a topic that the young generation does not have, and remember it there."""
        # A topic that is found anew after each change of its patterns brings no new topic, but a new union each time.
        full = self._generation_topics
        if len(self._young.unions) >= full or (len(self._audiences) >= full and topic not in self._audiences):
            self._old, self._young = self._young, _Generation()
            self._audiences = self._young.audiences
        audience = self._old.audiences.get(topic)
        if audience is None:
            patterns = tuple(self._patterns.reached(topic))
            audience = patterns[0] if len(patterns) == 1 else self._union(patterns)
        elif isinstance(audience, _Union):
            audience = self._union(audience.patterns)
        if topic not in self._audiences:
            # To remember a topic costs as much as to match it twice, and many come once only (an order's, a message's).
            if topic not in self._seen_once:
                if len(self._seen_once) >= 2 * full:
                    self._seen_once.clear()
                self._seen_once.add(topic)
                return audience
            self._young.index.add(topic)
        self._audiences[topic] = audience
        return audience

    def _union(self, patterns: tuple[_Pattern[S], ...]) -> _Union[S]:
        """Return the audience of these patterns: the one that other topics have, if any."""
        if not patterns:
            return self._nobody
        union = self._young.unions.get(patterns) or self._old.unions.get(patterns) or _Union(patterns, self._lists)
        self._young.unions[patterns] = union
        return union

    def _forget_topics(self, pattern: str) -> None:
        self._young.forget(pattern)
        self._old.forget(pattern)

    def _changed(self, entry: _Pattern[S]) -> None:
        if entry.changed != _UNSHARED:
            self._lists.changes += 1
            entry.changed = self._lists.changes
