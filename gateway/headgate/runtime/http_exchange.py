"""An HTTP/1.1 client, with one exchange at a time on one blocking socket. Only this file uses h11.

In: a request and a deadline. Out: the head of the final answer, and as much of its body as the caller reads. `http.client`, the
base of urllib3 and requests, treats every 1xx but 100 as the answer, but clients must skip them (RFC 9110, section 15.2).
This module follows no redirect and reads no proxy from the environment.

A status line counts as the answer (`AnswerHead`), even if the rest of the head or the body fails.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import h11

# For all heads of one answer, including 1xx. Some receivers send `102 Processing` every second while they work.
MAX_HEAD_BYTES = 64 * 1024
_RECEIVE_BYTES = 16 * 1024
# A complete status line of a final answer. 101 is final, too, because we never request another protocol.
_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] (101|[2-9][0-9]{2})(?: [^\r\n]*)?\r?\n")


class BadAnswer(OSError):
    """The peer sent something other than HTTP, or more than the limit."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The status and headers of an answer, in order, with names in lower case. A truncated head has no headers."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()

    def header(self, name: str) -> str:
        """Return the first value of a header (`name` in lower case), or ""."""
        return next((value for key, value in self.headers if key == name), "")


class ClientConnection:
    """Owns a connected socket. For one thread or greenlet.

    Args:
        sock: after the TLS handshake, if any.

    Attributes:
        sent: whether the operating system took the whole last request, so that the server may have acted on it.
    """

    def __init__(self, sock: socket.socket, now: Callable[[], float] = time.monotonic) -> None:
        self._sock, self._now = sock, now
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._broke_off = False
        self.sent = False

    @property
    def reusable(self) -> bool:
        """Whether another request may follow. The answer must be complete and last, and both sides must keep the connection."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE and not self._http.trailing_data[0]

    def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes, deadline_s: float) -> AnswerHead:
        """Send a request and return the head of the final answer. `deadline_s` covers both, on the monotonic clock.

        Args:
            headers: with `Host`; `Content-Length` is added if there is a body.

        Raises:
            OSError: no status line came; TimeoutError at the deadline, ConnectionResetError at an end, BadAnswer.
            ValueError: a header is invalid.
        """
        self.sent = False
        if self.reusable:
            self._http.start_next_cycle()
        length = {"Content-Length": str(len(body))} if body or method == "POST" else {}
        try:
            data = self._http.send(h11.Request(method=method, target=target, headers=list({**headers, **length}.items())))
            data = (data or b"") + (self._http.send(h11.Data(data=body)) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        except h11.LocalProtocolError as error:
            raise ValueError(str(error)) from error
        try:
            self._send(data, deadline_s)
            self.sent = True
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError) as error:
            # A server may answer and close before it has read the whole request (RFC 9112, section 9.5).
            try:
                return self._read_head(deadline_s)
            except ssl.SSLError:
                raise  # an alert explains the end
            except OSError:
                raise error from None
        return self._read_head(deadline_s)

    def read_body(self, limit_bytes: int, deadline_s: float) -> bytes:
        """Return the body of the answer.

        Raises OSError if the body is incomplete at the deadline, and BadAnswer if it exceeds `limit_bytes` or is not HTTP.
        """
        if self._broke_off:
            raise ConnectionResetError("the head of the answer broke off")
        body, event = bytearray(), None
        try:
            while not isinstance(event, h11.EndOfMessage):
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(self._receive(deadline_s))
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > limit_bytes:
                        raise BadAnswer(f"the answer is larger than {limit_bytes} bytes")
                elif not isinstance(event, h11.EndOfMessage):
                    raise ConnectionResetError
        except h11.ProtocolError as error:
            raise BadAnswer("the body of the answer is cut short, or not HTTP") from error
        return bytes(body)

    def is_quiet(self) -> bool:
        """Return whether nothing, not even the end of the connection, has come in since the last answer. Never waits."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._sock.close()

    def _read_head(self, deadline_s: float) -> AnswerHead:
        # A copy, because h11 discards bytes that it cannot parse, and they may hold the status line.
        head, room = bytearray(self._http.trailing_data[0]), MAX_HEAD_BYTES
        try:
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    return AnswerHead(
                        event.status_code, tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in event.headers)
                    )
                if isinstance(event, h11.InformationalResponse):
                    head = bytearray(self._http.trailing_data[0])
                elif event is h11.NEED_DATA:
                    if room <= 0:
                        raise BadAnswer("the head of the answer is too long")
                    data = self._receive(deadline_s, min(room, _RECEIVE_BYTES))
                    if not data:
                        raise ConnectionResetError
                    room -= len(data)
                    head += data
                    self._http.receive_data(data)
                else:
                    raise ConnectionResetError
        except (OSError, h11.ProtocolError) as error:
            if match := _STATUS_LINE.match(head):
                self._broke_off = True
                return AnswerHead(int(match[1]))
            if isinstance(error, h11.ProtocolError) or (
                bytes(head[:5]) not in (b"", b"HTTP/") and isinstance(error, ConnectionResetError)
            ):
                raise BadAnswer("the answer is not HTTP") from error
            raise

    def _send(self, data: bytes, deadline_s: float) -> None:
        left = memoryview(data)
        while left:
            self._sock.settimeout(left_s(deadline_s, self._now))
            left = left[self._sock.send(left) :]

    def _receive(self, deadline_s: float, most_bytes: int = _RECEIVE_BYTES) -> bytes:
        self._sock.settimeout(left_s(deadline_s, self._now))
        return self._sock.recv(most_bytes)


def left_s(deadline_s: float, now: Callable[[], float]) -> float:
    """Return the seconds until a deadline. Raises TimeoutError after it."""
    left = deadline_s - now()
    if left <= 0:
        raise TimeoutError
    return left


@contextmanager
def open_connection(scheme: str, host: str, port: int, deadline_s: float) -> Iterator[ClientConnection]:
    """Yield a connection, then close it. TLS checks the certificate. Resolving the name may exceed the deadline."""
    sock = socket.create_connection((host, port), left_s(deadline_s, time.monotonic))
    try:
        if scheme == "https":
            sock.settimeout(left_s(deadline_s, time.monotonic))
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        yield ClientConnection(sock)
    finally:
        sock.close()
