"""The members of one topic connected to this process, and the places kept for broken connections. No I/O.

In: connections (by session) that enter, leave or break, and the clock. Out: an `Entry` for each user, and the users with a
changed entry.

A broken connection counts for GRACE_S. A new connection of the same user takes its place, so a page that reconnects within that
time causes no visible change.
"""

from __future__ import annotations

from collections import OrderedDict

from headgate.redis.presence_entries import Entry

# A page that does not reconnect within this time has left.
GRACE_S = 5.0


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
        known = self._users.get(user)
        return None if known is None else Entry(len(known.connections), known.since_ms, known.changed_ms, known.meta)

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

    def _drop(self, user: str, session: str) -> None:
        known = self._users[user]
        known.connections.remove(session)
        known.broken.pop(session, None)
        if not known.connections:
            del self._users[user]
