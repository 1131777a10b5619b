"""What one gateway listens to in Redis: the fewest channels and globs that bring all that somebody here wants. No I/O.

In: patterns that are wanted or no longer wanted (`add`, `discard`), what Redis has confirmed (`confirm`), and what a fence has
proven (`prove`). Out: what to subscribe to (`grow`), what to give up (`give_up`), and whether a pattern is in
force. The bus does the sending; docs/decisions/0008-interest.md has the argument.

A *source* is what one SUBSCRIBE or PSUBSCRIBE names, of three kinds: the channel of a topic; the channel of a user, which brings
every logged event under `users.<user>`; a glob. On one connection a source is *held* (asked for), then *confirmed*, then
*proven*: a fence has passed whose head was read after the confirmation, so that the feed's position lies above everything that
was published before Redis knew of the source.

Rules.
1. A source that a glob covers is not asked for. It is given up only when the glob is proven; and a glob only when all that it
   stood in for is proven.
2. A pattern is in force when its source, or a glob that covers it, is proven. Without a connection every pattern is: whoever
   connects next asks for all of them, and reads from the log what lies above the position.
3. A glob costs Redis a comparison for every event of every namespace, a channel some hundred bytes. Above MAX_GLOBS and
   MAX_CHANNELS the whole feed is taken, in one glob.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from typing import TypeAlias

from headgate.redis.keys import channel, channel_prefix, user_channel
from headgate.topic import USERS, is_wildcard

# Command and name, as Redis confirms it: (b"subscribe", b"hg:{n}:orders.1") or (b"psubscribe", b"hg:{n}:orders.*").
Source: TypeAlias = tuple[bytes, bytes]

# Comparing costs Redis some 30 ns per glob and event, for each gateway. Half of it leads back, so that nothing flaps.
MAX_GLOBS = 64
MAX_CHANNELS = 50_000
# A source outlives its last client by this much, so that a page that is loaded anew finds it in force.
LINGER_S = 5.0
MAX_LINGERING = 1024

_SUBSCRIBE, _PSUBSCRIBE = b"subscribe", b"psubscribe"


def subscription(namespace: str, pattern: str) -> tuple[str, str]:
    """Return the command and the channel, or narrowest glob, that brings every event of a valid pattern.

    A glob is a superset of a pattern (its `*` also matches dots), so the receiver must still match each topic.
    """
    if not is_wildcard(pattern):
        return "SUBSCRIBE", channel(namespace, pattern)
    glob = re.sub(r"#(?:\.#)+", "#", pattern)
    # `#` may stand for no word at all: at an end it takes its dot along, between two words one of its two.
    glob = re.sub(r"(?<=\.)#\.", "*", re.sub(r"^#\.|\.#$", "*", glob)).replace("#", "*")
    return "PSUBSCRIBE", channel_prefix(namespace) + re.sub(r"\*+", "*", glob)


class Interest:
    """The sources of one namespace. `held` is what Redis was asked for on this connection.

    Attributes:
        attached: whether there is a connection that sources are asked for on.
        whole: whether every event is proven to arrive, so that offsets follow each other without holes.
        overlapping: whether one publish may arrive more than once.
        by_user: whether channels of users are relied on.
    """

    def __init__(self, namespace: str) -> None:
        prefix = channel_prefix(namespace)
        self._namespace = namespace
        self._users = user_channel(namespace, "").encode()
        self._users_glob = f"{prefix}{USERS}.".encode()
        self._everything: Source = (_PSUBSCRIBE, f"{prefix}*".encode())
        # The channel of no topic: keeps the connection one of a subscriber when nobody wants anything.
        self._anchor: Source = (_SUBSCRIBE, prefix.encode())
        self._holders: Counter[str] = Counter()
        self._lingering: OrderedDict[str, float] = OrderedDict()  # pattern → when its time is over
        self._wanted: dict[str, Source] = {}
        self._patterns_of: Counter[Source] = Counter()
        self._globs = 0
        self._target: set[Source] = set()
        self._cover = _covered_by(())
        self._proven_cover = _covered_by(())
        self._fresh: set[Source] = set()  # wanted and not held
        self._excess: set[Source] = set()  # held and not wanted
        self._unproven: set[Source] = set()  # confirmed, and no fence yet
        self._proven: set[Source] = set()
        self._only_whole = False
        self._aimless = False  # what is to be held has to be decided anew
        self._held_globs = 0
        self.held: set[Source] = set()
        self.attached = self.whole = self.overlapping = self.by_user = False

    # -- what is wanted -------------------------------------------------------------------------------------------

    def add(self, pattern: str) -> bool:
        """Want a pattern, once more; return whether that may be a reason to `grow`."""
        self._holders[pattern] += 1
        self._lingering.pop(pattern, None)
        if pattern in self._wanted:
            return False
        self._want(pattern)
        return self.attached

    def discard(self, pattern: str, now_s: float) -> None:
        """Want a pattern once less; the last time, it lingers. One call for each `add`."""
        self._holders[pattern] -= 1
        if self._holders[pattern]:
            return
        del self._holders[pattern]
        self._lingering[pattern] = now_s + LINGER_S
        if len(self._lingering) > MAX_LINGERING:
            self._forget(self._lingering.popitem(last=False)[0])

    def in_force(self, pattern: str) -> bool:
        """Return whether every event of a wanted pattern above the feed's position will be handed on."""
        if not self.attached:
            return True
        source = self._wanted[pattern]
        return source in self._proven or bool(self._proven_cover.fullmatch(self._reach(source)))

    # -- a connection ---------------------------------------------------------------------------------------------

    def attach(self, *, by_user: bool) -> list[Source]:
        """Begin with a new connection; return what to ask for on it.

        Args:
            by_user: whether Redis publishes on the channels of users.
        """
        self.by_user = by_user
        self._wanted.clear()
        self._patterns_of.clear()
        self._globs = 0
        for pattern in [*self._holders, *self._lingering]:
            self._note(pattern)
        self.attached = self._aimless = True
        return self.grow()

    def detach(self) -> None:
        """The connection is gone. Idempotent."""
        self.attached = self.whole = False
        for sources in (self.held, self._target, self._fresh, self._excess, self._unproven, self._proven):
            sources.clear()
        self._held_globs = 0
        self._proven_cover = _covered_by(())

    def take_whole(self) -> bool:
        """From the next connection on take the whole feed only; return whether that is news."""
        news, self._only_whole = not self._only_whole, True
        return news

    def grow(self) -> list[Source]:
        """Return what to ask for now; it is held from now on."""
        if self._aimless:
            self._aim()
        fresh, self._fresh = sorted(self._fresh), set()
        self.held.update(fresh)
        self._look_for_overlaps(fresh, 1)
        return fresh

    def confirm(self, command: bytes, name: bytes) -> None:
        """Redis has confirmed a source."""
        if (source := (command, name)) in self.held and source not in self._proven:
            self._unproven.add(source)

    @property
    def unconfirmed(self) -> bool:
        """Whether Redis has yet to confirm a source."""
        return len(self.held) > len(self._unproven) + len(self._proven)

    @property
    def unproven(self) -> frozenset[Source]:
        """What is confirmed and not proven: what a fence proves whose head is read after this."""
        return frozenset(self._unproven)

    def prove(self, sources: frozenset[Source]) -> None:
        """A fence has passed, before whose head these were `unproven`. At most one may be under way."""
        proven = self._unproven & sources  # not what was on a connection before
        self._unproven -= proven
        self._proven |= proven
        self._look_at_proven(proven)

    def give_up(self, now_s: float) -> list[Source]:
        """Return what not to listen to any longer; it is not held from now on."""
        while self._lingering and next(iter(self._lingering.values())) <= now_s:
            self._forget(self._lingering.popitem(last=False)[0])
        if self._aimless:
            self._aim()
        if not self._excess:
            return []
        cover = _covered_by([source for source in self._target if source in self._proven])
        given_up = [source for source in self._excess if self._dispensable(source, cover)]
        for source in given_up:
            for sources in (self.held, self._excess, self._proven):
                sources.discard(source)
        self._look_at_proven(given_up)
        self._look_for_overlaps(given_up, -1)
        return sorted(given_up)

    # -- private --------------------------------------------------------------------------------------------------

    def _source(self, pattern: str) -> Source:
        words = pattern.split(".", 2)
        if self.by_user and words[0] == USERS and len(words) == 3 and is_wildcard(words[2]) and not is_wildcard(words[1]):
            return _SUBSCRIBE, user_channel(self._namespace, words[1]).encode()
        command, name = subscription(self._namespace, pattern)
        return command.lower().encode(), name.encode()

    def _reach(self, source: Source) -> bytes:
        """Return the glob of the topics' channels whose events a source brings."""
        name = source[1]
        return self._users_glob + name[len(self._users) :] + b"*" if name.startswith(self._users) else name

    def _note(self, pattern: str) -> Source | None:
        """Find the source of a pattern; return it if no other pattern needed it."""
        source = self._wanted[pattern] = self._source(pattern)
        self._patterns_of[source] += 1
        if self._patterns_of[source] > 1:
            return None
        self._globs += source[0] == _PSUBSCRIBE
        return source

    def _want(self, pattern: str) -> None:
        source = self._note(pattern)
        if source is None or not self.attached:
            return
        if source[0] == _PSUBSCRIBE or self._limits_crossed():
            self._aimless = True
        elif not self._cover.fullmatch(self._reach(source)):
            self._target.add(source)
            self._excess.discard(source)
            if source not in self.held:
                self._fresh.add(source)

    def _forget(self, pattern: str) -> None:
        source = self._wanted.pop(pattern)
        self._patterns_of[source] -= 1
        if self._patterns_of[source]:
            return
        del self._patterns_of[source]
        self._globs -= source[0] == _PSUBSCRIBE
        if not self.attached:
            return
        if source[0] == _PSUBSCRIBE or self._limits_crossed():
            self._aimless = True
        elif source in self._target:
            self._target.discard(source)
            self._fresh.discard(source)
            if source in self.held:
                self._excess.add(source)

    def _too_many(self) -> bool:
        # What led to the whole feed must halve before it leads back.
        share = 2 if self._everything in self._target else 1
        channels = len(self._patterns_of) - self._globs
        return self._globs * share > MAX_GLOBS or channels * share > MAX_CHANNELS

    def _limits_crossed(self) -> bool:
        everything = self._everything in self._target
        return self._too_many() != everything and not self._only_whole and self._everything not in self._patterns_of

    def _aim(self) -> None:
        """Decide anew what is to be held. Looks at every source, so only when globs have come or gone, and once for all."""
        self._aimless = False
        if self._only_whole or self._too_many():
            globs = [self._everything]
        else:
            globs = _broadest([source for source in self._patterns_of if source[0] == _PSUBSCRIBE])
        self._cover = _covered_by(globs)
        channels = [self._anchor, *(source for source in self._patterns_of if source[0] == _SUBSCRIBE)]
        self._target = {*globs, *(source for source in channels if not self._cover.fullmatch(self._reach(source)))}
        self._fresh = self._target - self.held
        self._excess = self.held - self._target

    def _dispensable(self, source: Source, cover: re.Pattern[bytes]) -> bool:
        """Whether nothing in force hangs on a source that is to be given up, while `cover` stays."""
        if source not in self._proven:
            return False  # its confirmation is still to come: a later one could not be told from it
        if source in self._patterns_of and not cover.fullmatch(self._reach(source)):
            return False
        if source[0] == _SUBSCRIBE:
            return True
        stood_in_for = _covered_by([source])
        return all(other in self._proven for other in self._target if stood_in_for.fullmatch(self._reach(other)))

    def _look_at_proven(self, changed: Collection[Source]) -> None:
        if any(source[0] == _PSUBSCRIBE for source in changed):
            self._proven_cover = _covered_by(self._proven)
            self.whole = self._everything in self._proven

    def _look_for_overlaps(self, changed: Collection[Source], by: int) -> None:
        # Counted, as `held` may be tens of thousands, and grows by one for each user that comes.
        self._held_globs += by * sum(source[0] == _PSUBSCRIBE for source in changed)
        self.overlapping = len(self.held) > 1 and self._held_globs > 0


def _covered_by(sources: Collection[Source]) -> re.Pattern[bytes]:
    """Return what matches exactly the names, and the globs, that lie in one of these globs.

    A glob lies in another if that matches it as it stands, its `*` being matched by a `*` only: nothing else can.
    """
    globs = (re.escape(name).replace(rb"\*", b".*") for command, name in sources if command == _PSUBSCRIBE)
    return re.compile(b"|".join(globs) or b"(?!)", re.DOTALL)


def _broadest(globs: list[Source]) -> list[Source]:
    """Return those of some globs that lie in none of the others."""
    lying_in = [(glob, _covered_by([glob])) for glob in globs]
    return [glob for glob in globs if not any(other != glob and cover.fullmatch(glob[1]) for other, cover in lying_in)]


def by_command(sources: Iterable[Source], *, undo: bool = False) -> list[tuple[bytes, ...]]:
    """Return the commands that subscribe to sources, or give them up: at most one of each kind."""
    named: dict[bytes, list[bytes]] = {}
    for command, name in sources:
        verb = {_SUBSCRIBE: b"UNSUBSCRIBE", _PSUBSCRIBE: b"PUNSUBSCRIBE"}[command] if undo else command.upper()
        named.setdefault(verb, []).append(name)
    return [(verb, *names) for verb, names in named.items()]
