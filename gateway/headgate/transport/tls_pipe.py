"""TLS under a WebSocket: a pipe between the TLS socket of a browser and a plain socket, which is the session's.

A session writes in the hub and asks the kernel for room, which TLS cannot answer. So bytes go through a socket pair and two
greenlets, one for each direction; `carry` runs in the greenlet of the request. Each waits for the slower side, so back-pressure
and deadlines work as without TLS. When the session has closed its socket, the browser has LINGER_S to take the rest and to end
its side.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import gevent.socket
import gevent.ssl

from headgate.runtime.loop import later, spawn

from .peer_socket import NativeSocket, end, say_last

# A TLS record has at most so many bytes.
RECORD_BYTES = 16384
LINGER_S = 2.0


class PlainEnd(NativeSocket):
    """The session's socket. Closing it ends the pipe."""

    pipe: TlsPipe

    def close(self) -> None:
        """End it. Idempotent."""
        if self.fileno() >= 0:
            super().close()
            self.pipe.plain_closed()


class TlsPipe:
    """See the module. `plain` is the session's end, non-blocking."""

    def __init__(self, tls: gevent.ssl.SSLSocket) -> None:
        ours, theirs = socket.socketpair()
        self.plain = PlainEnd(fileno=ours.detach())
        self.plain.setblocking(False)
        self.plain.pipe = self
        self._inner = gevent.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=theirs.detach())
        self._tls = tls
        tls.settimeout(None)

    def carry(self) -> None:
        """Carry bytes both ways until one side is over; then close the inner socket. Switches greenlets. Once."""
        outward = spawn(self._carry_outward)
        try:
            with suppress(OSError):
                while data := self._tls.recv(RECORD_BYTES):
                    self._inner.sendall(data)
            with suppress(OSError):
                self._inner.shutdown(socket.SHUT_WR)
            outward.join()
        finally:
            outward.kill()
            self._inner.close()

    def plain_closed(self) -> None:
        """The session has closed its end."""
        later(LINGER_S, self._end)

    def _carry_outward(self) -> None:
        with suppress(OSError):
            while data := self._inner.recv(RECORD_BYTES):
                self._tls.sendall(data)
            say_last(self._tls.fileno())

    def _end(self) -> None:
        """End a connection whose browser takes no more, or goes on sending."""
        with suppress(OSError):
            end(self._tls.fileno())
