"""A connection between two gateways: a socket that has gone through its handshake, its link, and the pipes of its streams.

In: bytes of the socket, in callbacks in the hub; connections of clients that are to go to the owner (`carry`). Out: bytes for the
socket; at the owner each stream as a connection of its HTTP server (`opened`). While much waits for the socket, no client's
socket is read. The end of the connection is the end of all its streams.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from headgate.runtime.loop import READ, WRITE, Signal, Watcher, io_watcher, repeat
from headgate.transport.http_limits import HttpLimits
from headgate.transport.peer_socket import NativeSocket

from .frames import LinkViolation
from .link import MAX_STREAMS, Address, Data, Ended, Event, Link, Opened, Reset, Room, Taken
from .owners import asks_for_websocket
from .pipe import Pipe

READ_BYTES = 262144
# With so much unsent, clients' sockets are not read until half of it has gone.
CONGESTED_BYTES = 1024 * 1024
TICK_S = 1.0
# WebSockets stay for as long as they live. They have at most this part of the streams, so that polls find room: a client whose
# upgrade is declined goes on polling, and one whose poll finds no room loses its session.
WEBSOCKET_SHARE = 2
_LIMITS = HttpLimits()


class _Opening:
    """A stream that the owner has not taken yet."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe, self.answered, self.is_taken = pipe, Signal(), False


class _Offered:
    """A stream that the dialer has opened in the bytes that are being read: it may have given up in the same."""

    def __init__(self, address: Address) -> None:
        self.address, self.received, self.has_ended = address, bytearray(), False


# Returns our end of a new connection of the HTTP server, from this address, for a WebSocket or not; None where there is no room.
Opener = Callable[[Address, bool], NativeSocket | None]


class Connection:
    """See the module.

    Args:
        sock: non-blocking; the connection's from now on.
        received: what has come behind the handshake.
        opened: at the end that has not dialed.
        limits: of the clients that are carried.
        lost: called once, with the reason, when it is over.
    """

    def __init__(
        self,
        sock: NativeSocket,
        received: bytes,
        *,
        dials: bool,
        opened: Opener = lambda *_: None,
        limits: HttpLimits = _LIMITS,
        lost: Callable[[Connection, str], None],
    ) -> None:
        self._sock = sock
        self._link = Link(monotonic(), dials=dials)
        self._opened, self._limits, self._lost = opened, limits, lost
        self._pipes: dict[int, Pipe] = {}
        self._opening: dict[int, _Opening] = {}
        self._offered: dict[int, _Offered] = {}
        self._websockets: set[int] = set()
        self._unsent = bytearray()
        self._congested = False
        self._writer: Watcher | None = None
        self._reader = io_watcher(sock.fileno(), READ)
        self._reader.start(self._readable)
        self._timer = repeat(TICK_S, self._tick)
        self.closed = False
        if received:
            self._receive(received)

    def __len__(self) -> int:
        """Return how many streams there are."""
        return len(self._link)

    @property
    def websockets(self) -> int:
        """Return how many of its streams are for a WebSocket."""
        return len(self._websockets)

    def carry(self, sock: NativeSocket, address: Address, received: bytes, within_s: float) -> bool:
        """Carry a client's connection to the owner; return whether it has taken it. Switches greenlets.

        If not, `sock` is closed, and nothing was read of it or written to it.
        """
        lasts = asks_for_websocket(received)
        has_room = not (self.closed or (lasts and self.websockets >= MAX_STREAMS // WEBSOCKET_SHARE))
        stream = self._link.open(address) if has_room else None
        if stream is None:
            sock.close()
            return False
        if lasts:
            self._websockets.add(stream)
        opening = self._opening[stream] = _Opening(Pipe(sock, self, stream, self._limits))
        self._link.send(stream, received)
        self._flush()
        try:
            opening.answered.wait(within_s)
        finally:
            self._opening.pop(stream, None)
            if not opening.is_taken:
                self._websockets.discard(stream)
                opening.pipe.close()
                self._link.reset(stream)
                self._flush()
        return opening.is_taken

    def close(self, reason: str = "closed") -> None:
        """End the connection and all its streams. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._timer.stop()
        self._timer.close()
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._writer = None
        self._sock.close()
        self._websockets.clear()
        pipes, self._pipes = self._pipes, {}
        for pipe in pipes.values():
            pipe.close()
        for opening in self._opening.values():
            opening.answered.set()
        self._lost(self, reason)

    # -- what a pipe needs (Carrier) ----------------------------------------------------------------------------------

    def room(self, stream: int) -> int:
        """Return how many bytes of a stream may be sent now."""
        return 0 if self._congested else self._link.room(stream)

    def send(self, stream: int, data: bytes) -> None:
        """Send bytes of a client, or of the owner."""
        self._link.send(stream, data)
        self._flush()

    def passed_on(self, stream: int, size: int) -> None:
        """So many bytes of a stream have gone on."""
        self._link.passed_on(stream, size)
        self._flush()

    def end(self, stream: int) -> None:
        """No more bytes come for a stream."""
        self._link.end(stream)
        self._flush()

    def drop(self, stream: int) -> None:
        """Forget a stream. Idempotent."""
        self._link.reset(stream)
        self._forget(stream)
        self._flush()

    # -- private ------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or "broken")
            return
        if data:
            self._receive(data)
        else:
            self.close("the other end has closed it")

    def _receive(self, data: bytes) -> None:
        try:
            for event in self._link.receive(data, monotonic()):
                self._happened(event)
        except LinkViolation as violation:
            self.close(str(violation))
            return
        # A process that stood still finds requests that have been given up meanwhile: no application is asked for them.
        offered, self._offered = self._offered, {}
        for stream, each in offered.items():
            self._take(stream, each)
        self._flush()

    def _happened(self, event: Event) -> None:
        stream = event.stream
        if isinstance(event, Opened):
            self._offered[stream] = _Offered(event.address)
        elif isinstance(event, Taken):
            opening = self._opening.pop(stream)
            opening.is_taken = True
            opening.answered.set()
            self._pipes[stream] = opening.pipe
            opening.pipe.start()
        elif isinstance(event, Reset):
            if (refused := self._opening.pop(stream, None)) is not None:
                refused.answered.set()
            self._offered.pop(stream, None)
            self._forget(stream)
        elif (offered := self._offered.get(stream)) is not None:
            if isinstance(event, Data):
                offered.received += event.data
            elif isinstance(event, Ended):
                offered.has_ended = True
        elif (pipe := self._pipes.get(stream)) is not None:
            if isinstance(event, Data):
                pipe.write(event.data)
            elif isinstance(event, Ended):
                pipe.ended()
            elif isinstance(event, Room) and not self._congested:
                pipe.start()

    def _take(self, stream: int, offered: _Offered) -> None:
        lasts = asks_for_websocket(offered.received)
        sock = self._opened(offered.address, lasts)
        if sock is None:
            self._link.reset(stream)
            return
        if lasts:
            self._websockets.add(stream)
        self._link.take(stream)
        self._pipes[stream] = pipe = Pipe(sock, self, stream, None)
        pipe.start()
        if offered.received:
            pipe.write(bytes(offered.received))
        if offered.has_ended:
            pipe.ended()

    def _forget(self, stream: int) -> None:
        self._websockets.discard(stream)
        if (pipe := self._pipes.pop(stream, None)) is not None:
            pipe.close()

    def _flush(self) -> None:
        if self.closed:
            return
        self._unsent += self._link.outgoing
        self._link.outgoing.clear()
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            if self._writer is None:
                self._writer = io_watcher(self._sock.fileno(), WRITE)
                self._writer.start(self._flush)
        except OSError:
            # The reader finds it out, and closes: a pipe that has just sent something goes on for a moment.
            self._unsent.clear()
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            return
        else:
            if self._writer is not None:
                self._writer.stop()
                self._writer.close()
                self._writer = None
        if len(self._unsent) >= CONGESTED_BYTES:
            self._congested = True
        elif self._congested and len(self._unsent) < CONGESTED_BYTES // 2:
            self._congested = False
            for pipe in self._pipes.values():
                pipe.start()

    def _tick(self) -> None:
        for stream in [stream for stream, pipe in self._pipes.items() if pipe.is_late(TICK_S)]:
            self.drop(stream)
        try:
            self._link.tick(monotonic())
        except LinkViolation as violation:
            self.close(str(violation))
            return
        self._flush()
