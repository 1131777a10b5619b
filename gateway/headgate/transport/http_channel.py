"""The bytes of one HTTP connection, in and out, with a deadline for each part of each exchange (http_limits.py).

A channel waits for its peer no longer than the `Pace` of the part allows. If the peer never delays it, it still lets other
greenlets run now and then.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from headgate.runtime.loop import READ, WRITE, sleep
from headgate.runtime.metrics import HTTP_ENDED

from .http_limits import HttpLimits, Pace, Part
from .peer_socket import PeerSocket, close_hard, is_readable, say_last

# Other greenlets have a turn after this many bytes of a message.
TURN_BYTES = 65536
# The most bytes read from an unwanted body. Closing with bytes unread resets the connection, so a client still sending would
# get the reset instead of our answer (RFC 9112 section 9.6).
MAX_LINGER_BYTES = 1024 * 1024
# A client that sends more after its last request has this long to read the answer and close.
LINGER_S = 2.0


class TooSlow(TimeoutError):
    """A peer was too slow. An application sees the OSError of a broken connection."""


class Channel:
    """See the module. If it is `broken`, no further request can be read. `waits` counts the waits for the peer."""

    __slots__ = ("_limits", "_pace", "_turn_bytes", "_waiting", "broken", "part", "peer", "sent_bytes", "waits")

    def __init__(self, peer: PeerSocket, limits: HttpLimits, waiting: Callable[[], object], waited_s: float = 0.0) -> None:
        """Calls `waiting` before each wait for the peer. The peer has already delayed us by `waited_s`."""
        self.peer, self._limits, self._waiting = peer, limits, waiting
        self.part = Part.HEADERS
        # Of this part; None until we wait for the peer.
        self._pace: Pace | None = self.part.pace(limits)
        self._pace.waited(waited_s)
        self._turn_bytes = self.waits = self.sent_bytes = 0
        self.broken = False

    def begin(self, part: Part) -> None:
        """Begin another part of the exchange, with a new pace."""
        self.part, self._pace = part, None

    def receive(self, size: int, turn_bytes: int = TURN_BYTES) -> bytes:
        """Return the next bytes; empty at the end. Switches greenlets. Raises OSError, and TooSlow after too long a wait."""
        try:
            if self.part is Part.IDLE and self._pace is None and self.peer.is_plain:
                # Most clients send a request only after the last answer.
                data: bytes = self._in_time(READ, self.peer.recv, size)
            else:
                data = self.peer.recv(size)
        except BlockingIOError:
            data = self._in_time(READ, self.peer.recv, size)
        except OSError:
            self.broken = True
            raise
        if self._pace is not None:
            self._pace.moved(len(data))
        if self.part is Part.BODY:
            self._give_turn(len(data), turn_bytes)
        return data

    def send(self, data: bytes) -> None:
        """Write a piece of the answer. Switches greenlets. Raises as `receive`."""
        left, at = len(data), 0
        while left:
            rest = memoryview(data)[at:] if at else data
            try:
                sent = self.peer.send(rest)
            except BlockingIOError:
                # 100 Continue, and an answer that ignores the body, are sent before the body was read.
                if self.part is not Part.ANSWER:
                    self.begin(Part.ANSWER)
                sent = self._in_time(WRITE, self.peer.send, rest)
            except OSError:
                self.broken = True
                raise
            if self.part is Part.ANSWER and self._pace is not None:
                self._pace.moved(sent)
            left, at = left - sent, at + sent
            self.sent_bytes += sent
            self._give_turn(sent, TURN_BYTES)

    def linger(self) -> None:
        """Close our side, then read and drop the peer's bytes. Switches greenlets; raises as `receive`."""
        say_last(self.peer.fileno())
        left_bytes = MAX_LINGER_BYTES
        while left_bytes > 0 and (data := self.receive(TURN_BYTES)):
            left_bytes -= len(data)
            sleep()

    def linger_if_unread(self) -> None:
        """Linger if bytes are unread, as closing would reset the connection. Switches greenlets; raises as `receive`."""
        if self.peer.is_plain and not self.broken and is_readable(self.peer.fileno()):
            self._waiting()
            self.part, self._pace = Part.IDLE, Pace(LINGER_S)
            self.linger()

    def _in_time(self, events: int, move: Callable[[Any], Any], argument: object) -> Any:
        """Move bytes once the socket is ready. Raises TooSlow if it is not ready in time."""
        pace = self._pace = self._pace or self.part.pace(self._limits)
        self.waits += 1
        if self.part is not Part.IDLE:  # the connection has already reported that wait
            self._waiting()
        waited_s: float | None = 0.0
        while waited_s is not None:
            waited_s = self.peer.wait(events, pace.left_s) if pace.left_s > 0 else None
            pace.waited(waited_s or 0.0)
            try:
                return move(argument)  # also after the time, because after a stall of the process timers run before sockets
            except BlockingIOError:
                continue
            except OSError:
                self.broken = True
                raise
        self.broken = True
        if self.part is not Part.IDLE:
            HTTP_ENDED.labels(f"{self.part.value} deadline").inc()
        if self.part is Part.ANSWER:
            close_hard(self.peer.fileno())
        raise TooSlow(errno.ECONNRESET, f"the {self.part.value} took too long")

    def _give_turn(self, moved_bytes: int, turn_bytes: int) -> None:
        self._turn_bytes += moved_bytes
        if self._turn_bytes >= turn_bytes:
            self._turn_bytes = 0
            sleep()
