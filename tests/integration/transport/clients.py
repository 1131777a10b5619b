"""Clients made by hand, so that a test can do more than a well-behaved library: HTTP polls and raw WebSocket frames.

Nothing here is shared with the code under test, as frames are those of tests/support/websocket_codec.py.
"""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.websocket_codec import BINARY, CLOSE, PONG, TEXT, close_told, frame_at, handshake, masked

DEADLINE_S = 30.0
SEPARATOR = "\x1e"


class Answer(NamedTuple):
    """An HTTP answer, read whole."""

    status: int
    body: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(port: int, method: str, target: str, body: str | bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
    """Send one HTTP request on a separate connection."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)) as connection:
        connection.request(method, target, body.encode() if isinstance(body, str) else body, headers or {})
        return read_answer(connection.getresponse())


def read_answer(answer: http.client.HTTPResponse) -> Answer:
    return Answer(answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()})


class Polling:
    """A long-polling session."""

    def __init__(self, port: int, path: str = "/socket.io/") -> None:
        self.port, self.path = port, path
        answer = ask(port, "GET", f"{path}?EIO=4&transport=polling")
        assert answer.status == 200, answer
        assert answer.body[0] == "0"
        self.opening: dict[str, Any] = json.loads(answer.body[1:])
        self.sid: str = self.opening["sid"]
        self._left: list[str] = []  # the rest of an answer after the expected packet

    @property
    def target(self) -> str:
        """Path and query of this session's requests."""
        return f"{self.path}?EIO=4&transport=polling&sid={self.sid}"

    def get(self) -> Answer:
        return ask(self.port, "GET", self.target)

    def post(self, *packets: str) -> Answer:
        return ask(self.port, "POST", self.target, SEPARATOR.join(packets))

    def packets(self) -> list[str]:
        """Return the packets of one poll, or those that `messages` left of the last."""
        if self._left:
            left, self._left = self._left, []
            return left
        answer = self.get()
        assert answer.status == 200, answer
        return answer.body.split(SEPARATOR)

    def messages(self) -> Iterator[str]:
        """Poll for ever and yield packets, answering pings."""
        while True:
            packet, *self._left = self.packets()
            if packet == "2":
                assert self.post("3").status == 200
            else:
                yield packet

    def join(self, namespace: str = "/") -> dict[str, Any]:
        """Connect to a namespace; return the data of CONNECT. Leaves the `auth` event that follows to the caller."""
        assert self.post("40" if namespace == "/" else f"40{namespace},").status == 200
        return connected(next(self.messages()), namespace)


class Closed(Exception):
    """The server closed the WebSocket; `code` is None when the socket ended without a close frame."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class WebSocket:
    """A WebSocket made by hand. `receive` returns messages; the server's close raises Closed."""

    def __init__(
        self,
        port: int,
        path: str = "/socket.io/",
        sid: str | None = None,
        *,
        headers: dict[str, str] | None = None,
        receive_buffer_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.sock = dial(port, receive_buffer_bytes)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="127.0.0.1")
        self._buffer = b""
        query = "EIO=4&transport=websocket" + (f"&sid={sid}" if sid else "")
        self.sock.sendall(handshake("localhost", f"{path}?{query}", headers))
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        status, *rest = head.decode().split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        self.opening: dict[str, Any] = {}
        if sid is None and self.status == 101:
            opening = self.receive()
            assert isinstance(opening, str)
            assert opening[0] == "0"
            self.opening = json.loads(opening[1:])

    def send(self, *messages: str | bytes) -> None:
        """Send whole messages, in one write."""
        self.sock.sendall(b"".join(masked(BINARY if isinstance(m, bytes) else TEXT, m) for m in messages))

    def receive(self) -> str | bytes:
        """Return the next message, skipping pongs.

        Raises:
            Closed: the server closed instead.
        """
        while True:
            while (frame := frame_at(self._buffer)) is None:
                self._more()
            payload, self._buffer = self._buffer[frame.start : frame.end], self._buffer[frame.end :]
            if frame.opcode == CLOSE:
                raise Closed(*close_told(payload))
            if frame.opcode != PONG:
                assert frame.opcode in (TEXT, BINARY), f"unexpected opcode {frame.opcode}"
                return payload.decode() if frame.opcode == TEXT else payload

    def text(self) -> str:
        """Return the next text message that is not an Engine.IO ping, answering pings."""
        while True:
            message = self.receive()
            assert isinstance(message, str)
            if message != "2":
                return message
            self.send("3")

    def end(self) -> Closed:
        """Return how the server closed, skipping earlier messages."""
        try:
            while True:
                self.receive()
        except Closed as closed:
            return closed

    def join(self, namespace: str = "/") -> dict[str, Any]:
        """Connect to a namespace and take the `auth` event; return the data of CONNECT."""
        self.send("40" if namespace == "/" else f"40{namespace},")
        data = connected(self.text(), namespace)
        assert '"auth"' in self.text()
        return data

    def close(self) -> None:
        """Drop the TCP connection without a close frame. Idempotent."""
        self.sock.close()

    def _more(self) -> None:
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = self.sock.recv(262144)
        if not data:
            raise Closed(None)
        self._buffer += data


def connected(packet: str, namespace: str) -> dict[str, Any]:
    """Check a CONNECT packet and return its data."""
    prefix = "40" if namespace == "/" else f"40{namespace},"
    assert packet.startswith(prefix), packet
    data: dict[str, Any] = json.loads(packet[len(prefix) :])
    return data


def dial(port: int, receive_buffer_bytes: int | None = None) -> socket.socket:
    """Open a TCP connection; a small receive buffer must be set before connecting (tcp(7))."""
    sock = socket.socket()
    if receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.settimeout(DEADLINE_S)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@contextlib.contextmanager
def closing(*clients: WebSocket) -> Iterator[None]:
    """Drop the clients' connections at the end."""
    try:
        yield
    finally:
        for client in clients:
            client.close()
