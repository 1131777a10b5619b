"""Clients made by hand, so that a test can do more than a well-behaved library: HTTP polls and raw WebSocket frames.

Nothing here is shared with the code under test, as frames are those of tests/support/websocket_codec.py.
"""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator

from tests.support.websocket_codec import BINARY, CLOSE, PONG, TEXT, close_told, frame_at, handshake, masked

DEADLINE_S = 30.0
SEPARATOR = "\x1e"


class Polling:
    def __init__(self, port: int) -> None:
        self._port, self._target = port, "/socket.io/?EIO=4&transport=polling"
        self.sid: str = json.loads(self._ask("GET")[1:])["sid"]
        self._target += f"&sid={self.sid}"

    def post(self, *packets: str) -> None:
        assert self._ask("POST", SEPARATOR.join(packets)) == "ok"

    def messages(self) -> Iterator[str]:
        """Poll for ever and yield packets, answering pings."""
        while True:
            for packet in self._ask("GET").split(SEPARATOR):
                if packet == "2":
                    self.post("3")
                else:
                    yield packet

    def _ask(self, method: str, body: str = "") -> str:
        """Send a request on a separate connection; return the body of its answer."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)) as connection:
            connection.request(method, self._target, body.encode())
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, text
            return text


class Closed(Exception):
    """The server closed the WebSocket; `code` is None when the socket ended without a close frame."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class WebSocket:
    """A WebSocket made by hand. `receive` returns messages; the server's close raises Closed.

    Raises AssertionError, with the head of the answer, if the handshake is refused.
    """

    def __init__(self, port: int, *, receive_buffer_bytes: int | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.sock = dial(port, receive_buffer_bytes)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="127.0.0.1")
        self._buffer = b""
        self.sock.sendall(handshake("localhost", "/socket.io/?EIO=4&transport=websocket"))
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        opening = self.text()
        assert opening[0] == "0"

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
