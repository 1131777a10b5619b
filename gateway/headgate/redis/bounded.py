"""Connections of redis-py that keep within the budget of the call that uses them (budget.py), and leave a server that their
address leads to no more (primary_switch.py). Public names of redis-py only.

In: redis-py's own arguments, and a switch. Out: connections whose `connect` and `read_response` wait no longer than what is left
of the budget: for each address of the host, for each reply while connecting (AUTH, SELECT), and for the reply to a command. The
system resolves names, and has limits of its own for that.

A pool calls `connect` each time that it hands a connection out. One that has been open for a while asks which server it leads to,
and now and then, over another connection, where the address leads. A question that fails changes nothing: what works is not given
up for what does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import redis

from .budget import left_s, wait_s
from .faults import LOCKED_OUT, NO_FUNCTION, NO_PERMISSION, reply_of
from .newest import NewestReceipts
from .primary_switch import ASK_EVERY_S, FORBIDDEN_S, NO_LIBRARY, UNKNOWN, PrimarySwitch

try:
    from hiredis import pack_command
except ImportError:  # a process that only publishes need not have it
    _pack: Callable[[Any], bytes] | None = None
else:
    # redis-py calls it too, after a look at each word that takes as long.
    _pack = pack_command

# Where an address leads now is a question beside the caller's own: it may take so long, and so much of what is left.
ASK_WITHIN_S, ASK_SHARE = 0.5, 0.25

# The standard library's, as a publisher's (budget.py).
log = logging.getLogger("headgate.redis")


class Bounded:
    """What the three kinds of connection share.

    Args:
        switch: of the address; None: the address always leads to one server.
        within_s: it waits no longer for a reply, whatever the caller's budget allows.
        newest: what it reports to Redis before anything else is sent.

    Attributes:
        server: the server that it leads to, as its switch knows it.
    """

    def __init__(
        self,
        *,
        switch: PrimarySwitch | None = None,
        within_s: float | None = None,
        newest: NewestReceipts | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._longest_connect_s: float = options["socket_connect_timeout"]
        self._longest_read_s: float = options["socket_timeout"]
        self._options, self._switch, self._within_s, self._newest = options, switch, within_s, newest
        self._count = 0
        self._opened_s = 0.0
        self._is_open = self._has_asked = False
        self.server = UNKNOWN

    def connect(self) -> None:
        """Connect, unless it is connected to the server that the address leads to.

        Raises:
            redis.TimeoutError: there is no time left to connect.
            redis.ConnectionError: the address leads to two primaries; or as redis-py.
        """
        switch = self._switch
        if switch is not None and switch.is_torn(monotonic()):
            self.disconnect()
            raise redis.ConnectionError("it leads to two Redis primaries by turns: let it lead to one")
        if self._is_open:
            if switch is None or not self._is_left(switch):
                super().connect()  # type: ignore[misc]
                return
            self.disconnect()
        left = left_s()
        if left is not None:
            if left <= 0:
                raise redis.TimeoutError("no time left to connect")
            untyped: Any = self
            untyped.socket_connect_timeout = min(self._longest_connect_s, left)
        if switch is not None:
            self._opened_s, self._count = monotonic(), switch.count
        self._find_server()
        super().connect()  # type: ignore[misc]
        if self.can_read(0):  # type: ignore[attr-defined]
            # Redis speaks first only to refuse (too many clients, protected mode): that is raised here. All else is no Redis.
            self.read_response()
            raise redis.InvalidResponse("it speaks first")
        self._report_newest()
        if switch is not None:
            switch.begin(self._opened_s)
        self._is_open, self._has_asked = True, False

    def disconnect(self, *args: Any, **options: Any) -> None:
        """Close the connection; a later `connect` opens a new one."""
        self._is_open = False
        super().disconnect(*args, **options)  # type: ignore[misc]

    def pack_commands(self, commands: Sequence[Sequence[Any]]) -> Any:
        """Return commands as Redis reads them."""
        # redis-py makes two words of a name such as SENTINEL MASTERS.
        if _pack is None or any(" " in command[0] for command in commands if isinstance(command[0], str)):
            return super().pack_commands(commands)  # type: ignore[misc]
        return [b"".join([_pack(tuple(command)) for command in commands])]

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Return the next reply. Raises redis.TimeoutError when it has not begun within the budget."""
        wait = wait_s(self._longest_read_s) if self._within_s is None else self._within_s
        if wait is not None and not self.can_read(wait):  # type: ignore[attr-defined]
            self.disconnect()
            raise redis.TimeoutError("no time left for the reply")
        return super().read_response(*args, **options)  # type: ignore[misc]

    def follow_switch(self, follower: Any) -> PrimarySwitch | None:
        """Have `follower.leave()` called when the address leads elsewhere than this connection; return its switch."""
        if self._switch is not None:
            self._switch.follow(follower, self.server, self._count)
        return self._switch

    def ask_server(self) -> None:
        """Ask which server this connection leads to, if it has not been asked, and note it.

        Raises:
            redis.RedisError, OSError: no answer.
        """
        switch = self._switch
        if switch is None or self._has_asked or switch.forbidden_until_s > monotonic():
            return
        untyped: Any = self
        untyped.send_command("FCALL_RO", "headgate_version", 0, "server", switch.server)
        self.server, is_replica = UNKNOWN, False
        try:
            reply = self.read_response()
            if isinstance(reply, list) and len(reply) == 3:  # else the library is older
                self.server, is_replica = reply[1].decode("ascii", "replace"), bool(reply[2])
        except redis.ResponseError as error:
            code = reply_of(error)[0]
            if code == NO_PERMISSION:
                switch.forbidden_until_s = monotonic() + FORBIDDEN_S
            self.server = NO_LIBRARY if code == NO_FUNCTION else UNKNOWN
        self._has_asked = True
        switch.note(self.server, monotonic(), count=self._count, is_replica=is_replica)

    def _report_newest(self) -> None:
        newest = self._newest
        if newest is None or newest.forbidden_until_s > monotonic() or not (words := newest.words()):
            return
        untyped: Any = self
        untyped.send_command("FCALL_RO", "headgate_version", 0, "server", *words)
        try:
            self.read_response()
        except redis.ResponseError as error:
            if reply_of(error)[0] == NO_PERMISSION:
                newest.forbidden_until_s = monotonic() + FORBIDDEN_S

    def _is_left(self, switch: PrimarySwitch) -> bool:
        """Return whether the address leads elsewhere; ask, if it is time."""
        now_s = monotonic()
        is_due = switch.is_due(now_s)
        if is_due or (not self._has_asked and now_s - self._opened_s > ASK_EVERY_S):
            left = left_s()
            within_s = min(ASK_WITHIN_S, self._longest_connect_s, max(0.0, ASK_WITHIN_S if left is None else left * ASK_SHARE))
            try:
                self._within_s = within_s
                self.ask_server()
            except (redis.RedisError, OSError):
                return True  # it does not answer: no use for anything else either
            finally:
                self._within_s = None
            if is_due:
                is_answered = self._ask_address(switch, within_s)
                if is_answered is not None:
                    switch.asked(now_s, monotonic(), is_answered=is_answered)
        return switch.is_left(self.server, self._count)

    def _ask_address(self, switch: PrimarySwitch, within_s: float) -> bool | None:
        """Ask where the address leads, and note it: over a new connection.

        Return whether there was an answer; None: there was none, and somebody else can be asked at once.
        """
        if switch.forbidden_until_s > monotonic():
            return True
        options = {**self._options, "socket_timeout": within_s, "socket_connect_timeout": within_s}
        beside: Any = type(self)(switch=switch, within_s=within_s, newest=self._newest, **options)
        try:
            beside.connect()
            beside.ask_server()
        except (redis.RedisError, OSError) as error:
            # A password that is changed in one step, at Redis first, must not end what works.
            if reply_of(error)[0] in LOCKED_OUT and not switch.is_locked_out:
                switch.is_locked_out = True
                log.warning(
                    "Redis refuses the password (%s): open connections go on; give this process the new one and start it again",
                    error,
                )
            return False
        else:
            if switch.is_locked_out:
                switch.is_locked_out = False
                log.warning("Redis takes the password again")
            return True
        finally:
            beside.disconnect()

    def _find_server(self) -> None:
        """Set host and port, where they are not known before."""


class Connection(Bounded, redis.Connection):
    """Over TCP."""


class TlsConnection(Bounded, redis.SSLConnection):
    """Over TLS."""


class SocketConnection(Bounded, redis.UnixDomainSocketConnection):
    """Over a Unix socket."""
