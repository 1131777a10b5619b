"""The sources that one gateway subscribes to in Redis, which are the fewest that cover the needs of its clients. No I/O.

In: patterns that clients need or no longer need (`acquire`, `release`), the sources that Redis acknowledges (`acknowledge`), and
those that a fence has covered (`mark_synced`). Out: sources to subscribe to (`to_subscribe`) and to unsubscribe from
(`to_unsubscribe`), and whether a pattern is active. docs/decisions/0008-interest.md has the argument.

A *source* is the name in one SUBSCRIBE or PSUBSCRIBE: the channel of a topic, a glob of such channels, the channel of a user, or
the glob of all users' channels. A logged event under `users.<user>` comes on the channel of the user, and every other logged
event and plain PUBLISH on the channel of its topic. So a pattern may need two sources. For example, `*.paid` needs its glob, and
the channel of the user `paid`. While an older gateway listens, events of users come twice, and the feed drops the copies.

In a Cluster the channels are sharded (SSUBSCRIBE). Sharded patterns do not exist, so the only glob is the feed channel, which
brings every logged event. Two plain globs bring the rest: every plain PUBLISH, and the events of a log that another gateway
has configured otherwise.

On one connection a source is first *requested*, then *acknowledged* by Redis, then *synced*. Synced means that a fence which read
its head after the acknowledgement has passed, so the feed's position is above everything published before Redis knew the source.

Rules.
1. A source inside a glob is not requested. An existing one is dropped only after the glob is synced. A glob is dropped only after
   each source inside it is synced, or inside a synced glob that stays.
2. A pattern is active when each of its sources, or a glob that covers it, is synced. Without a connection every pattern is
   active, as the next connection subscribes to all of them, and reads everything above the position from the log.
3. A glob costs Redis one comparison for every event of every namespace. A channel costs some hundred bytes. Above MAX_GLOBS or
   MAX_CHANNELS the gateway takes the whole feed, in two globs.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable
from itertools import chain

from headgate.events.topic import USERS, is_wildcard
from headgate.redis.keys import channel, channel_prefix, feed_channel, user_channel

from .globs import Glob, Source, SourceCounts, covers, matcher, split

__all__ = ["Interest", "Source", "by_command", "sources"]

# A comparison costs Redis some 30 ns per glob, event and gateway. Against flapping, the way back is at half of the limit.
MAX_GLOBS = 64
MAX_CHANNELS = 50_000
# A source outlives its last client by this time, so that a reloading page finds it active.
LINGER_S = 5.0
MAX_LINGERING = 1024

_SUBSCRIBE, _PSUBSCRIBE, _SSUBSCRIBE = b"subscribe", b"psubscribe", b"ssubscribe"
_UNDO = {_SUBSCRIBE: b"unsubscribe", _PSUBSCRIBE: b"punsubscribe", _SSUBSCRIBE: b"sunsubscribe"}
_UNDONE = {undo: command for command, undo in _UNDO.items()}


def sources(namespace: str, pattern: str, database: int = 0) -> tuple[Source, ...]:
    """Return the plain channels and globs that together cover a valid pattern.

    The receiver must still match topics, as the `*` of a glob also matches dots, and the channel of a user has all of its topics.
    """
    first, _, rest = pattern.partition(".")
    if first != "#" and (first not in (USERS, "*") or not rest):
        return (_of_topics(namespace, pattern, database),)
    # The only user with topics that the pattern may match, or any.
    user = "#" if first == "#" else rest.partition(".")[0]
    if user in ("*", "#"):
        return _of_topics(namespace, pattern, database), (_PSUBSCRIBE, user_channel(namespace, "*", database).encode())
    own = _SUBSCRIBE, user_channel(namespace, user, database).encode()
    # A plain PUBLISH to a topic of a user reaches the clients of exactly that topic.
    if first == USERS and is_wildcard(rest):
        return (own,)
    return _of_topics(namespace, pattern, database), own


def _of_topics(namespace: str, pattern: str, database: int) -> Source:
    """Return the channel of a topic, or the narrowest glob for the channels of all topics that a pattern matches."""
    if not is_wildcard(pattern):
        return _SUBSCRIBE, channel(namespace, pattern, database).encode()
    glob = re.sub(r"#(?:\.#)+", "#", pattern)
    # `#` may stand for no word. It then takes its dot along at an end, and one of its two dots between words.
    glob = re.sub(r"(?<=\.)#\.", "*", re.sub(r"^#\.|\.#$", "*", glob)).replace("#", "*")
    return _PSUBSCRIBE, (channel_prefix(namespace, database) + re.sub(r"\*+", "*", glob)).encode()


class Interest:
    """The sources of one namespace. The arguments are those of the feed.

    Attributes:
        requested: the sources of this connection.
        attached: whether there is a connection to request sources on.
        whole: whether every event arrives, so that offsets have no holes.
        overlapping: whether one publish may arrive more than once on the channel of a topic.
    """

    def __init__(self, namespace: str, *, sharded: bool = False, database: int = 0) -> None:
        prefix = channel_prefix(namespace, database)
        self._namespace, self._database = namespace, database
        self._users = user_channel(namespace, "", database).encode()
        feed: Source = (_SSUBSCRIBE, feed_channel(namespace, database).encode())
        plain: frozenset[Source] = frozenset({(_PSUBSCRIBE, f"{prefix}*".encode()), (_PSUBSCRIBE, self._users + b"*")})
        self._sharded = sharded
        self._everything = frozenset({feed}) if sharded else plain
        # In addition to the sharded channels.
        self._plain: frozenset[Source] = plain if sharded else frozenset()
        # The feed channel covers the channels of topics and of users, which begin with this.
        self._feed_reach = prefix[:-1].encode() + b"*"
        # The channel of no topic keeps the connection in subscriber mode while no client needs anything.
        self._anchor: Source = (_SSUBSCRIBE if sharded else _SUBSCRIBE, prefix.encode())
        self._holders: dict[str, int] = {}
        self._lingering: OrderedDict[str, float] = OrderedDict()  # pattern → its end
        self._sources_of: dict[str, tuple[Source, ...]] = {}
        self._channels, self._globs = SourceCounts(len(prefix)), SourceCounts(len(prefix))
        self._target: set[Source] = set()
        self._broad: dict[Source, Glob] = {}  # globs in the target, at most MAX_GLOBS, with the reach of each
        self._synced_cover: set[Glob] = set()
        self._fresh: set[Source] = set()  # needed, not requested
        self._excess: set[Source] = set()  # requested, not needed
        self._acknowledged: set[Source] = set()  # by Redis, without a fence since
        self._synced: set[Source] = set()
        self._leaving: set[Source] = set()  # unsubscribed from, not acknowledged by Redis
        self._only_whole = False
        self._takes_all = False  # the target has the whole feed
        self._dirty = False  # the target must be recomputed
        self._open_topics = self._open_globs = 0  # topic sources that may bring messages, and the globs among them
        self.requested: set[Source] = set()
        self.attached = self.whole = self.overlapping = False

    # -- patterns -------------------------------------------------------------------------------------------------

    def acquire(self, pattern: str) -> bool:
        """Count one more need for a pattern; return whether `to_subscribe` may have something new."""
        self._holders[pattern] = self._holders.get(pattern, 0) + 1
        self._lingering.pop(pattern, None)
        if pattern in self._sources_of:
            return False
        self._note_new(pattern)
        return self.attached

    def release(self, pattern: str, now_s: float) -> None:
        """Take one `acquire` back. After the last one the pattern lingers."""
        self._holders[pattern] -= 1
        if self._holders[pattern]:
            return
        del self._holders[pattern]
        self._lingering[pattern] = now_s + LINGER_S
        if len(self._lingering) > MAX_LINGERING:
            self._forget(self._lingering.popitem(last=False)[0])

    def active(self, pattern: str) -> bool:
        """Return whether the feed will hand on every event of an acquired pattern above its position."""
        return pattern in self.active_among((pattern,))

    def active_among(self, patterns: Collection[str]) -> Collection[str]:
        """Return the `active` ones of acquired patterns. One call for all patterns costs a third of one for each."""
        if not self.attached:
            return patterns
        synced, cover, sources_of = self._synced, self._synced_cover, self._sources_of
        active = set()
        for pattern in patterns:
            for source in sources_of[pattern]:
                if source not in synced and not (cover and covers(cover, self._reach(source))):
                    break
            else:
                active.add(pattern)
        return active

    @property
    def is_needed(self) -> bool:
        """Whether a client needs a pattern, or has just left one."""
        return bool(self._holders or self._lingering)

    @property
    def all_active(self) -> bool:
        """Whether every acquired pattern is active. If not, some may be."""
        return not self.attached or not (self._fresh or self._dirty or len(self._synced) < len(self.requested))

    # -- a connection ---------------------------------------------------------------------------------------------

    def attach(self) -> list[Source]:
        """Begin with a new connection; return the sources to request on it."""
        self._sources_of.clear()
        self._channels.clear()
        self._channels.add(self._anchor)
        self._globs.clear()
        for pattern in [*self._holders, *self._lingering]:
            self._note(pattern)
        self.attached = self._dirty = True
        return self.to_subscribe()

    def detach(self) -> None:
        """End the connection. Idempotent."""
        self.attached = self.whole = self._takes_all = False
        for each in (self.requested, self._target, self._fresh, self._excess, self._acknowledged, self._synced, self._leaving):
            each.clear()
        self._broad.clear()
        self._synced_cover.clear()
        self._open_topics = self._open_globs = 0

    def narrow_refused(self) -> bool:
        """Note that Redis refused a right; return whether the next connection therefore takes only the whole feed.

        Redis compares a glob with the rights of a user literally, so the user may be allowed the whole feed only. (When its disk
        is full, Redis also refuses a PING, without a subscription under way.)
        """
        changed = self.unacknowledged and not self._only_whole
        self._only_whole = self._only_whole or changed
        return changed

    def to_subscribe(self) -> list[Source]:
        """Return the sources to request now, which count as requested."""
        if self._dirty:
            self._retarget()
        fresh, self._fresh = sorted(self._fresh), set()
        self.requested.update(fresh)
        self._update_overlaps(fresh, 1)
        return fresh

    def acknowledge(self, command: bytes, name: bytes) -> None:
        """Note that Redis has acknowledged a source."""
        if (source := (command, name)) in self.requested and source not in self._synced:
            self._acknowledged.add(source)

    @property
    def unacknowledged(self) -> bool:
        """Whether Redis has yet to acknowledge a source."""
        return len(self.requested) > len(self._acknowledged) + len(self._synced)

    @property
    def acknowledged(self) -> frozenset[Source]:
        """The acknowledged sources that no fence covers yet. A fence that reads its head after this covers them."""
        return frozenset(self._acknowledged)

    def mark_synced(self, sources: frozenset[Source]) -> None:
        """Mark the sources that were `acknowledged` when a passed fence read its head."""
        synced = self._acknowledged & sources  # not those of an earlier connection
        self._acknowledged -= synced
        self._synced |= synced
        for source in synced:
            if self._is_glob(source):
                self._synced_cover.add(split(self._reach(source)))
        self.whole = self._everything <= self._synced

    def to_unsubscribe(self, now_s: float) -> list[Source]:
        """Return the sources to unsubscribe from now, which no longer count as requested."""
        while self._lingering and next(iter(self._lingering.values())) <= now_s:
            self._forget(self._lingering.popitem(last=False)[0])
        if self._dirty:
            self._retarget()
        if not self._excess:
            return []
        cover = {reach for glob, reach in self._broad.items() if glob in self._synced}
        dropped = [source for source in self._excess if self._dispensable(source, cover)]
        for source in dropped:
            if self._is_glob(source) and source in self._synced:
                self._synced_cover.remove(split(self._reach(source)))
            for each in (self.requested, self._excess, self._synced):
                each.discard(source)
        self.whole = self._everything <= self._synced
        self._leaving.update(dropped)  # until Redis acknowledges, messages through them may be in transit
        return sorted(dropped)

    def end(self, command: bytes, name: bytes) -> bool:
        """Note that Redis has ended a source, by the reply `command`; return whether the gateway asked for it.

        Redis itself ends sharded subscriptions when their slot leaves the node.
        """
        source = (_UNDONE[command], name)
        if source not in self._leaving:
            return False
        self._leaving.discard(source)
        self._update_overlaps([source], -1)
        return True

    # -- private --------------------------------------------------------------------------------------------------

    def _sources(self, pattern: str) -> tuple[Source, ...]:
        plain = sources(self._namespace, pattern, self._database)
        if not self._sharded:
            return plain
        if any(command == _PSUBSCRIBE for command, _ in plain):
            return tuple(self._everything)
        # The user's channel if there is one, as the plain globs bring messages on the topic's channel.
        return ((_SSUBSCRIBE, plain[-1][1]),)

    def _is_glob(self, source: Source) -> bool:
        return source in self._everything if self._sharded else source[0] == _PSUBSCRIBE

    def _reach(self, source: Source) -> bytes:
        """Return the name of a source's channel, or the glob of its channels."""
        return self._feed_reach if self._sharded and source in self._everything else source[1]

    def _note(self, pattern: str) -> list[Source]:
        """Find the sources of a pattern; return those that no other pattern needed."""
        needed = self._sources_of[pattern] = self._sources(pattern)
        return [source for source in needed if (self._globs if self._is_glob(source) else self._channels).add(source)]

    def _note_new(self, pattern: str) -> None:
        new = self._note(pattern)
        if not new or not self.attached or self._dirty:
            return
        if not self._everything.isdisjoint(new) or self._limits_crossed():
            self._dirty = True
            return
        for source in new:
            if covers(self._broad.values(), self._reach(source)):
                continue
            if self._is_glob(source):
                self._take_glob(source)
            else:
                self._want(source)

    def _forget(self, pattern: str) -> None:
        needed = self._sources_of.pop(pattern)
        gone = [source for source in needed if (self._globs if self._is_glob(source) else self._channels).remove(source)]
        if not gone or not self.attached or self._dirty:
            return
        if not self._everything.isdisjoint(gone) or self._limits_crossed():
            self._dirty = True
            return
        for source in gone:
            if source in self._broad:
                self._leave_glob(source)
            else:
                self._unwant(source)

    def _too_many(self) -> bool:
        # The number that led to the whole feed must halve before it leads back.
        share = 2 if self._takes_all else 1
        return self._globs.count * share > MAX_GLOBS or self._channels.count * share > MAX_CHANNELS

    def _limits_crossed(self) -> bool:
        return self._too_many() != self._takes_all and not self._only_whole and not self._everything.issubset(self._globs)

    # -- the target, which should be requested ---------------------------------------------------------------------

    def _want(self, source: Source) -> None:
        self._target.add(source)
        self._excess.discard(source)
        if source not in self.requested:
            self._fresh.add(source)

    def _unwant(self, source: Source) -> None:
        if source in self._target:
            self._target.discard(source)
            self._fresh.discard(source)
            if source in self.requested:
                self._excess.add(source)

    def _take_glob(self, glob: Source) -> None:
        """Want a glob that lies in no other, and no longer what lies in it."""
        reach = glob[1]
        inside = matcher(reach)
        for other in [other for other in self._broad if inside.fullmatch(other[1])]:
            del self._broad[other]
            self._unwant(other)
        self._broad[glob] = split(reach)
        self._want(glob)
        for each in self._channels.inside(reach):
            self._unwant(each)

    def _leave_glob(self, glob: Source) -> None:
        """Want no longer a glob, but what lies in it and in no other."""
        reach = glob[1]
        del self._broad[glob]
        self._unwant(glob)
        freed = self._broadest(other for other in self._globs.inside(reach) if not covers(self._broad.values(), other[1]))
        self._broad |= freed
        alone = set(self._channels.inside(reach))
        for _, other in self._broad.values():
            alone.difference_update(self._channels.inside(other))
        for each in (*freed, *alone):
            self._want(each)

    def _retarget(self) -> None:
        """Compute the target of a new connection, or when the whole feed is taken or left."""
        self._dirty = False
        whole = self._only_whole or self._too_many()
        self._broad = self._broadest(self._everything if whole else self._globs)
        self._target = {*self._broad, *self._channels}
        for _, reach in self._broad.values():
            self._target.difference_update(self._channels.inside(reach))
        if not self._only_whole:
            self._target |= self._plain
        self._takes_all = self._everything <= self._target
        self._fresh = self._target - self.requested
        self._excess = self.requested - self._target

    def _broadest(self, globs: Iterable[Source]) -> dict[Source, Glob]:
        """Return the globs that lie in none of the others, with the reach of each."""
        reaches = {glob: split(self._reach(glob)) for glob in globs}
        return {glob: reach for glob, reach in reaches.items() if not covers({*reaches.values()} - {reach}, reach[1])}

    def _dispensable(self, source: Source, cover: set[Glob]) -> bool:
        """Return whether no active pattern needs an excess source while `cover` stays."""
        if source not in self._synced:
            return False  # its late acknowledgement would pass for that of a later request
        reach = self._reach(source)
        if source in self._globs or source in self._channels:
            return covers(cover, reach)
        # For each source inside a glob, the source itself or another glob must stay.
        return not self._is_glob(source) or all(
            (other in self._synced and other in self._target) or covers(cover, self._reach(other))
            for other in chain(self._globs.inside(reach), self._channels.inside(reach))
        )

    def _update_overlaps(self, changed: Iterable[Source], by: int) -> None:
        # Counted, as there may be tens of thousands of sources, one more for each new user. Sharded and plain sources do not
        # overlap, as no publish is on both. Channels of users carry only logged events, which have offsets.
        if self._sharded:
            return
        topics = [command for command, name in changed if not name.startswith(self._users)]
        self._open_topics += by * len(topics)
        self._open_globs += by * topics.count(_PSUBSCRIBE)
        self.overlapping = self._open_topics > 1 and self._open_globs > 0


def by_command(sources: Iterable[Source], *, undo: bool = False) -> list[tuple[bytes, ...]]:
    """Return the commands that subscribe to sources or unsubscribe from them, at most one of each kind."""
    named: dict[bytes, list[bytes]] = {}
    for command, name in sources:
        verb = (_UNDO[command] if undo else command).upper()
        named.setdefault(verb, []).append(name)
    return [(verb, *names) for verb, names in named.items()]
