"""Decides when to ask again for the server at an address, and which connections lead to a former one. No I/O, no clock.

After a failover an address leads to another server, and the old primary may continue to answer. Each connection notes its
server (`note`): the token or, with Sentinels, host and port. Before use, a connection asks again where the address leads if the
last answer is old (`is_due`), and closes if the address has left its server (`is_left`). The switch itself closes a connection
that only listens (`follow`). bounded.py asks the servers. All connections of a process to one address share a switch, so the
process asks once for all. Threads may share it too, because each step is one assignment.

An address that alternates between two servers leads to two primaries; for example, a name with the addresses of both. Half of
all processes would then publish to one of them, unseen by the other half. So the switch blocks the address for a while
(`is_torn`), and every caller gets an error with the reason.

In a Cluster each node reports the slots that it no longer owns, so its connections have no switch.
"""

from __future__ import annotations

import math
import os
import weakref
from typing import Any

from headgate.settings.addresses.redis_url import RedisKind, RedisUrl

# A little below the second between two fences, so that each fence of an idle gateway asks.
ASK_EVERY_S = 0.9
# For Sentinels, which notice a promotion after 1.2 s at most. All connections should follow within 1.5 s.
ASK_EVERY_SENTINEL_S = 0.2
# A TLS handshake takes up to a millisecond of Redis, and hundreds of processes may share a server.
ASK_EVERY_TLS_S, ASK_EVERY_SENTINEL_TLS_S = 4.0, 0.5
# A Unix socket leads to another server only if a proxy listens on it, because the system ends the connections of a stopped
# server.
ASK_EVERY_SOCKET_S = 5.0
# The least pause after a question, in multiples of its duration, with an answer and without. A process that got no CPU for 1.5
# s during a failover has an answer, and must not wait for 6 s.
ANSWERED_RATIO, PAUSE_RATIO, MAX_PAUSE_S = 2.0, 4.0, 60.0
# How often a user without the right may ask, since Redis logs each refusal.
FORBIDDEN_S = 600.0
# After this many returns, each within this many questions or seconds, the address is blocked for a while. Failovers take
# longer.
MAX_RETURNS, RETURN_WITHIN_ASKS, RETURN_WITHIN_S, TORN_S = 3, 6, 3.0, 5.0
# Switches that a process keeps. Beyond that it starts again with none.
MAX_ADDRESSES = 1000

# A server without a token, because its library is too old or this user may not ask.
UNKNOWN = ""
# A server without a function library, such as an empty one.
NO_LIBRARY = "no library"


class PrimarySwitch:
    """The switch of one address.

    Attributes:
        server: the last known server of the address; UNKNOWN before the first answer.
        count: the number of changes of server.
        forbidden_until_s: the time until which no server is asked for its token, because this user may not ask.
        is_locked_out: whether Redis refuses the password of new connections.
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
        """Note the start of a connection. The first one counts as an answer."""
        self._next_s = self._next_s or now_s + self._every_s

    def is_due(self, now_s: float) -> bool:
        """Return whether the caller should ask now. For a while no other caller should, so that the others do not wait."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def asked(self, began_s: float, now_s: float, *, is_answered: bool) -> None:
        """Note the end of a question."""
        pause_s = (now_s - began_s) * (ANSWERED_RATIO if is_answered else PAUSE_RATIO)
        self._next_s = began_s + max(self._every_s, min(pause_s, MAX_PAUSE_S))

    def doubt(self) -> None:
        """Make the next caller ask, because a server has refused a command that a primary accepts."""
        self._next_s = 0.0

    def note(self, server: str, now_s: float, *, count: int, is_replica: bool = False) -> None:
        """Note the server of a connection.

        A connection from before the last switch does not show where the address leads now. Ten old ones may ask for their
        server after the first has met the new one. A replica is not a target either, since a name with several addresses may
        lead to one by turns. `count`: the switch's `count` before the connection was made, or before the Sentinels were asked.
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
            self._returns, self._torn_until_s = MAX_RETURNS - 1, now_s + TORN_S  # one more return suffices
        for key, (reference, its_server, count) in list(self._followers.items()):
            follower = reference()
            if follower is None or self.is_left(its_server, count) or self.is_torn(now_s):
                self._followers.pop(key, None)
                if follower is not None:
                    follower.leave()

    def is_torn(self, now_s: float) -> bool:
        """Return whether the address has just alternated between two primaries, so that nothing may be sent to either."""
        return now_s < self._torn_until_s

    def is_left(self, server: str, count: int) -> bool:
        """Return whether the address leads elsewhere than a connection.

        Args:
            server: the server of the connection.
            count: the switch's `count` before the connection was made.
        """
        return server != self.server and (count != self.count or server not in (UNKNOWN, NO_LIBRARY))

    def follow(self, follower: Any, server: str, count: int) -> None:
        """Call `follower.leave()`, which must not wait, once the address leads elsewhere. Held weakly until `unfollow`."""
        self._followers[id(follower)] = weakref.ref(follower), server, count
        if self.is_left(server, count):  # the switch came before `follow`
            self.unfollow(follower)
            follower.leave()

    def unfollow(self, follower: Any) -> None:
        """Stop following, because the connection is closed. Idempotent."""
        self._followers.pop(id(follower), None)

    def forget_followers(self) -> None:
        """Stop following for all connections, without closing them."""
        self._followers = {}


_switches: dict[RedisUrl, PrimarySwitch] = {}


def switch_of(url: RedisUrl) -> PrimarySwitch:
    """Return the switch that all connections of this process to an address share."""
    known = _switches.get(url)
    if known is None:
        if len(_switches) >= MAX_ADDRESSES:
            _switches.clear()
        if url.kind is RedisKind.SENTINELS:
            every_s = ASK_EVERY_SENTINEL_TLS_S if dict(url.sentinel).get("tls", url.tls) else ASK_EVERY_SENTINEL_S
        else:
            every_s = ASK_EVERY_SOCKET_S if url.kind is RedisKind.SOCKET else ASK_EVERY_TLS_S if url.tls else ASK_EVERY_S
        known = _switches.setdefault(url, PrimarySwitch(every_s))
    return known


def _in_child() -> None:
    """Forget the parent's followers in a forked child. Closing one there would end the parent's link."""
    for switch in _switches.values():
        switch.forget_followers()


os.register_at_fork(after_in_child=_in_child)
