"""The non-blocking socket of an HTTP connection, and the wait for its peer. Only this file uses gevent's TLS.

`recv` and `send` move as many bytes as they can now, or raise BlockingIOError. `wait` waits until they can continue and returns
the seconds, or None after the timeout. `await_bytes` calls back instead, with whether it was in time; the seconds are `waited_s`.
Only `wait` switches greenlets. Call `stop` before the descriptor is closed or given away.
"""

from __future__ import annotations

import _socket
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import gevent.socket
import gevent.ssl

from headgate.runtime.loop import WRITE, Arrivals, Signal, wait_until_writable
from headgate.runtime.tls_files import load_authorities, load_certificate

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Used in non-blocking mode. The C type is smaller than socket.socket, and monkey-patching does not change it.
NativeSocket: TypeAlias = _socket.socket
T = TypeVar("T")
_RESET = struct.pack("ii", 1, 0)
# The largest TLS record (RFC 8446 section 5.1).
RECORD_BYTES = 16384


class TlsSocket:
    """Gives a TLS socket the methods of a plain non-blocking one. The handshake is part of the first calls of `recv`.

    After a BlockingIOError of `send`, the next call must begin with the same bytes, because OpenSSL has encrypted them already.
    `close` sets `closed`.
    """

    def __init__(self, tls: gevent.ssl.SSLSocket) -> None:
        tls.settimeout(0.0)
        self._tls = tls
        self.closed = Signal()
        self.fileno: Callable[[], int] = tls.fileno
        self.family, self.setsockopt = tls.family, tls.setsockopt

    def recv(self, size: int) -> bytes:
        """Return the next bytes, and all others of their record, which a watcher of the descriptor would not see."""
        try:
            data: bytes = self._tls.read(size)
            while left := self._tls.pending():
                data += self._tls.read(left)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        return data

    def send(self, data: ReadableBuffer) -> int:
        try:
            return self._tls.write(memoryview(data)[:RECORD_BYTES])  # type: ignore[no-any-return]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def shutdown(self, how: int) -> None:
        at_once(self.fileno(), lambda sock: sock.shutdown(how))

    def close(self) -> None:
        self._tls.close()
        self.closed.set()


# The socket of a client.
ClientSocket: TypeAlias = NativeSocket | TlsSocket


class PeerSocket:
    """See the module. If it `is_taken`, `take_socket` has given its socket away."""

    __slots__ = ("_arrivals", "_began_s", "fileno", "is_taken", "recv", "send", "sock")

    def __init__(self, sock: ClientSocket) -> None:
        self.sock = sock
        self.recv: Callable[[int], bytes] = sock.recv
        self.send: Callable[[ReadableBuffer], int] = sock.send
        self.fileno: Callable[[], int] = sock.fileno
        self._arrivals: Arrivals | None = None
        self._began_s = monotonic()
        self.is_taken = False

    def take_socket(self, first_bytes: bytes) -> tuple[ClientSocket, bytes, bytes]:
        """Give the socket away before anything waits for it, as `HttpConnection.take_socket` does without a greenlet."""
        if self.is_taken:
            raise ConnectionResetError("this connection has been taken")
        self.is_taken = True
        return self.sock, b"", first_bytes

    def wait(self, events: int, timeout_s: float) -> float | None:
        began_s = monotonic()
        in_time = wait_until_writable(self.fileno(), timeout_s) if events == WRITE else self._reader().wait(timeout_s)
        return monotonic() - began_s if in_time else None

    def await_bytes(self, timeout_s: float, arrived: Callable[[bool], object]) -> None:
        self._began_s = monotonic()
        (self._arrivals or self._reader()).begin(arrived, timeout_s)

    @property
    def waited_s(self) -> float:
        return monotonic() - self._began_s

    def stop(self) -> None:
        if self._arrivals is not None:
            self._arrivals.close()
            self._arrivals = None

    def _reader(self) -> Arrivals:
        if self._arrivals is None:
            self._arrivals = Arrivals(self.fileno())
        return self._arrivals

    def close(self) -> None:
        self.stop()
        self.sock.close()


def with_tls(sock: NativeSocket, context: ssl.SSLContext) -> TlsSocket:
    """Return a TLS socket in place of an accepted one. Raises OSError if its peer has gone."""
    inner = gevent.socket.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())
    return TlsSocket(context.wrap_socket(inner, server_side=True, do_handshake_on_connect=False))


def tls_context(certfile: str, keyfile: str | None = None, **options: Any) -> ssl.SSLContext:
    """Return the context for options as of Python's former `ssl.wrap_socket`. Raises ValueError for an unusable file."""
    context = gevent.ssl.SSLContext(options.pop("ssl_version", gevent.ssl.PROTOCOL_TLS_SERVER))
    load_certificate(context, "", certfile, keyfile)
    if (ca_certs := options.pop("ca_certs", None)) is not None:
        load_authorities(context, "", ca_certs)
    context.verify_mode = options.pop("cert_reqs", context.verify_mode)
    if (ciphers := options.pop("ciphers", None)) is not None:
        context.set_ciphers(ciphers)
    if options:
        raise TypeError(f"unknown options {', '.join(sorted(options))}")
    return context  # type: ignore[no-any-return]


def set_options(sock: ClientSocket, send_buffer_bytes: int) -> None:
    """Make the kernel send at once, and buffer little for a client that does not read."""
    # Without it, the answer after a WebSocket upgrade waits 40 ms for the browser's delayed acknowledgement.
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel would otherwise buffer up to 4 MB for a client that does not read.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


def at_once(descriptor: int, call: Callable[[NativeSocket], T]) -> T:
    """Call a socket method on a descriptor, and leave it open. Never waits; raises as the method does."""
    sock = NativeSocket(fileno=descriptor)
    try:
        return call(sock)
    finally:
        sock.detach()


def is_readable(descriptor: int) -> bytes | None:
    """Return the next byte without taking it; empty at the end; None if nothing has come. Raises OSError."""
    try:
        return at_once(descriptor, lambda sock: sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return None


def say_last(descriptor: int) -> None:
    """Shut down the sending side."""
    with suppress(OSError):
        at_once(descriptor, lambda sock: sock.shutdown(socket.SHUT_WR))


def close_hard(descriptor: int) -> None:
    """Make closing discard the kernel's buffer for the peer, which it would otherwise keep for minutes."""
    with suppress(OSError):
        at_once(descriptor, lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET))


def end(descriptor: int) -> None:
    """Shut down a connection in both directions. An owner that waits for it sees the end."""
    close_hard(descriptor)
    with suppress(OSError):
        at_once(descriptor, lambda sock: sock.shutdown(socket.SHUT_RDWR))
