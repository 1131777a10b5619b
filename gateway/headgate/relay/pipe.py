"""A pipe: a socket at one end, a stream of a link at the other. Callbacks in the hub: nothing here waits.

In: bytes of the socket, as long as the stream has room; bytes of the stream. Out: each at the other end, in order. The bytes that
the socket does not accept wait here, at most a window of them; the peer learns of each that has gone on. An end of either side is
the end of that direction. `TRANSITIONS` is the life of the direction to the socket.

The two ends of a stream differ. At the owner's end the socket belongs to our own HTTP server, which keeps deadlines, and may be
done before the client has said all: its answer is carried to the end nevertheless. At the client's end nobody else watches when
the owner has said all: a client must then read what waits at the pace of every answer, and end within LINGER_S.
"""

from __future__ import annotations

import socket
from enum import Enum, auto
from typing import Protocol

from headgate.runtime.loop import READ, WRITE, Watcher, io_watcher
from headgate.transport.http_limits import HttpLimits, Pace, Part
from headgate.transport.peer_socket import NativeSocket

READ_BYTES = 16384
LINGER_S = 5.0


class Out(Enum):
    """The state of the direction to the socket."""

    OPEN = auto()
    ENDING = auto()  # the stream brings no more; what waits is still written
    SHUT = auto()
    BROKEN = auto()  # the socket accepts no more; what comes is thrown away
    OVER = auto()


class Step(Enum):
    """A step of that direction."""

    END = auto()
    WRITTEN = auto()
    BREAK = auto()


TRANSITIONS: dict[tuple[Out, Step], Out] = {
    (Out.OPEN, Step.END): Out.ENDING,
    (Out.OPEN, Step.BREAK): Out.BROKEN,
    (Out.ENDING, Step.WRITTEN): Out.SHUT,
    (Out.ENDING, Step.BREAK): Out.OVER,
    (Out.BROKEN, Step.END): Out.OVER,
}


class Carrier(Protocol):
    """The connection that carries the stream (connection.py)."""

    def room(self, stream: int) -> int:
        """Return how many bytes may be sent now."""

    def send(self, stream: int, data: bytes) -> None:
        """Send bytes of the socket."""

    def passed_on(self, stream: int, size: int) -> None:
        """So many bytes have gone to the socket."""

    def end(self, stream: int) -> None:
        """The socket has ended."""

    def drop(self, stream: int) -> None:
        """The client's socket is broken, or both directions have ended: forget the stream and its pipe."""


class Pipe:
    """See the module. `sock` is non-blocking, and the pipe's from now on. Nothing is read of it before `start`.

    `limits` are those of the client at this end; None at the owner's end.
    """

    __slots__ = ("_carrier", "_limits", "_out", "_pace", "_reader", "_sock", "_stream", "_unsent", "_we_ended", "_writer")

    def __init__(self, sock: NativeSocket, carrier: Carrier, stream: int, limits: HttpLimits | None) -> None:
        self._sock, self._carrier, self._stream, self._limits = sock, carrier, stream, limits
        self._reader: Watcher | None = None
        self._writer: Watcher | None = None
        self._unsent = bytearray()
        self._we_ended = False
        self._out = Out.OPEN
        self._pace: Pace | None = None

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait for the socket."""
        return len(self._unsent)

    def start(self) -> None:
        """Read the socket while there is room. Idempotent."""
        if self._reader is None and not self._we_ended and self._sock.fileno() >= 0:
            self._reader = io_watcher(self._sock.fileno(), READ)
            self._reader.start(self._readable)

    def pause(self) -> None:
        """Read nothing until `start`. Idempotent."""
        if self._reader is not None:
            self._reader.stop()
            self._reader.close()
            self._reader = None

    def write(self, data: bytes) -> None:
        """Pass bytes of the stream on to the socket."""
        if self._out is Out.OPEN:
            self._unsent += data
            if self._writer is None:
                self._flush()

    def ended(self) -> None:
        """The stream brings no more."""
        self._out = TRANSITIONS[self._out, Step.END]
        if self._limits is not None:
            self._pace = Part.ANSWER.pace(self._limits)
            self.start()  # to find out when the client goes; its window may have been full
        if self._writer is None:
            self._flush()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self.pause()
        self._stop_writing()
        self._sock.close()

    def is_late(self, waited_s: float) -> bool:
        """Count time in which the loop ran; return whether the client has kept us waiting for too long since the stream's end."""
        if self._pace is None:
            return False
        self._pace.waited(waited_s)
        return self._pace.left_s <= 0

    # -- private ------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        unwanted = self._limits is not None and self._out is not Out.OPEN  # the owner has said all: nobody reads more
        room = READ_BYTES if unwanted else self._carrier.room(self._stream)
        if not room:
            self.pause()
            return
        try:
            data = self._sock.recv(min(room, READ_BYTES))
        except BlockingIOError:
            return
        except OSError:
            if self._limits is not None:
                self._carrier.drop(self._stream)
                return
            data = b""  # the server has closed it with bytes of the client unread, behind its answer
        if data:
            if not unwanted:
                self._carrier.send(self._stream, data)
            return
        self.pause()
        self._we_ended = True
        self._carrier.end(self._stream)
        self._end_if_over()

    def _flush(self) -> None:
        try:
            while self._unsent:
                size = self._sock.send(self._unsent)
                del self._unsent[:size]
                self._carrier.passed_on(self._stream, size)
                if self._pace is not None:
                    self._pace.moved(size)
            self._stop_writing()
            if self._out is Out.ENDING:
                self._sock.shutdown(socket.SHUT_WR)
                self._out = TRANSITIONS[self._out, Step.WRITTEN]
                self._pace = None if self._limits is None else Pace(LINGER_S)
        except BlockingIOError:
            if self._writer is None:
                self._writer = io_watcher(self._sock.fileno(), WRITE)
                self._writer.start(self._flush)
            return
        except OSError:
            if self._limits is not None:
                self._carrier.drop(self._stream)
                return
            self._stop_writing()
            self._unsent.clear()
            self._out = TRANSITIONS[self._out, Step.BREAK]
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._we_ended and self._out in (Out.SHUT, Out.OVER):
            self._carrier.drop(self._stream)

    def _stop_writing(self) -> None:
        if self._writer is not None:
            self._writer.stop()
            self._writer.close()
            self._writer = None
