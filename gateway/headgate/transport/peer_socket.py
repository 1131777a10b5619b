"""The socket of an HTTP connection, as the server and the handler use gevent's: its types, and the socket below it.

gevent's own methods wait for the peer, and switch greenlets; those of `native` never do.
"""

from __future__ import annotations

import _socket
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class PeerSocket(Protocol):
    """A cooperative socket, or a TLS one: of this the handler reads requests, and to this it writes answers."""

    @property
    def family(self) -> int:
        """The address family."""

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None:
        """Set an option."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Say how long a call may wait; 0 for not at all."""

    def recv_into(self, buffer: WriteableBuffer, /) -> int:
        """Read what there is; 0 at the end."""

    def send(self, data: ReadableBuffer, /) -> int:
        """Write a part, and return how much that was."""

    def sendall(self, data: ReadableBuffer, /) -> None:
        """Write all."""

    def shutdown(self, how: int, /) -> None:
        """End a direction."""

    def close(self) -> None:
        """End it."""

    def __hash__(self) -> int:
        """Connections are counted by their sockets."""


class AcceptedSocket(PeerSocket, Protocol):
    """One that can be taken away from gevent."""

    def detach(self) -> int:
        """Return the descriptor, which is the caller's from now on."""

    def fileno(self) -> int:
        """Return the descriptor."""


# In its non-blocking mode. The C type itself: smaller than socket.socket, and out of reach of monkey-patching.
NativeSocket: TypeAlias = _socket.socket


def native(sock: PeerSocket | NativeSocket) -> NativeSocket:
    """Return the socket below gevent's, or itself. (A private corner of gevent: `_sock`.)"""
    return sock if isinstance(sock, NativeSocket) else sock._sock  # type: ignore[attr-defined]


def close_hard(sock: PeerSocket | NativeSocket) -> None:
    """Let closing a socket throw away what the kernel holds for its peer, for which it would try for many minutes."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
