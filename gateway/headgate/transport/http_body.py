"""The body of one HTTP request, as the application reads it, and the rest of it that the application has not read.

In: pywsgi's own input, around which this one stands; bytes through the handler of the connection. Out: the body's bytes, within
its deadline. Once reading has failed nobody knows where the next request would begin, and the connection is closed. pywsgi calls
`_discard()` behind the answer; its own would read all of the rest, however much.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gevent import pywsgi

from .http_limits import Part

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# The rest of a request's body, when it has been answered, is read up to here, so that the connection can be used again.
MAX_DISCARD_BYTES = 65536
# Of a larger one so much is read all the same, on a connection that is not used again: closed with bytes unread it would be
# reset, and a client that is still sending would find the reset instead of our answer (RFC 9112 section 9.6).
MAX_LINGER_BYTES = 1024 * 1024
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Closing(Protocol):
    """The socket of the connection, of which one direction can be ended."""

    def shutdown(self, how: int, /) -> None:
        """End a direction."""


class BodyHandler(Protocol):
    """The handler of the connection (http_handler.py)."""

    part: Part
    broken: bool
    close_connection: bool

    @property
    def socket(self) -> Closing | None:
        """The connection; None when it was detached."""

    def begin(self, part: Part) -> None:
        """Another part of the exchange is under way."""

    def receive_into(self, buffer: WriteableBuffer) -> int | None:
        """Read what there is into a buffer; 0 at the end. Switches greenlets."""

    def send_ahead(self, data: bytes) -> None:
        """Write something that is not part of the answer, behind what was written before. Switches greenlets."""


class RequestBody(pywsgi.Input):  # type: ignore[misc]
    """See the module."""

    __slots__ = ("_handler",)

    def __init__(self, handler: BodyHandler, body: pywsgi.Input) -> None:
        super().__init__(body.rfile, body.content_length, body.socket, body.chunked_input)
        self._handler = handler

    def read(self, length: int | None = None) -> bytes:
        return self._read(super().read, length)

    def readline(self, size: int | None = None) -> bytes:
        return self._read(super().readline, size)

    def _read(self, read: Callable[[int | None], bytes], size: int | None) -> bytes:
        handler = self._handler
        if handler.part is Part.ANSWER:
            handler.begin(Part.BODY)
        try:
            return read(size)
        except OSError:
            handler.broken = handler.close_connection = True
            raise

    @property
    def unread_bytes(self) -> int:
        """How many bytes are known to be missing; of a chunked body, more than we would read, until its end has come."""
        if self.chunked_input:
            return 0 if self.chunk_length == 0 else MAX_DISCARD_BYTES
        declared: int = self.content_length or 0
        return declared - int(self.position)

    @property
    def abandoned(self) -> bool:
        """Whether the connection cannot be used again: too much is unread, or the client waits for 100 Continue."""
        left_bytes = self.unread_bytes
        return self._handler.broken or left_bytes > MAX_DISCARD_BYTES or bool(left_bytes and self._client_waits)

    @property
    def _client_waits(self) -> bool:
        """Whether the client sends its body only once it has leave to."""
        return self.socket is not None

    def _send_100_continue(self) -> None:
        """Give the client leave to send. pywsgi would write past what earlier answers have left to be sent."""
        handler = self._handler
        if self.send_100_continue_enabled and self._client_waits:
            self.socket = None  # type: ignore[misc]  # a slot of pywsgi's
            handler.send_ahead(CONTINUE)
            if handler.part is Part.ANSWER:
                handler.begin(Part.BODY)

    def _discard(self) -> None:
        """Read what an answered request has left. pywsgi would read all of it, however much."""
        handler, sock = self._handler, self._handler.socket
        if handler.broken or sock is None or not self.unread_bytes:
            return
        try:
            if self._client_waits:
                handler.close_connection = True  # it waits for 100 Continue with its body, and need not send it
            elif self.unread_bytes > MAX_DISCARD_BYTES or not self._read_rest():
                self._linger(sock)
        except OSError:
            handler.close_connection = True

    def _read_rest(self) -> bool:
        """Return whether the body's end has come before too many bytes."""
        left_bytes = MAX_DISCARD_BYTES
        while left_bytes >= 0:
            piece = self.read(min(16384, left_bytes + 1))
            if not piece:
                return True
            left_bytes -= len(piece)
        return False

    def _linger(self, sock: Closing) -> None:
        """Say that our answer was all, and read a while."""
        handler = self._handler
        handler.close_connection = True
        sock.shutdown(socket.SHUT_WR)
        buffer, left_bytes = bytearray(MAX_DISCARD_BYTES), MAX_LINGER_BYTES
        while left_bytes > 0 and (size := handler.receive_into(buffer)):
            left_bytes -= size
