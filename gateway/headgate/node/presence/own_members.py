"""The members of one topic connected to this process: places of connections, and writes to Redis about them. No I/O.

In: connections (by session) that enter, leave or break, the clock, and the outcome of each write. Out: an `Entry` for each user,
and writes for presence.lua, each with the message that other processes read, `[process, before, number, count, puts, takes]`.
`before` is the number of the preceding write (0 for none, -1 if everything is written again, so that others must read it), and
`count` is the resulting number of members.

A broken connection counts for GRACE_S. A new connection of the same user takes its place, so a page that reconnects within that
time causes no visible change. A failed write may have been applied, and a refused one shows that Redis has lost its predecessor.
In both cases everything is written again.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

import msgspec

from headgate.redis.presence_entries import Entry, TopicWrite, encode_entry

# A page that does not reconnect within this time has left.
GRACE_S = 5.0
MAX_CHANGES = 1000  # in one write
NOTHING_BEFORE, WHOLE = 0, -1

_encode = msgspec.json.Encoder().encode


class _User:
    """A user with a place. `broken` are its broken connections, the oldest first."""

    __slots__ = ("broken", "changed_ms", "connections", "meta", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.changed_ms = 0
        self.meta: str | None = None
        self.connections: set[str] = set()
        self.broken: OrderedDict[str, None] = OrderedDict()


class OwnMembers:
    """See the module. `now_s` is monotonic, `now_ms` since 1970."""

    def __init__(self) -> None:
        self._users: dict[str, _User] = {}
        self._user_of: dict[str, str] = {}
        # Session → user and end of its place, in the order of breaking.
        self._broken: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._changed: dict[str, None] = {}  # users to write
        self._is_lost = False  # whether everything must be written again
        self._written: dict[str, Entry] = {}  # as of the last write
        self._number = NOTHING_BEFORE  # of the last write, until Redis has confirmed that nobody is left

    def __len__(self) -> int:
        return len(self._users)

    def has(self, session: str) -> bool:
        """Return whether a connection is a member here."""
        return session in self._user_of

    def entry(self, user: str) -> Entry | None:
        """Return a user's entry, or None without one."""
        known = self._users.get(user)
        return None if known is None else Entry(len(known.connections), known.since_ms, known.changed_ms, known.meta)

    # -- connections --------------------------------------------------------------------------------------------------

    def enter(self, session: str, user: str, meta: str | None, now_ms: int, since_ms: int | None = None) -> None:
        """Add a connection as a member, or change its user's meta.

        Args:
            meta: JSON text; None leaves the meta from another page of the user.
            since_ms: when the user came, according to other processes.
        """
        known = self._users.get(user)
        if known is None:
            known = self._users[user] = _User(now_ms if since_ms is None else min(since_ms, now_ms))
        if session not in self._user_of:
            self._user_of[session] = user
            if known.broken:  # it takes the place of the oldest one
                oldest, _ = known.broken.popitem(last=False)
                del self._broken[oldest]
                known.connections.remove(oldest)
            known.connections.add(session)
        if meta is not None and meta != known.meta:
            known.meta = meta
            known.changed_ms = max(now_ms, known.changed_ms + 1)
        self._changed[user] = None

    def leave(self, session: str) -> str | None:
        """Remove a leaving connection; return its user, if it was a member."""
        user = self._user_of.pop(session, None)
        if user is not None:
            self._drop(user, session)
        return user

    def break_off(self, session: str, now_s: float) -> None:
        """Mark a connection as broken. Nothing visible changes yet."""
        user = self._user_of.pop(session, None)
        if user is not None:
            self._broken[session] = user, now_s + GRACE_S
            self._users[user].broken[session] = None

    def expire(self, now_s: float) -> list[str]:
        """End the expired places; return their users."""
        users = []
        while (end_s := self.next_end_s()) is not None and end_s <= now_s:
            session, (user, _) = self._broken.popitem(last=False)
            self._drop(user, session)
            users.append(user)
        return users

    def next_end_s(self) -> float | None:
        """Return when the next place ends."""
        return next((end_s for _, end_s in self._broken.values()), None)

    # -- writes -------------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of changes in the next write."""
        return max(len(self._users), 1) if self._is_lost else min(len(self._changed), MAX_CHANGES)

    @property
    def is_gone(self) -> bool:
        """Whether nobody is here, and Redis has confirmed it."""
        return not (self._users or self._changed or self._number)

    def write_again(self) -> None:
        """Write everything again, because Redis may have lost it."""
        self._is_lost = not self.is_gone

    def next_write(self, topic: str, process: str, number: int) -> TopicWrite | None:
        """Return the next write, with this number. None if nothing has changed in the end. `written` must follow."""
        is_whole, self._is_lost = self._is_lost, False
        users = list(self._users if is_whole else islice(self._changed, MAX_CHANGES))
        if is_whole:
            self._changed.clear()
            self._written.clear()
        puts: dict[str, Entry] = {}
        takes: list[str] = []
        for user in users:
            self._changed.pop(user, None)
            entry, before = self.entry(user), self._written.get(user)
            if entry is None:
                if before is not None:
                    takes.append(user)
                    del self._written[user]
            elif entry != before:
                puts[user] = self._written[user] = entry
        if not (puts or takes or (is_whole and self._number)):
            return None
        before_number = WHOLE if is_whole else self._number
        self._number, count = number, len(self._written)
        shown = [] if is_whole else [[user, *entry] for user, entry in puts.items()]
        message = _encode([process, before_number, number, count, shown, takes])
        values = [(user, encode_entry(entry)) for user, entry in puts.items()]
        return TopicWrite(topic, before_number, number, count, values, takes, message)

    def written(self, write: TopicWrite, *, accepted: bool) -> None:
        """Record the outcome of the last write."""
        if not accepted:
            self._is_lost = True
        elif not write.members:
            self._number = NOTHING_BEFORE

    def _drop(self, user: str, session: str) -> None:
        known = self._users[user]
        known.connections.remove(session)
        known.broken.pop(session, None)
        if not known.connections:
            del self._users[user]
        self._changed[user] = None
