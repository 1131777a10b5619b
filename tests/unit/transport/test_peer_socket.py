"""The socket below gevent's, and the end of a connection whose peer accepts nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import gevent.socket
import pytest

from headgate.transport.peer_socket import AcceptedSocket, close_hard, native


@pytest.fixture
def connection() -> Iterator[tuple[AcceptedSocket, socket.socket]]:
    """A cooperative socket over TCP, and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as peer:
        accepted, _ = listener.accept()
        ours = gevent.socket.socket(fileno=accepted.detach())
        yield ours, peer
        ours.close()


def read_to_end(sock: socket.socket) -> None:
    """Read all there is, and the end."""
    while sock.recv(65536):
        pass


def test_the_native_socket_does_not_wait(connection: tuple[AcceptedSocket, socket.socket]) -> None:
    """It raises where the cooperative one would switch greenlets."""
    ours, peer = connection
    with pytest.raises(BlockingIOError):
        native(ours).recv(1)
    native(ours).send(b"x")

    assert peer.recv(1) == b"x"


def test_a_connection_that_is_closed_hard_is_reset(connection: tuple[AcceptedSocket, socket.socket]) -> None:
    """Its peer meets no orderly end: the kernel does not go on trying."""
    ours, peer = connection
    native(ours).send(b"x" * 1000)
    close_hard(ours)
    ours.close()

    with pytest.raises(ConnectionResetError):
        read_to_end(peer)


def test_a_connection_that_is_gone_may_be_closed_hard(connection: tuple[AcceptedSocket, socket.socket]) -> None:
    """Nothing is left to throw away."""
    ours, _ = connection
    ours.close()
    close_hard(ours)
