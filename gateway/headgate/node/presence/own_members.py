"""The members of one topic connected to this process, and the places kept for broken connections. No I/O.

In: connections (by session) that enter, leave or break, and the clock. Out: an `Entry` for each user, and the users whose entry
has changed.

A connection is HERE or BROKEN. A broken one counts for GRACE_S. A new connection of the same user takes its place, so a page that
reconnects within that time causes no visible change.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from headgate.redis.presence_entries import Entry
from headgate.runtime.machine import Machine

# A page that does not reconnect within this time has left.
GRACE_S = 5.0


class Place(Enum):
    """The state of a connection's place."""

    HERE = "here"
    BROKEN = "broken"
    GONE = "gone"


class Step(Enum):
    """An event in the life of a place."""

    BREAK = "break"
    LEAVE = "leave"
    RETURN = "return"
    EXPIRE = "expire"


_MACHINE = Machine(
    "place of a connection",
    {
        (Place.HERE, Step.BREAK): Place.BROKEN,
        (Place.HERE, Step.LEAVE): Place.GONE,
        (Place.BROKEN, Step.RETURN): Place.GONE,  # the new connection takes its place
        (Place.BROKEN, Step.EXPIRE): Place.GONE,
    },
)


class _Connection:
    __slots__ = ("ends_s", "place")

    def __init__(self) -> None:
        self.place = Place.HERE
        self.ends_s = 0.0

    def step(self, step: Step) -> None:
        self.place = _MACHINE[self.place, step]


class _User:
    __slots__ = ("changed_ms", "connections", "meta", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.changed_ms = 0
        self.meta: str | None = None
        self.connections: dict[str, _Connection] = {}


class OwnMembers:
    """See the module. `now_s` is monotonic, `now_ms` since 1970."""

    def __init__(self) -> None:
        self._users: dict[str, _User] = {}
        self._user_of: dict[str, str] = {}
        # Session → user in the order of breaking, in total and per user, so that the oldest is found at once.
        self._broken: OrderedDict[str, str] = OrderedDict()
        self._broken_of: dict[str, OrderedDict[str, str]] = {}

    def __len__(self) -> int:
        return len(self._users)

    def users(self) -> list[str]:
        """Return the users with a place."""
        return list(self._users)

    def has(self, session: str) -> bool:
        """Return whether a connection is a member here."""
        return session in self._user_of

    def entry(self, user: str) -> Entry | None:
        """Return a user's entry, or None without one."""
        found = self._users.get(user)
        return None if found is None else Entry(len(found.connections), found.since_ms, found.changed_ms, found.meta)

    def enter(self, session: str, user: str, meta: str | None, now_ms: int, since_ms: int | None = None) -> None:
        """Add a connection as a member, or change its user's meta.

        Args:
            meta: JSON text; None leaves what another page of the user has set.
            since_ms: when the user came, as other processes know it.
        """
        found = self._users.get(user)
        if found is None:
            found = self._users[user] = _User(now_ms if since_ms is None else min(since_ms, now_ms))
        if session not in self._user_of:
            self._user_of[session] = user
            if user in self._broken_of:
                oldest = next(iter(self._broken_of[user]))
                found.connections.pop(oldest).step(Step.RETURN)
                self._forget_broken(oldest)
            found.connections[session] = _Connection()
        if meta is not None and meta != found.meta:
            found.meta = meta
            found.changed_ms = max(now_ms, found.changed_ms + 1)

    def leave(self, session: str) -> str | None:
        """Remove a connection that has left; return its user, if it was a member."""
        user = self._user_of.pop(session, None)
        if user is not None:
            self._users[user].connections[session].step(Step.LEAVE)
            self._drop(user, session)
        return user

    def break_off(self, session: str, now_s: float) -> None:
        """Mark a connection as broken. Nothing visible changes yet."""
        user = self._user_of.pop(session, None)
        if user is not None:
            connection = self._users[user].connections[session]
            connection.step(Step.BREAK)
            connection.ends_s = now_s + GRACE_S
            self._broken[session] = user
            self._broken_of.setdefault(user, OrderedDict())[session] = user

    def expire(self, now_s: float) -> list[str]:
        """End the expired places; return their users."""
        users = []
        for session, user in list(self._broken.items()):
            connection = self._users[user].connections[session]
            if connection.ends_s > now_s:
                break
            connection.step(Step.EXPIRE)
            self._forget_broken(session)
            self._drop(user, session)
            users.append(user)
        return users

    def next_end_s(self) -> float | None:
        """Return when the next place ends."""
        for session, user in self._broken.items():
            return self._users[user].connections[session].ends_s
        return None

    def _forget_broken(self, session: str) -> None:
        user = self._broken.pop(session)
        del self._broken_of[user][session]
        if not self._broken_of[user]:
            del self._broken_of[user]

    def _drop(self, user: str, session: str) -> None:
        found = self._users[user]
        del found.connections[session]
        if not found.connections:
            del self._users[user]
