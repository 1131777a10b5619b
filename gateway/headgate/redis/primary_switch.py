"""The server behind an address: when to ask for it again, and which connections a switch has left behind. No I/O, no clock.

An address leads to another server after a failover, and the old primary may live on and answer. Each connection notes the server
that it leads to (`note`): its token, or behind Sentinels its host and port. A connection that is about to be used asks for the
address again when the last answer is old (`is_due`), and closes if it has been left (`is_left`). One that only listens is closed
by the switch itself (`follow`). bounded.py does the asking. All connections of a process to one address share a switch, so the
process asks once for all. Threads may share it too: each step is one assignment.

An address that leads from one server to another and straight back, again and again, leads to two primaries: a name with both of
their addresses, say. What half of all processes publish would reach the other half only. So nothing is sent there for a while
(`is_torn`), and every caller gets an error that says why.

In a Cluster each node reports by itself which slots it does not own any more, so its connections have no switch.
"""

from __future__ import annotations

import math
import os
import weakref
from typing import Any

from headgate.addresses.redis_url import Kind, RedisUrl

# A little below the second between two fences, so that each fence of an idle gateway asks.
ASK_EVERY_S = 0.9
# Of the Sentinels, which notice a promotion 1.2 s after it at most. All are to have followed after 1.5 s.
ASK_EVERY_SENTINEL_S = 0.2
# A TLS handshake takes up to a millisecond of Redis, and hundreds of processes may share a server.
ASK_EVERY_TLS_S, ASK_EVERY_SENTINEL_TLS_S = 4.0, 0.5
# A Unix socket leads to another server only where a proxy listens on it: the system ends the connections of a server that stops.
ASK_EVERY_SOCKET_S = 5.0
# From one question to the next at least so many times as long as the first one took, with an answer and without. A process that
# got no processor for 1.5 s in the middle of a failover has an answer, and must not wait for 6 s.
ANSWERED_RATIO, PAUSE_RATIO, MAX_PAUSE_S = 2.0, 4.0, 60.0
# A user who may not ask is refused once in this time, since Redis logs each refusal.
FORBIDDEN_S = 600.0
# So many times straight back, each within so many questions or seconds: failovers take longer. Then nothing is sent for a while.
MAX_RETURNS, RETURN_WITHIN_ASKS, RETURN_WITHIN_S, TORN_S = 3, 6, 3.0, 5.0
# Switches that a process keeps; then it begins with new ones.
MAX_ADDRESSES = 1000

# A server that gives no token: its library is an older one, or this user may not ask.
UNKNOWN = ""
# A server that has no function library, as one that is empty.
NO_LIBRARY = "no library"


class PrimarySwitch:
    """The switch of one address.

    Attributes:
        server: the server that the address led to last; UNKNOWN before the first answer.
        count: how often it has become another one.
        forbidden_until_s: until when no server is asked for its token, as this user may not.
        is_locked_out: whether new connections are refused for their password.
    """

    __slots__ = (
        "_before", "_every_s", "_followers", "_next_s", "_returns", "_switched_s", "_torn_until_s",
        "count", "forbidden_until_s", "is_locked_out", "server",
    )  # fmt: skip

    def __init__(self, every_s: float = ASK_EVERY_S) -> None:
        self._every_s = every_s
        self._next_s = 0.0
        self._followers: dict[int, tuple[weakref.ref[Any], str, int]] = {}
        self._before, self._returns, self._switched_s, self._torn_until_s = UNKNOWN, 0, -math.inf, -math.inf
        self.server = UNKNOWN
        self.count = 0
        self.forbidden_until_s = 0.0
        self.is_locked_out = False

    def begin(self, now_s: float) -> None:
        """A connection is made. The first one is an answer itself."""
        self._next_s = self._next_s or now_s + self._every_s

    def is_due(self, now_s: float) -> bool:
        """Return whether the caller is to ask now. It is the only one for a while, so others need not wait for its answer."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def asked(self, began_s: float, now_s: float, *, is_answered: bool) -> None:
        """The question is over."""
        pause_s = (now_s - began_s) * (ANSWERED_RATIO if is_answered else PAUSE_RATIO)
        self._next_s = began_s + max(self._every_s, min(pause_s, MAX_PAUSE_S))

    def doubt(self) -> None:
        """Have the next caller ask: a server has refused what a primary takes."""
        self._next_s = 0.0

    def note(self, server: str, now_s: float, *, count: int, is_replica: bool = False) -> None:
        """A connection leads to this server.

        One that was made before the last switch says nothing of where the address leads now: ten of them may ask for their
        server after the first has met the new one. A replica is no place to go to: a name with several addresses may lead to one
        by turns.

        Args:
            count: that of the switch before the connection was made, or the Sentinels were asked.
        """
        before = self.server
        if server in (UNKNOWN, before) or (is_replica and before != UNKNOWN) or count != self.count:
            return
        self.server = server
        if before in (UNKNOWN, NO_LIBRARY):
            return
        self.count += 1
        within_s = max(RETURN_WITHIN_S, RETURN_WITHIN_ASKS * self._every_s)
        is_return = server == self._before and now_s - max(self._switched_s, self._torn_until_s) < within_s
        self._returns = self._returns + 1 if is_return else 0
        self._before, self._switched_s = before, now_s
        if self._returns >= MAX_RETURNS:
            self._returns, self._torn_until_s = MAX_RETURNS - 1, now_s + TORN_S  # the next return is enough
        for key, (reference, its_server, count) in list(self._followers.items()):
            follower = reference()
            if follower is None or self.is_left(its_server, count) or self.is_torn(now_s):
                self._followers.pop(key, None)
                if follower is not None:
                    follower.leave()

    def is_torn(self, now_s: float) -> bool:
        """Return whether the address leads to two primaries by turns, as of a moment ago: nothing may be sent to either."""
        return now_s < self._torn_until_s

    def is_left(self, server: str, count: int) -> bool:
        """Return whether the address leads elsewhere than a connection.

        Args:
            server: the server that it leads to.
            count: that of the switch before it was made.
        """
        return server != self.server and (count != self.count or server not in (UNKNOWN, NO_LIBRARY))

    def follow(self, follower: Any, server: str, count: int) -> None:
        """Have `follower.leave()` called when the address leads elsewhere; it must not wait. Held weakly, until `unfollow`."""
        self._followers[id(follower)] = weakref.ref(follower), server, count
        if self.is_left(server, count):  # since it was made
            self.unfollow(follower)
            follower.leave()

    def unfollow(self, follower: Any) -> None:
        """The connection is closed. Idempotent."""
        self._followers.pop(id(follower), None)

    def forget_followers(self) -> None:
        """Close none of the connections that follow now."""
        self._followers = {}


_switches: dict[RedisUrl, PrimarySwitch] = {}


def switch_of(url: RedisUrl) -> PrimarySwitch:
    """Return the switch that all connections of this process to an address share."""
    known = _switches.get(url)
    if known is None:
        if len(_switches) >= MAX_ADDRESSES:
            _switches.clear()
        if url.kind is Kind.SENTINELS:
            every_s = ASK_EVERY_SENTINEL_TLS_S if dict(url.sentinel).get("tls", url.tls) else ASK_EVERY_SENTINEL_S
        else:
            every_s = ASK_EVERY_SOCKET_S if url.kind is Kind.SOCKET else ASK_EVERY_TLS_S if url.tls else ASK_EVERY_S
        known = _switches.setdefault(url, PrimarySwitch(every_s))
    return known


def _in_child() -> None:
    """A forked child has none of its parent's links, and closing one would end the parent's."""
    for switch in _switches.values():
        switch.forget_followers()


os.register_at_fork(after_in_child=_in_child)
