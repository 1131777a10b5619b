"""HTTP clients that take their time: missing bodies, dripping headers, unread answers.

In: a kind of client from SLOW, how many, from which addresses. Out: a crowd of open sockets that drip as their kind does, and
count those that the server has ended. The fault suite and the bench use the same ones; a new attack is a line in SLOW.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

DRIP_S = 0.2
CONNECT_S = 10.0
# Beyond this no one client sends: a server that takes it all has no limit.
MAX_SENT_BYTES = 4 * 1024 * 1024
SMALL_BUFFER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SlowClient:
    """One kind.

    Attributes:
        method, path, headers, body: the request as far as it comes at once; `{token}` in a header is a caller's.
            Without a method there is no request, only the body.
        drip: what follows, once every DRIP_S.
        times: how often the request is sent, one after the other.
        half_closes: it ends its own side after that.
        reason: as what `headgate_http_ended_total` counts it, where it is the gateway that ends it.
    """

    method: str = ""
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    unfinished: bool = False
    body: bytes = b""
    drip: bytes = b""
    times: int = 1
    half_closes: bool = False
    reason: str = ""

    def opening(self, token: str) -> bytes:
        """Return what is sent at once."""
        if not self.method:
            return self.body
        lines = "".join(f"{name}: {value.format(token=token)}\r\n" for name, value in self.headers.items())
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}"
        return (head.encode() + (b"" if self.unfinished else b"\r\n") + self.body) * self.times


_JSON = {"Content-Type": "application/json", "Authorization": "Bearer {token}"}
_LONG = {**_JSON, "Content-Length": "60000"}
_CHUNKED = {**_JSON, "Transfer-Encoding": "chunked"}
_PUBLISH = "/api/v1/events"

SLOW = {
    "silent": SlowClient(reason="headers deadline"),
    "drip-request-line": SlowClient(body=b"G", drip=b"E", reason="headers deadline"),
    "drip-headers": SlowClient("GET", unfinished=True, drip=b"X: y\r\n", reason="headers deadline"),
    "huge-header": SlowClient("GET", headers={"X": "y" * 1_000_000}, reason="bad request"),
    "silent-body": SlowClient("POST", _PUBLISH, _LONG, reason="body deadline"),
    "silent-body-no-token": SlowClient("POST", _PUBLISH, {**_LONG, "Authorization": "Bearer x"}, reason="body deadline"),
    "drip-body": SlowClient("POST", _PUBLISH, _LONG, drip=b"x", reason="body deadline"),
    "drip-chunked": SlowClient("POST", _PUBLISH, _CHUNKED, drip=b"1\r\nx\r\n", reason="body deadline"),
    "drip-chunk-size": SlowClient("POST", _PUBLISH, _CHUNKED, body=b"1", drip=b"0", reason="body deadline"),
    "drip-trailers": SlowClient("POST", _PUBLISH, _CHUNKED, body=b"0\r\n", drip=b"x: y\r\n", reason="body deadline"),
    "expect-continue": SlowClient("POST", _PUBLISH, {**_LONG, "Expect": "100-continue"}, reason="body deadline"),
    "silent-post-of-a-poll": SlowClient("POST", "/socket.io/?EIO=4&transport=polling&sid=none", {"Content-Length": "60000"}),
    "half-closed": SlowClient("POST", _PUBLISH, _LONG, body=b"{", half_closes=True),
    "unread-pipelined": SlowClient("GET", "/livez", times=2000, reason="answer deadline"),
    "unread-static": SlowClient("GET", "/headgate/demo.js", times=20, reason="answer deadline"),
    "idle": SlowClient("GET", "/livez"),
}


class Crowd:
    """Many clients of one kind. Use as a context manager: they leave at its end.

    Args:
        addresses: where they come from in turn; loopback has 127.0.0.0/8.
    """

    def __init__(
        self, port: int, kind: SlowClient, count: int, *, addresses: Sequence[str] = ("127.0.0.1",), token: str = ""
    ) -> None:
        self._kind = kind
        self._open: dict[int, socket.socket] = {}
        self._unsent: dict[int, bytes] = {}
        self._sent: dict[int, int] = {}
        self._poll = select.poll()
        self._dripped_s = time.monotonic()
        self.ended = 0
        opening = kind.opening(token)
        try:
            for number in range(count):
                self._add(port, addresses[number % len(addresses)], opening)
                self.go_on()
        except BaseException:
            self.close()
            raise

    @property
    def open(self) -> int:
        """How many the server has not ended."""
        return len(self._open)

    def go_on(self, wait_s: float = 0.0) -> None:
        """Send as much as fits, drip if it is time, and collect the ended connections. Waits at most so long for an end."""
        now_s = time.monotonic()
        if self._kind.drip and now_s - self._dripped_s >= DRIP_S:
            self._dripped_s = now_s
            for fd in self._open:
                if not self._unsent.get(fd):
                    self._unsent[fd] = self._kind.drip
        for fd in list(self._unsent):
            self._send(fd)
        for fd, _ in self._poll.poll(wait_s * 1000):
            self._end(fd)

    def close(self) -> None:
        """Leave. Idempotent."""
        for sock in self._open.values():
            sock.close()
        self._open.clear()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _add(self, port: int, address: str, opening: bytes) -> None:
        sock = socket.socket()
        # Before connecting (tcp(7)): what is not read fills it soon.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        sock.bind((address, 0))
        sock.settimeout(CONNECT_S)
        try:
            sock.connect(("127.0.0.1", port))
        except OSError:
            sock.close()
            self.ended += 1
            return
        sock.setblocking(False)
        fd = sock.fileno()
        self._open[fd], self._unsent[fd], self._sent[fd] = sock, opening, 0
        self._poll.register(fd, select.POLLRDHUP)
        self._send(fd)

    def _send(self, fd: int) -> None:
        sock, data = self._open.get(fd), self._unsent.get(fd, b"")
        if sock is None:
            self._unsent.pop(fd, None)
            return
        if data and self._sent[fd] < MAX_SENT_BYTES:
            try:
                sent = sock.send(data)
            except BlockingIOError:
                return
            except OSError:
                self._end(fd)
                return
            self._sent[fd] += sent
            self._unsent[fd] = data[sent:]
        if not self._unsent[fd]:
            del self._unsent[fd]
            if self._kind.half_closes:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)

    def _end(self, fd: int) -> None:
        sock = self._open.pop(fd, None)
        if sock is not None:
            self._poll.unregister(fd)
            self._unsent.pop(fd, None)
            sock.close()
            self.ended += 1
