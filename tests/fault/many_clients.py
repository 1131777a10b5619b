"""Very many browsers in one thread: hand-made Socket.IO clients over WebSocket that record all messages.

They speak the wire of docs/protocol.md and nothing more: no de-duplication, no repair, no order restored, so that every fault
of the gateway is seen. A client keeps its cursor by the rules of the protocol, and resumes with it.

`Swarm` is the test's end. Its methods may be called from any thread; the clients live in the swarm's own event loop.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.fault.checker import Gap, Moved, Noted, Record, Seen, Subscribed, Unsubscribed, Welcomed
from tests.support.websocket_codec import NO_KEY, TEXT, frame_at, handshake, masked

# Half a minute is much for any of it, but not on a machine that does fifty other things.
DEADLINE_S = 60.0
POLL_S = 0.005
# A look at a condition takes a fifth of the time at most, because the clients and the proxies live in this process, too. One
# that waits for an answer, such as that of a gateway that starts, must not rest for minutes.
REST_LOOKS = 4
MAX_REST_S = 1.0
READ_BYTES = 65536
# A throttled client reads this much at a time, so that the kernel holds the rest.
SLOW_READ_BYTES = 2048
RETRY_S = (0.02, 0.5)
TICK_S = 0.1
# As web/src/base/backoff.js, with full jitter between the first and a ceiling that doubles up to the second.
ROAMING_RETRY_S = (0.5, 20.0)
_decode = msgspec.json.decode
_encode = msgspec.json.encode


class BrowserClient(asyncio.BufferedProtocol):
    """One client. Used in the swarm's loop only; `record` may be read from anywhere when things are at rest."""

    def __init__(self, name: str, url: str, namespace: str, patterns: dict[str, str], receive_buffer_bytes: int | None) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.record = Record(name, latest="latest" in patterns.values())
        self.patterns = dict(patterns)
        self.up = False
        self.sessions = 0
        self.pings = 0
        self.epoch: str | None = None
        self.offset = 0
        self.discarded = 0
        # By pattern, the past for each handshake until it has come, and where it ends.
        self.since: dict[str, Any] = {}
        self._past_end: int | None = None
        self.roams = False  # it moves when it is asked to
        self.elsewhere: list[tuple[str, int]] = []  # where else to connect, in turn
        self.resume_point: Any = None  # sent instead of its position
        self.token: str | None = None  # shown with each handshake
        self._namespace = f"/{namespace},".encode()
        self.receive_buffer_bytes = receive_buffer_bytes
        self._wanted = self._connecting = False
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(READ_BYTES)
        self._pending = bytearray()
        self._upgraded = False
        self._bytes_per_s: float | None = None
        self._next_ack = 0
        self._asked: dict[str, object] = {}  # the last subscribe of each pattern that was not ended
        self._acks: dict[int, Callable[[Any], None]] = {}
        self._retry_s = RETRY_S[0]
        self._attempt = 0
        self._moves = False  # it was asked to, and comes back at once

    # -- a test's requests -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and again whenever the connection is lost, until `leave`."""
        self._wanted = True
        await self._connect()

    def leave(self, *, hard: bool = False) -> None:
        """Go offline: close the connection (with RST if `hard`), without a goodbye."""
        self._wanted = False
        self.up = False
        if self._transport is not None:
            if hard:
                self._transport.abort()
            else:
                self._transport.close()

    def open_soon(self) -> None:
        """Connect as `open` does, without waiting for it. In the swarm's loop only."""
        self._wanted = True
        asyncio.get_running_loop().create_task(self._connect())

    @property
    def wanted(self) -> bool:
        """Whether it connects again when its connection is lost."""
        return self._wanted

    @property
    def connected(self) -> bool:
        """Whether it has a connection, or is about to."""
        return self._transport is not None or self._connecting

    @property
    def reading(self) -> bool:
        """Whether it reads from the socket."""
        return self._transport is not None and self._transport.is_reading()

    def stall(self) -> None:
        """Read nothing from the socket."""
        if self.reading and self._transport is not None:
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    def throttle(self, bytes_per_s: float | None) -> None:
        """Read at most so many bytes per second."""
        self._bytes_per_s = bytes_per_s
        if bytes_per_s is None:
            self.read_on()

    def subscribe(self, pattern: str, overflow: str = "catch_up") -> None:
        """Ask for a subscription; its acknowledgement is written down."""

        def acknowledged(answer: Any) -> None:
            assert answer["ok"], answer
            if self._asked.get(pattern) is asked:  # not ended since
                self.record.entries.append(Subscribed(time.monotonic(), pattern, answer["offset"]))

        asked = self._asked[pattern] = object()
        self.patterns[pattern] = overflow
        self.request("subscribe", {"pattern": pattern, "overflow": overflow}, acknowledged)

    def unsubscribe(self, pattern: str) -> None:
        """Lose interest in a pattern."""
        self.patterns.pop(pattern, None)
        self._asked.pop(pattern, None)
        self.record.entries.append(Unsubscribed(time.monotonic(), pattern))
        self.request("unsubscribe", {"pattern": pattern}, lambda answer: None)

    def request(self, name: str, body: Any, acknowledged: Callable[[Any], None]) -> None:
        """Send a request; `acknowledged` gets the answer, or never does if the connection is lost first."""
        self._next_ack += 1
        self._acks[self._next_ack] = acknowledged
        self._send(b"42%b%d%b" % (self._namespace, self._next_ack, _encode([name, body])))

    # -- asyncio ----------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        # A retry may come due while a test connects, or a test may ask twice, and two connections would mix their messages. The
        # end of an open one brings the next.
        if not self._connecting and self._transport is None:
            self._connecting = True
            try:
                await self._connect_once()
            finally:
                self._connecting = False
            if self._transport is None:  # lost already, and a retry that came due in between has done nothing
                self._try_again()

    async def _connect_once(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(sock, self.address)
            await loop.create_connection(lambda: self, sock=sock)
        except OSError:
            sock.close()
            self._try_again()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._pending.clear()
        self._upgraded = False
        self._acks.clear()
        host, port = self.address
        transport.write(handshake(f"{host}:{port}", "/socket.io/?EIO=4&transport=websocket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.up = False
        self._transport = None
        self.record.entries.append(Noted(time.monotonic(), "closed"))
        self._try_again()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[: READ_BYTES if self._bytes_per_s is None else SLOW_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._pending += memoryview(self._buffer)[:nbytes]
        if self._bytes_per_s is not None and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(nbytes / self._bytes_per_s, self.read_on)
        if not self._upgraded and not self._answered():
            return
        at, data = 0, self._pending
        while (frame := frame_at(data, at)) is not None:
            opcode, start, at = frame
            if opcode == TEXT:
                self._packet(bytes(data[start:at]))
        del data[:at]

    # -- the wire ---------------------------------------------------------------------------------------------------

    def _answered(self) -> bool:
        end = self._pending.find(b"\r\n\r\n")
        if end < 0:
            return False
        answer = bytes(self._pending[: self._pending.find(b"\r\n")])
        del self._pending[: end + 4]
        if b" 101 " not in answer:
            self.record.entries.append(Noted(time.monotonic(), answer.decode(errors="replace")))
            if self._transport is not None:
                self._transport.abort()
            return False
        self._upgraded = True
        return True

    def _packet(self, packet: bytes) -> None:
        now_s = time.monotonic()
        if packet.startswith(b"42"):
            self._message(now_s, *_decode(packet[packet.index(b"[") :]))
        elif packet == b"2":
            self.pings += 1
            self._send(b"3")
        elif packet.startswith(b"0"):
            wanted: list[dict[str, Any]] = [{"pattern": name, "overflow": policy} for name, policy in self.patterns.items()]
            for subscription in wanted:
                if subscription["pattern"] in self.since:
                    subscription["since"] = self.since[subscription["pattern"]]
            auth: dict[str, Any] = {"subscriptions": wanted}
            if self.token is not None:
                auth["token"] = self.token
            if self.resume_point is not None:
                auth["resume"] = self.resume_point
            elif self.epoch is not None:
                auth["resume"] = {"epoch": self.epoch, "offset": self.offset}
            self._send(b"40" + self._namespace + _encode(auth))
        elif packet.startswith(b"43"):
            start = packet.index(b"[")
            number = int(packet[packet.index(b",") + 1 : start])
            if acknowledged := self._acks.pop(number, None):
                acknowledged(_decode(packet[start:])[0])
        elif not packet.startswith(b"40"):
            self.record.entries.append(Noted(now_s, packet[:200].decode(errors="replace")))

    def _message(self, now_s: float, name: str, *arguments: Any) -> None:
        entries = self.record.entries
        body = arguments[0]
        if name == "event":
            topic, data, meta = arguments
            if meta.get("offset") is None:
                entries.append(Noted(now_s, f"plain {topic}"))
                return
            self.offset = max(self.offset, meta["offset"])  # a past lies below
            if self._past_end is not None:
                self._past_came(meta["offset"])
            intact = data.get("id") == meta["id"]
            entries.append(Seen(now_s, meta["offset"], topic, meta["id"], intact, now_s - data.get("at_s", now_s)))
        elif name == "gap":
            first, last, epoch = body["from"], body["to"], body.get("epoch", "")
            entries.append(Gap(now_s, first, last, body["count"], body["reason"], body["recoverable"], epoch))
            if body["reason"] == "rolled_back":
                self.epoch, self.offset = epoch, first - 1
                self._past_end = None if self._past_end is None else min(self._past_end, first - 1)
            elif body["reason"] == "trimmed":
                self.offset = max(self.offset, body["to"])
        elif name == "cursor":
            entries.append(Moved(now_s, body["epoch"], body["offset"]))
            self.epoch, self.offset = body["epoch"], body["offset"]
        elif name == "welcome":
            self._welcomed(now_s, body)
        elif name == "backpressure":
            self.discarded = body["discarded"]
            entries.append(Noted(now_s, f"backpressure {body['state']}"))
        elif name == "status":
            entries.append(Noted(now_s, f"bus {body['bus']}" if "bus" in body else "moving"))
            if self.roams and "moving" in body and self._transport is not None:
                self._moves = True
                leave = self._transport.close
                asyncio.get_running_loop().call_later(random.uniform(0, body["moving"]["within_s"]), leave)

    def _welcomed(self, now_s: float, body: Any) -> None:
        refused = [answer for answer in body["subscriptions"] if not answer["ok"]]
        assert all(answer["error"]["retry"] for answer in refused), refused
        if refused and self._transport is not None:
            self._transport.abort()  # and comes back, as if there had been no welcome
            return
        if self.since and self._past_end is None:
            self._past_end = body["offset"]
        entries = self.record.entries
        entries.append(Welcomed(now_s, body["epoch"], body["offset"], body["resumed"]))
        for pattern in self.patterns:
            entries.append(Subscribed(now_s, pattern, body["offset"]))
        goes_on = body.get("from")
        if self.epoch is None or (body["resumed"] is False and goes_on is None):
            self.epoch, self.offset = body["epoch"], body["offset"]
        elif goes_on is not None and goes_on["offset"] == self.offset:
            self.epoch = goes_on["epoch"]  # else a gap follows that names the rolled-back events, and moves it
        self.up = True
        self.sessions += 1
        self._retry_s = RETRY_S[0]
        self._attempt = 0

    def _past_came(self, offset: int) -> None:
        """A connection lost during a past cuts it short, and the rest is asked for again."""
        assert self._past_end is not None
        if offset > self._past_end:
            self.since, self._past_end = {}, None
        else:
            self.since = {pattern: {"offset": offset, "epoch": self.epoch} for pattern in self.since}

    def _send(self, packet: bytes) -> None:
        if self._transport is not None:
            self._transport.write(masked(TEXT, packet, key=NO_KEY))

    def _try_again(self) -> None:
        if self._wanted:
            delay_s, self._retry_s = self._retry_s, min(self._retry_s * 2, RETRY_S[1])
            moves, self._moves = self._moves, False
            if moves:
                delay_s = 0.0
            elif self.roams:
                self._attempt += 1
                low_s, high_s = ROAMING_RETRY_S
                delay_s = random.uniform(low_s, min(high_s, low_s * 2**self._attempt))
            asyncio.get_running_loop().call_later(delay_s, self._reopen)

    def _reopen(self) -> None:
        if self._wanted and self._transport is None:
            if self.elsewhere:
                self.elsewhere.append(self.address)
                self.address = self.elsewhere.pop(0)
            asyncio.get_running_loop().create_task(self._connect())


class Swarm:
    """Clients, spread over gateways in turn; client number i wants the topics or patterns `patterns_of(i)`.

    Attributes:
        longest_pause_s: the longest time in which none of them read, because this process had no processor.
    """

    def __init__(
        self,
        urls: Sequence[str],
        count: int,
        patterns_of: Callable[[int], Iterable[str]],
        *,
        overflow: str = "catch_up",
        namespace: str = "notifications",
        receive_buffer_bytes: int | None = None,
        name: str = "client",
    ) -> None:
        self.clients = [
            BrowserClient(
                f"{name}-{index}",
                urls[index % len(urls)],
                namespace,
                dict.fromkeys(patterns_of(index), overflow),
                receive_buffer_bytes,
            )
            for index in range(count)
        ]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.longest_pause_s = 0.0
        self._loop.call_soon_threadsafe(self._tick, time.monotonic())

    @property
    def records(self) -> list[Record]:
        """The fate of each client."""
        return [client.record for client in self.clients]

    def open(self, at_once: int = 50, deadline_s: float = DEADLINE_S) -> Swarm:
        """Connect all, `at_once` at a time; return when each has been welcomed."""
        for start in range(0, len(self.clients), at_once):
            some = self.clients[start : start + at_once]
            self.run(_open(some))
            self.wait(partial(all_up, some), "clients to be welcomed", deadline_s)
        return self

    def roam(self) -> None:
        """From now on connect to all gateways in turn, with the browser client's back-off, and move when asked to."""
        addresses = list(dict.fromkeys(client.address for client in self.clients))
        for client in self.clients:
            client.roams = True
            client.elsewhere = [address for address in addresses if address != client.address]

    def reopen(self) -> None:
        """Connect all offline ones, all at once, without waiting for them."""
        self.run(_open([client for client in self.clients if not client.up]))

    def each(self, act: Callable[[BrowserClient], Any], clients: Iterable[BrowserClient] | None = None) -> None:
        """Do something with every client, in the swarm's loop."""

        async def all_of_them() -> None:
            for client in self.clients if clients is None else clients:
                act(client)

        self.run(all_of_them())

    def leave(self, *, hard: bool = False) -> None:
        """All go offline."""
        self.each(lambda client: client.leave(hard=hard))

    def wait(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> float:
        """Wait until a condition over the clients holds; return how long that took, in seconds.

        Raises:
            AssertionError: it did not come true within `deadline_s`.
        """
        try:
            return wait_for(condition, what, deadline_s)
        except AssertionError as error:
            down = sum(not client.up for client in self.clients)
            lagging = sorted(client.offset for client in self.clients)
            raise AssertionError(f"{error}; {down} down, offsets {lagging[:3]}…{lagging[-3:]}") from error

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the swarm's loop and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def close(self) -> None:
        """End all connections and the loop. Idempotent."""
        if self._thread.is_alive():
            self.leave(hard=True)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _tick(self, due_s: float) -> None:
        now_s = time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now_s - due_s)
        self._loop.call_later(TICK_S, self._tick, now_s + TICK_S)


def wait_for(condition: Any, what: str, deadline_s: float = DEADLINE_S) -> float:
    """Wait until `condition()` is true; return how long that took, in seconds.

    Raises:
        AssertionError: not within `deadline_s`.
    """
    began_s = time.monotonic()
    while True:
        look_s = time.monotonic()
        if condition():
            return time.monotonic() - began_s
        now_s = time.monotonic()
        assert now_s - began_s < deadline_s, f"not within {deadline_s:g} s: {what}"
        time.sleep(min(max(POLL_S, REST_LOOKS * (now_s - look_s)), MAX_REST_S))


def all_up(clients: Iterable[BrowserClient]) -> bool:
    """Whether all of them are connected and welcomed."""
    return all(client.up for client in clients)


async def _open(clients: Iterable[BrowserClient]) -> None:
    await asyncio.gather(*(client.open() for client in clients))
