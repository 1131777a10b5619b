"""Connections of redis-py that respect a call's budget (budget.py) and follow their address to another server.

In: redis-py's arguments, and a switch (primary_switch.py). Out: connections. Their `connect` and `read_response` wait no longer
than the rest of the budget. This covers each address of the host, each reply while connecting and the reply to a command, even if
it comes byte by byte (replies.py), but not name resolution, which has the system's limits. This file uses only one private name
of redis-py.

A new connection logs in, chooses its database, reports receipts and asks which server it leads to in one round trip, because
redis-py would take one for each. Over TLS it always has a reply by then: a server of TLS 1.3 refuses a certificate of its client
after the handshake.

A pool calls `connect` each time it hands a connection out. Now and then it also asks, over another connection, where the address
leads. If that question fails, the working connection stays in use. A question to a far Redis takes several round trips, and runs
in a thread while the connection works.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from inspect import signature
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

import redis
import redis.connection

from headgate.installation import native
from headgate.settings.addresses.redis_url import shown_node

from .budget import left_s, wait_s
from .faults import LOCKED_OUT, NO_FUNCTION, NO_PERMISSION, reply_of
from .primary_switch import ASK_EVERY_S, FORBIDDEN_S, NO_LIBRARY, UNKNOWN, PrimarySwitch

if TYPE_CHECKING:
    from .sentinel import Discovery

try:
    from hiredis import pack_command

    from .replies import Replies
except ImportError:  # optional for a process that only publishes, where redis-py's parser reads
    _pack: Callable[[Any], bytes] | None = None
    _parser: dict[str, Any] = {}
else:
    # redis-py calls it too, after a check of each word that takes as long.
    _pack, _parser = pack_command, {"parser_class": Replies}

_packed: Final[Callable[[object], bytes | None] | None] = native("packed")

# Limits on the question where an address leads, in seconds and as a share of the time left. The caller's own command waits for
# it.
ASK_WITHIN_S, ASK_SHARE = 0.5, 0.25
# The same in multiples of the time that the connection took to open, because a far server takes longer.
ASK_WITHIN_RATIO = 3.0
# No command waits for the question where an address leads if the connection took this long to open.
ASK_APART_S = 0.05

# The standard library's logging, as in budget.py.
log = logging.getLogger("headgate.redis")

# Without CLIENT SETINFO a connection sends two commands less, needs one right less, and sends nothing before it logs in. Before
# redis-py 8 the option has another name.
_ANONYMOUS_DRIVER: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in signature(redis.connection.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)


class Bounded:
    """The common part of the three kinds of connection.

    Args:
        switch: of the address, or None if the address always leads to one server.
        within_s: the longest wait for a reply, even if the caller's budget allows more.
        newest: the receipts to report to Redis before anything else is sent.
        discovery: finds the primary behind Sentinels, which name servers by host and port. Without it the address is known.
        username, password, db: how to log in, and the database. redis-py does not learn them.

    Attributes:
        server: the server that the connection leads to, as named in the switch.
        opened_in_s: the time that the socket took to open, which is a round trip, or more with TLS.
        ready: as `Replies.ready`; redis-py's parser has nothing ready.
    """

    _has_tls = False
    ready: Callable[[int], list[Any]] = staticmethod(lambda most: [])

    def __init__(
        self,
        *,
        switch: PrimarySwitch | None = None,
        within_s: float | None = None,
        newest: NewestReceipts | None = None,
        discovery: Discovery | None = None,
        username: str | None = None,
        password: str | None = None,
        db: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(**_parser, **_ANONYMOUS_DRIVER, **options)
        options |= {"username": username, "password": password, "db": db}
        self._login: list[Sequence[str | int]] = []
        if username or password:
            self._login.append(("AUTH", *([username] if username else []), password or ""))
        if db:
            self._login.append(("SELECT", db))
        self._discovery = discovery
        self._longest_connect_s: float = options["socket_connect_timeout"]
        self._longest_read_s: float = options["socket_timeout"]
        self._options, self._switch, self._within_s, self._newest = options, switch, within_s, newest
        self._count = 0
        self._opened_s = self.opened_in_s = 0.0
        self._is_open = self._has_asked = False
        self.server = UNKNOWN

    def connect(self) -> None:
        """Connect, unless the connection is open and its address still leads to this server.

        Any interruption closes it, so that no late reply is mistaken for the next one.

        Raises:
            redis.TimeoutError: no time is left to connect.
            redis.ConnectionError: the address leads to two primaries; or as redis-py.
        """
        try:
            self._connect_bounded()
        except BaseException as error:
            self.disconnect()
            if error.__context__ is not None:
                # A frame of redis-py in that traceback has the error in a variable. This cycle would keep the callers' frames,
                # and all that they hold, until the next full collection of a gateway (runtime/heap.py).
                error.__context__.__traceback__ = None
            raise

    def _connect_bounded(self) -> None:
        switch = self._switch
        if switch is not None and switch.is_torn(monotonic()):
            raise redis.ConnectionError("it leads to two Redis primaries by turns: make it lead to one")
        if self._is_open:
            if switch is None or not self._is_left(switch):
                return
            self.disconnect()
        untyped: Any = self
        left = left_s()
        if left is not None:
            if left <= 0:
                raise redis.TimeoutError("no time left to connect")
            untyped.socket_connect_timeout = min(self._longest_connect_s, left)
        if switch is not None:
            self._opened_s, self._count = monotonic(), switch.count
        if self._discovery is not None:
            untyped.host, untyped.port = primary = self._discovery.primary()
            self.server = shown_node(primary)
            if switch is not None:
                switch.note(self.server, monotonic(), count=self._count)
        began_s = monotonic()
        super().connect()  # type: ignore[misc]
        self.opened_in_s, self._has_asked = monotonic() - began_s, False
        if not self._has_tls and self.can_read(0):  # type: ignore[attr-defined]
            # Redis speaks first only to refuse (too many clients, protected mode), which raises here. Anything else is not
            # Redis.
            self.read_response()
            raise redis.InvalidResponse("it sent data before any command")
        words = self._newest_words()
        if self._login or words or self._has_tls:
            self._introduce(words)
        if switch is not None:
            switch.begin(self._opened_s)
        self._is_open = True

    def disconnect(self, *args: Any, **options: Any) -> None:
        """Close the connection. A later `connect` opens a new one."""
        self._is_open = False
        super().disconnect(*args, **options)  # type: ignore[misc]

    def pack_commands(self, commands: Sequence[Sequence[Any]]) -> Any:
        """Encode commands for Redis. C leaves words that are no text, bytes or number of 64 bits, and names of two words."""
        if _packed is not None and (data := _packed(commands)) is not None:
            return [data]
        # redis-py splits a name such as SENTINEL MASTERS into two words.
        if _pack is None or any(" " in command[0] for command in commands if isinstance(command[0], str)):
            return super().pack_commands(commands)  # type: ignore[misc]
        # While hiredis 3.5 formats a number, a signal handler that raises (Ctrl-C, a time limit of Celery) ends the process.
        return [b"".join([_pack(tuple([str(word) if isinstance(word, int) else word for word in each])) for each in commands])]

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Return the next reply. Any interruption closes the connection.

        Raises redis.TimeoutError if the reply has not begun within the budget.
        """
        wait = wait_s(self._longest_read_s) if self._within_s is None else self._within_s
        try:
            if wait is not None and not self.can_read(wait):  # type: ignore[attr-defined]
                raise redis.TimeoutError("no time left for the reply")
        except BaseException:
            self.disconnect()
            raise
        return super().read_response(*args, **options)  # type: ignore[misc]

    def follow_switch(self, follower: Any) -> PrimarySwitch | None:
        """Call `follower.leave()` once the address leads elsewhere than this connection. Return the switch."""
        if self._switch is not None:
            self._switch.follow(follower, self.server, self._count)
        return self._switch

    def ask_server(self) -> None:
        """Ask once which server this connection leads to, and note it, unless the Sentinels have named it.

        Raises redis.RedisError or OSError without an answer.
        """
        if not self._has_asked:
            self._introduce(())

    def _introduce(self, words: Sequence[str | int]) -> None:
        """Log in unless that has happened, report receipts, and ask for the server, in one round trip."""
        switch, commands = self._switch, [] if self._is_open else list(self._login)
        if switch is not None and (self._discovery is not None or switch.forbidden_until_s > monotonic()):
            switch = None
        untyped: Any = self
        if words or switch is not None:
            commands.append(("FCALL_RO", "headgate_version", 0, "server", *words, *([] if switch is None else [switch.server])))
        elif not commands:
            if self._is_open or not self._has_tls:
                return
            commands.append(("PING",))
        untyped.send_packed_command(self.pack_commands(commands))
        for _ in self._login if not self._is_open else ():
            self.read_response()
        if commands == [("PING",)]:
            with suppress(redis.ResponseError):  # this user may not send it
                self.read_response()
        if not words and switch is None:
            return
        server, is_replica = UNKNOWN, False
        try:
            reply = self.read_response()
            if isinstance(reply, list) and len(reply) == 3:  # an older library replies otherwise
                server, is_replica = reply[1].decode("ascii", "replace"), bool(reply[2])
        except redis.ResponseError as error:
            code = reply_of(error)[0]
            for each in (self._newest, switch) if code == NO_PERMISSION else ():
                if each is not None:
                    each.forbidden_until_s = monotonic() + FORBIDDEN_S
            server = NO_LIBRARY if code == NO_FUNCTION else UNKNOWN
        if switch is not None:
            self.server, self._has_asked = server, True
            switch.note(server, monotonic(), count=self._count, is_replica=is_replica)

    def _newest_words(self) -> Sequence[str | int]:
        newest = self._newest
        return newest.words() if newest is not None and newest.forbidden_until_s <= monotonic() else ()

    def _is_left(self, switch: PrimarySwitch) -> bool:
        """Return whether the address leads elsewhere. Ask if the last answer is too old."""
        now_s = monotonic()
        is_due = switch.is_due(now_s)
        if is_due or (not self._has_asked and now_s - self._opened_s > ASK_EVERY_S):
            left = left_s()
            usual_s = ASK_WITHIN_S if left is None else left * ASK_SHARE
            within_s = max(usual_s, ASK_WITHIN_RATIO * self.opened_in_s)
            within_s = max(0.0, min(within_s, self._longest_connect_s, within_s if left is None else left))
            try:
                self._within_s = within_s
                self.ask_server()
            except (redis.RedisError, OSError):
                return True  # without an answer the connection is useless
            finally:
                self._within_s = None
            if is_due and self.opened_in_s > ASK_APART_S:
                switch.asked(now_s, now_s + within_s, is_answered=True)  # until the thread knows better
                # In an empty context, as the budget of this call is not the thread's.
                with suppress(RuntimeError):  # the system has no more threads, or the program ends: it asks again later
                    Thread(target=Context().run, args=(self._ask_where, switch, now_s, within_s), daemon=True).start()
            elif is_due:
                self._ask_where(switch, now_s, within_s)
        return switch.is_left(self.server, self._count)

    def _ask_where(self, switch: PrimarySwitch, began_s: float, within_s: float) -> None:
        """Ask where the address leads, and note when to ask again."""
        is_answered = self._ask_address(switch, within_s)
        if is_answered is not None:
            switch.asked(began_s, monotonic(), is_answered=is_answered)

    def _ask_address(self, switch: PrimarySwitch, within_s: float) -> bool | None:
        """Ask a Sentinel, or over a new connection, where the address leads, and note it.

        Return whether there was an answer, or None if there was none and another server can be asked at once.
        """
        if self._discovery is not None:
            count, primary = switch.count, self._discovery.newer_primary(within_s)
            if primary is None:
                return None if self._discovery.awake() else False
            switch.note(shown_node(primary), monotonic(), count=count)
            return True
        if switch.forbidden_until_s > monotonic():
            return True
        options = {**self._options, "socket_timeout": within_s, "socket_connect_timeout": within_s}
        beside: Any = type(self)(switch=switch, within_s=within_s, newest=self._newest, **options)
        try:
            beside.connect()
            beside.ask_server()
        except (redis.RedisError, OSError) as error:
            # If an operator changes the password at Redis first, open connections must continue to work.
            if reply_of(error)[0] in LOCKED_OUT and not switch.is_locked_out:
                switch.is_locked_out = True
                log.warning(
                    "Redis refuses the password (%s): open connections continue; restart this process with the new password",
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


class Connection(Bounded, redis.Connection):
    """Over TCP."""


class TlsConnection(Bounded, redis.SSLConnection):
    """Over TLS. Connections with the same TLS options share a context until one of them is closed by its server.

    redis-py makes a context for each connection, which reads the authorities of the system and so blocks the loop for 37 ms.
    """

    _has_tls = True

    def connect(self) -> None:
        try:
            super().connect()
        except redis.ConnectionError as error:
            # The next one reads its files again, which may have been renewed. While nothing listens there, that helps nothing.
            if not isinstance(error.__context__, ConnectionRefusedError | socket.gaierror):
                _contexts.pop(self._context_key(), None)
            raise

    # A private name of redis-py after 5.0, as it has no option for a context (tests/contract/test_redis_py_corners.py).
    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        context, untyped = _contexts.get(self._context_key()), cast(Any, self)
        if context is not None:
            return context.wrap_socket(sock, server_hostname=untyped.host)
        wrapped: ssl.SSLSocket = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        if len(_contexts) >= MAX_CONTEXTS:
            _contexts.clear()
        _contexts[self._context_key()] = wrapped.context
        return wrapped

    def _context_key(self) -> str:
        return repr(sorted((name, value) for name, value in self._options.items() if name.startswith("ssl_")))


class SocketConnection(Bounded, redis.UnixDomainSocketConnection):
    """Over a Unix socket."""


# By TLS options.
_contexts: dict[str, ssl.SSLContext] = {}
MAX_CONTEXTS = 64

# The most epochs. Beyond that the earliest is dropped, because gateways and other publishers report, too.
MAX_EPOCHS = 64


class NewestReceipts:
    """The newest receipt of each epoch, of any log. No I/O, no clock. Threads may share it, because each step is an assignment.

    A snapshot of a machine reverts a Redis together with its memory, and Redis itself cannot detect that. A publisher can,
    because it has receipts that Redis no longer remembers. The revert breaks its connections, so each new connection reports
    the newest receipts before its first command. Redis begins another epoch if it does not remember one of them (log.lua).

    Attributes:
        forbidden_until_s: the time until which it reports nothing, because this Redis user may not.
    """

    __slots__ = ("_by_epoch", "forbidden_until_s")

    def __init__(self) -> None:
        self._by_epoch: dict[str, int] = {}
        self.forbidden_until_s = 0.0

    def note(self, epoch: str, offset: int) -> None:
        """Note the receipt of a new event."""
        if offset > self._by_epoch.get(epoch, 0):
            self._by_epoch[epoch] = offset
            if len(self._by_epoch) > MAX_EPOCHS:
                self._by_epoch.pop(list(self._by_epoch)[0], None)  # noqa: RUF015 - an iterator would meet another thread

    def words(self) -> list[str | int]:
        """Return each epoch and its offset."""
        return [word for receipt in list(self._by_epoch.items()) for word in receipt]
