"""Subscriptions, to find the clients that want a topic. No I/O, never waits.

In: `add` and `remove` of (pattern, subscriber). Out: `match(topic)`, which returns an `Audience`, the clients that get an event
on it. pattern_map.py does the matching; this module remembers its results, on three levels, each exact and bounded.
1. The audience of a topic is remembered from its second use until a pattern that begins with the same words, up to its first
   wildcard, appears or disappears. A pattern with very many such topics, such as the first `#`, makes the matcher doubt them all,
   and match each again on its next use, in some 2 µs. (An index that finds the matching topics of any pattern took 200 lines.)
2. All topics that reach the same patterns share one audience. A single pattern is an audience itself.
3. The list of clients of several patterns is made on first use, and again only after one of them gained or lost a client.
A full level replaces its oldest entry, and never drops all of them at once.

A pattern outlives its last client for a while, so that a page reload forgets nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Hashable
from itertools import chain
from typing import Generic, TypeVar

from .pattern_map import PatternMap

S = TypeVar("S", bound=Hashable)

# Topics with a remembered audience, 300 to 400 bytes each. There may be as many as patterns, within these bounds, so a gateway
# for 50,000 users with separate topics remembers them all, and memory stays in proportion to the subscriptions.
MIN_CACHED_TOPICS = 12_288
MAX_CACHED_TOPICS = 131_072
# Clients in all lists together, 8 bytes each. A new list replaces others. Unbounded, 16,384 topics with 10,000 clients each would
# hold 1.3 GB.
MAX_LISTED_CLIENTS = 2_000_000
# If a new pattern may match more remembered topics than this, all are doubted. Otherwise each is forgotten, in 0.1 µs.
MAX_FORGOTTEN = 512
# Kept patterns without a client, about 200 bytes each. The one left first goes first.
MAX_VACANT_PATTERNS = 1024
# Up to this many subscribers of a pattern are in a tuple alone. A dict takes 200 bytes more, and is faster above this.
_FEW = 8
_UNSHARED = -1  # a pattern in no union


class Audience(Generic[S]):
    """The clients that get the events of a topic, or of a room (socketio/rooms.py).

    For _native.c, each subclass has `listed`, the current list of clients, or None if only `clients` can make it.
    """

    __slots__ = ()

    @property
    def clients(self) -> tuple[S, ...]:
        """Each client once, as of now; the same tuple object as long as nothing has changed."""
        raise NotImplementedError


class _Pattern(Audience[S]):
    """A pattern with its subscribers in order of arrival. It is the audience of the topics that reach no other pattern."""

    __slots__ = ("_members", "changed", "listed", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.changed = _UNSHARED  # or the number of the last change
        self.listed: tuple[S, ...] | None = ()  # None until made of the members
        self._members: dict[S, None] | None = None  # None if `listed` has the few

    @property
    def clients(self) -> tuple[S, ...]:
        if self.listed is None:
            self.listed = tuple(self._members or ())
        return self.listed

    @property
    def vacant(self) -> bool:
        return self.listed == () and self._members is None

    def add(self, subscriber: S) -> bool:
        """Add a subscriber; return False if it was present."""
        if self._members is None:
            clients = self.clients
            if subscriber in clients:
                return False
            self.listed = (*clients, subscriber)
            if len(self.listed) > _FEW:
                self._members = dict.fromkeys(self.listed)
            return True
        if subscriber in self._members:
            return False
        self._members[subscriber] = None
        self.listed = None
        return True

    def remove(self, subscriber: S) -> bool:
        """Remove a subscriber; return False if it was absent."""
        if self._members is None:
            clients = self.clients
            if subscriber not in clients:
                return False
            self.listed = tuple([each for each in clients if each != subscriber]) if len(clients) > 1 else ()
            return True
        if subscriber not in self._members:
            return False
        del self._members[subscriber]
        self.listed = None
        if len(self._members) <= _FEW // 2:
            self.listed = tuple(self._members)
            self._members = None
        return True


class _Union(Audience[S]):
    """The clients of several patterns, or of none; each once, pattern by pattern."""

    __slots__ = ("_clients", "_lists", "_made", "patterns")

    def __init__(self, patterns: tuple[_Pattern[S], ...], lists: _Lists[S]) -> None:
        self.patterns, self._lists = patterns, lists
        self._clients: tuple[S, ...] | None = None
        self._made = 0  # the number of the last change in the list
        for pattern in patterns:
            if pattern.changed == _UNSHARED:
                pattern.changed = 0

    @property
    def listed(self) -> None:
        """None, as a pattern may have gained or lost a client."""

    @property
    def clients(self) -> tuple[S, ...]:
        clients, lists = self._clients, self._lists
        if clients is not None and (self._made == lists.changes or not self.stale):
            return clients
        fresh = tuple(dict.fromkeys(chain.from_iterable([pattern.clients for pattern in self.patterns])))
        self._made = lists.changes
        is_counted = (clients is not None and len(fresh) == len(clients)) or lists.replace(self, fresh)
        self._clients = fresh if is_counted else None
        return fresh

    @property
    def stale(self) -> bool:
        """Whether a pattern has gained or lost a client since the list was made."""
        made = self._made
        for pattern in self.patterns:
            if pattern.changed > made:
                return True
        self._made = self._lists.changes
        return False

    def forget(self) -> None:
        self._clients = None


class _Lists(Generic[S]):
    """The unions with a list of clients, and the bounds of all lists together."""

    __slots__ = ("_clients", "_holders", "_max_clients", "_max_lists", "changes")

    def __init__(self, max_lists: int, max_clients: int) -> None:
        self.changes = 0  # of patterns in unions
        self._max_lists, self._max_clients = max_lists, max_clients
        # With the number of clients. The first one is the next to be checked, or to make room.
        self._holders: OrderedDict[_Union[S], int] = OrderedDict()
        self._clients = 0

    def replace(self, holder: _Union[S], new: tuple[S, ...]) -> bool:
        """Count a new list in place of an old one, if any. Without room for it, return False and hold neither."""
        # Forgetting a list takes a fraction of the time per client of making one, so up to a quarter as many lists make room.
        self._clients -= self._holders.pop(holder, 0)
        for _ in range(16 + len(new) // 4 if len(new) <= self._max_clients else 0):
            if self._clients + len(new) <= self._max_clients and len(self._holders) < self._max_lists:
                self._holders[holder] = len(new)
                self._clients += len(new)
                return True
            self._let_go(next(iter(self._holders)))
        return False

    def check_one(self) -> None:
        """Forget the next list if it is stale. Otherwise an unused list would keep departed clients in memory."""
        if self._holders:
            holder = next(iter(self._holders))
            if holder.stale:
                self._let_go(holder)
            else:
                self._holders.move_to_end(holder)

    def _let_go(self, holder: _Union[S]) -> None:
        self._clients -= self._holders.pop(holder)
        holder.forget()


class _Topics(Generic[S]):
    """The topics with a remembered audience, in `audiences`."""

    __slots__ = ("_candidates", "_oldest_first", "_sorted", "audiences")

    def __init__(self) -> None:
        self.audiences: dict[str, Audience[S] | None] = {}  # None: forgotten, and remembered at the next use
        self._oldest_first: deque[str] = deque()
        self._sorted: list[str] = []  # a move of 100 KB, for 12,288 topics, takes 2 µs
        # Topics that are remembered at the next use: seen once, or doubted.
        self._candidates: set[str] = set()

    def remember(self, topic: str, audience: Audience[S], room: int) -> None:
        """Remember the audience of an unknown or doubted topic on its second use. `room` is the limit of topics."""
        if topic in self.audiences:
            self.audiences[topic] = audience
        elif topic in self._candidates:
            self._candidates.remove(topic)
            for _ in range(2):  # two at a time, as there may have been more patterns before
                if len(self.audiences) >= room:
                    oldest = self._oldest_first.popleft()
                    del self.audiences[oldest]
                    del self._sorted[bisect_left(self._sorted, oldest)]
            self.audiences[topic] = audience
            self._oldest_first.append(topic)
            insort(self._sorted, topic)
        else:
            # Remembering a topic costs as much as matching it twice, and many come only once, such as that of a message.
            if len(self._candidates) >= max(room // 2, 1):
                self._candidates.pop()
            self._candidates.add(topic)

    def forget(self, pattern: str) -> None:
        """Forget the topics that a pattern may match, or doubt all topics if these are many."""
        audiences, topics = self.audiences, self._sorted
        start = _literal_start(pattern)
        if start == pattern:
            if pattern in audiences:
                audiences[pattern] = None
            return
        # `a.b.#` may match `a.b`, and everything between `a.b.` and `a.b/`, as `/` is the character after the dot.
        first, last = (bisect_left(topics, f"{start}."), bisect_left(topics, f"{start}/")) if start else (0, len(topics))
        if last - first <= MAX_FORGOTTEN:
            for topic in topics[first:last]:
                audiences[topic] = None
            if start in audiences:
                audiences[start] = None
            return
        self._candidates = set(audiences)
        for each in (audiences, self._oldest_first, topics):
            each.clear()


def _literal_start(pattern: str) -> str:
    """Return the words of a pattern before its first wildcard, joined by dots."""
    start = pattern.partition("#")[0].partition("*")[0]
    return pattern if start == pattern else start[:-1]  # without the dot


class SubscriptionMatcher(Generic[S]):
    """Patterns with their subscribers; `subscriptions` is the number of pairs.

    `known` are the remembered audiences by topic (None: forgotten), to read only. `match` finds others.
    """

    def __init__(self, max_cached_topics: int = MAX_CACHED_TOPICS, max_listed_clients: int = MAX_LISTED_CLIENTS) -> None:
        self._patterns: PatternMap[_Pattern[S]] = PatternMap()
        self._vacant: OrderedDict[_Pattern[S], None] = OrderedDict()
        self._lists: _Lists[S] = _Lists(max_cached_topics, max_listed_clients)
        # Shared by the topics that reach the same patterns. The oldest goes first.
        self._unions: OrderedDict[tuple[_Pattern[S], ...], _Union[S]] = OrderedDict()
        self._empty: _Union[S] = _Union((), self._lists)
        self._topics: _Topics[S] = _Topics()
        self._max_cached_topics = max_cached_topics
        self.known = self._topics.audiences
        self.subscriptions = 0

    def add(self, pattern: str, subscriber: S) -> bool:
        """Subscribe. Idempotent. Return whether the pattern had no subscriber before."""
        if (entry := self._patterns.get(pattern)) is None:
            entry = _Pattern(pattern)
            self._patterns.add(pattern, entry)
            self._topics.forget(pattern)
            first = True
        elif first := entry.vacant:
            del self._vacant[entry]
        if entry.add(subscriber):
            self.subscriptions += 1
            self._changed(entry)
        return first

    def subscribed(self, pattern: str) -> str | None:
        """Return the shared string of a pattern with a subscriber; None if it has none."""
        entry = self._patterns.get(pattern)
        return None if entry is None or entry.vacant else entry.text

    def remove(self, pattern: str, subscriber: S) -> bool:
        """Unsubscribe if subscribed. Return whether the pattern lost its last subscriber."""
        entry = self._patterns.get(pattern)
        if entry is None or not entry.remove(subscriber):
            return False
        self.subscriptions -= 1
        self._changed(entry)
        self._lists.check_one()
        if not entry.vacant:
            return False
        self._vacant[entry] = None
        if len(self._vacant) > MAX_VACANT_PATTERNS:
            oldest, _ = self._vacant.popitem(last=False)
            self._patterns.discard(oldest.text)
            self._topics.forget(oldest.text)
        return True

    def match(self, topic: str) -> Audience[S]:
        """Return the audience of a valid topic."""
        audience = self.known.get(topic)
        return audience if audience is not None else self._find(topic)

    def _find(self, topic: str) -> Audience[S]:
        """Find, and perhaps remember, the audience of an unknown or doubted topic."""
        patterns = self._patterns.reached(topic)
        room = min(max(len(self._patterns), MIN_CACHED_TOPICS), self._max_cached_topics)
        audience: Audience[S]
        if len(patterns) == 1:
            audience = patterns[0]
        else:
            audience = self._union(tuple(patterns), room) if patterns else self._empty
        self._topics.remember(topic, audience, room)
        return audience

    def _union(self, patterns: tuple[_Pattern[S], ...], room: int) -> _Union[S]:
        """Return the audience of several patterns. `room` is the limit of audiences."""
        if (union := self._unions.get(patterns)) is None:
            union = self._unions[patterns] = _Union(patterns, self._lists)
            for _ in range(min(2, len(self._unions) - room)):  # there may have been more patterns before
                # A remembered topic may still have it. Another topic with the same patterns gets a new one.
                self._unions.popitem(last=False)
        return union

    def _changed(self, entry: _Pattern[S]) -> None:
        if entry.changed != _UNSHARED:
            self._lists.changes += 1
            entry.changed = self._lists.changes
