"""The two ends of a Redis that the bus holds, in memory: the subscriber connection, and the log over a command connection.

Both talk to a `ModelServer`: the model of tests/support/model_redis.py, with the faults of a server and of a network.
tests/contract/test_bus_links.py holds both to the real ends, on a real Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.redis.keys import log_key
from headgate.redis.lineage import Entry, Head
from headgate.redis.log import DEFAULT_MAX_BYTES, PAGE_EVENTS, RawEntry, decode_head
from headgate.runtime.loop import Signal, sleep
from tests.support.model_redis import NAMESPACE, TIME_MS, ModelRedis
from tests.support.raw_log import RawLog, raw_entry, raw_event

Command = Sequence[str | bytes | int]


class ModelServer:
    """A Redis that can be unreachable, stand still, refuse commands, or cut its subscriber off.

    Attributes:
        redis: its data.
        away: nothing listens there.
        refusal: the answer to every command of the next subscriber connections; None: none.
        attempts: how often a client has connected, or tried to.
        ran: the commands of subscriber connections, in order.
        full: the subscriber's connection takes no more bytes.
    """

    def __init__(self, redis: ModelRedis | None = None, signal: Callable[[], Any] = Signal) -> None:
        self.redis = redis or ModelRedis()
        self.signal = signal
        self.away = self.full = self.stopped = False
        self.refusal: Callable[[tuple[bytes, ...]], BusRefused | None] = lambda command: None
        self.attempts = 0
        self.opens_in_s, self.eviction_policy = 0.0, ""
        self.ran: list[tuple[bytes, ...]] = []
        self.moved: Any = signal()  # replaced by another whenever something has happened here
        self._subscriber: ModelLink | None = None
        self._waiting: list[tuple[bytes, ...]] = []
        self.redis.on_sent = self.stir

    def link(
        self, url: str = "", connect_timeout_s: float = 5.0, *, key: str | None = None, arrivals: object = None
    ) -> ModelLink:
        """Return a subscriber connection, not connected yet. The signature of `SubscriberLink`."""
        return ModelLink(self, turns=arrivals is not None)

    def log(self, timeout_s: float = 30.0) -> ModelLog:
        return ModelLog(self, timeout_s)

    def stop(self) -> None:
        """Stand still, so that connections stay, and nothing answers."""
        self.stopped = True

    def go_on(self) -> None:
        """Work off the commands from in between."""
        self.stopped = False
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            self._run(command)
        self.stir()

    def leave(self) -> None:
        """Be unreachable, and cut off all connections."""
        self.away = True
        self.cut()

    def cut(self) -> None:
        """Close the subscriber connection from this end. Replies on their way are lost."""
        if self._subscriber is not None:
            self._subscriber.lost = unavailable("closed the connection")
            self._forget()
        self.stir()

    def check(self) -> None:
        if self.away:
            raise unavailable("connection refused")

    def stir(self) -> None:
        moved, self.moved = self.moved, self.signal()
        moved.set()

    def taken(self, link: ModelLink) -> None:
        self.cut()
        self.redis.connect()
        self._subscriber = link

    def closed(self, link: ModelLink) -> None:
        if self._subscriber is link:
            self._forget()
        self.stir()

    def receive(self, link: ModelLink, command: tuple[bytes, ...]) -> None:
        """Take a command of a subscriber, at once, or when it goes on."""
        if self.stopped:
            self._waiting.append(command)
        else:
            self._run(command)

    def _run(self, command: tuple[bytes, ...]) -> None:
        self.ran.append(command)
        refusal = self.refusal(command)
        if refusal is None and command[0] == b"FCALL_RO":
            self.redis.sent.append(_as_reply(self.redis.link_head()))
            self.stir()
        elif refusal is None:
            self.redis.run(command)
        elif self._subscriber is not None:
            self._subscriber.lost = refusal
            self.stir()

    def _forget(self) -> None:
        self._subscriber = None
        self._waiting.clear()
        self.redis.disconnect()


class ModelLink:
    """`SubscriberLink` on a `ModelServer`. `turns`: without a timeout, a turn of the loop goes by in each read."""

    def __init__(self, server: ModelServer, *, turns: bool = False) -> None:
        self._server, self._turns = server, turns
        self.opened_in_s = server.opens_in_s
        self._timeout_s: float | None = None
        self._open = self._closed = False
        self.lost: HeadgateError | None = None

    def connect(self) -> None:
        """Connect. A stopped server takes connections nevertheless, as its kernel does."""
        if self._closed:
            raise unavailable("the connection is closed")
        self._server.attempts += 1
        self._server.check()
        self._server.taken(self)
        self._open = True

    def send(self, *commands: Command) -> None:
        """Write commands; wait while the connection takes no more bytes."""
        self._check()
        while self._server.full:
            self._wait()
        for command in commands:
            self._server.receive(self, tuple(_encoded(word) for word in command))

    def read(self) -> list[Any]:
        if self._turns and self._timeout_s is None:
            sleep()
        while not (replies := self.read_ready()):
            self._wait()
        return replies

    def read_ready(self) -> list[Any]:
        self._check()
        replies = [] if self._server.stopped else list(self._server.redis.sent)
        if replies:
            self._server.redis.sent.clear()
        return replies

    def settimeout(self, timeout_s: float | None) -> None:
        self._check(closed_only=True)
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close it, and wake the reader. Idempotent; it never connects again."""
        self._closed = True
        if self._open:
            self._open = False
            self._server.closed(self)

    def _check(self, *, closed_only: bool = False) -> None:
        if not self._open:
            raise unavailable("the connection is closed")
        if self.lost is not None and not closed_only:
            raise self.lost

    def _wait(self) -> None:
        if not self._server.moved.wait(self._timeout_s):
            raise unavailable("did not answer in time")
        self._check()


class ModelLog(RawLog):
    """`EventLog` on a `ModelServer`. `timeout_s` limits each answer, as the command connection's does."""

    database = 0

    def __init__(self, server: ModelServer, timeout_s: float) -> None:
        super().__init__()
        self._server, self._timeout_s, self.eviction_policy = server, timeout_s, server.eviction_policy

    def drop_idle(self) -> None:
        """Every command starts again here."""

    def check_primary(self) -> None:
        """The address leads to one server here."""

    def share_of_memory(self, namespaces: int) -> int:
        """Return the bytes that a log may take."""
        self._answering()
        return DEFAULT_MAX_BYTES

    def configure(self, max_events: int, max_age_s: int, max_bytes: int | None = None, *, sharded: bool = False) -> Head:
        """Store the retention; begin an epoch if there is none."""
        redis = self._answering()
        redis.max_events = max_events
        return redis.configure()

    def head(self, *known: str | int) -> Head:
        """Return where the log stands."""
        redis = self._answering()
        return redis.head(*(known or (redis.epoch,)))

    def head_command(self) -> tuple[str | int, ...]:
        return ("FCALL_RO", "headgate_head", 1, log_key(NAMESPACE))

    def read_head(self, reply: list[Any]) -> Head:
        """Decode the reply to it."""
        return decode_head(reply)

    def page(self, after: int, upto: int | None, limit: int = PAGE_EVENTS, *, epoch: str | None = None) -> list[Entry]:
        """Return the entries of a range."""
        redis = self._answering()
        return redis.page(after, redis.offset if upto is None else upto, redis.epoch if epoch is None else epoch)[:limit]

    def raw_page(self, after: int, upto: int | None, limit: int, *, epoch: str | None = None) -> list[RawEntry]:
        found = self.page(after, upto, limit, epoch=epoch)
        return [raw_entry(entry.offset, data=b"{") if entry.event is None else raw_event(entry.event) for entry in found]

    def topics(self, after: int, upto: int) -> list[tuple[int, str, int]]:
        """Return offset, topic and time of the entries of a range."""
        redis = self._answering()
        return [(offset, redis.log[offset].topic, TIME_MS) for offset in range(after + 1, upto + 1) if offset in redis.log]

    def _answering(self) -> ModelRedis:
        server = self._server
        server.check()
        while server.stopped:
            if not server.moved.wait(self._timeout_s):
                raise unavailable("did not answer in time")
        return server.redis


def unavailable(reason: str) -> BusUnavailable:
    """Return the error of a connection to the model."""
    return BusUnavailable(f"model: {reason}")


def _as_reply(head: Head) -> list[Any]:
    """Return a head as the function library answers it to a caller that names no epoch."""
    return [head.epoch.encode(), head.offset, head.first, TIME_MS, head.library, None, head.server.encode(), int(head.replica)]


def _encoded(word: str | bytes | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
