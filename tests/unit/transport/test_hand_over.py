"""A connection whose next request names a session of another process goes on there, with the bytes that were read of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from headgate.transport.detach import detach
from headgate.transport.http_answers import Answer
from headgate.transport.http_routes import NeverWaits, RoutedRequest
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_socket import NativeSocket
from tests.support.epoll_sets import Watched, stale, watched
from tests.support.session_clock import turn

FOREIGN, OWN = b"BB", b"AA"


def asking(path: bytes, owner: bytes | None = None, method: bytes = b"GET", more: bytes = b"") -> bytes:
    """Return a request, of a session of this owner if there is one."""
    query = b"" if owner is None else b"?sid=" + owner
    return method + b" " + path + query + b" HTTP/1.1\r\nHost: test\r\n" + more + b"\r\n"


class Process:
    """A process that shares its port: a server with a route that never waits, and an application."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.bodies: list[bytes] = []
        self.sockets: list[NativeSocket] = []
        self.handed: list[bytes] = []
        self.asked: list[bytes] = []
        self.owners: dict[bytes, Process] = {}
        self.server = HTTPServer(("127.0.0.1", 0), self._application, routes={("GET", "/socket"): NeverWaits(self._socket)})
        self.server.start()
        self.address = self.server.address
        self.server.to_owner = self._to_owner
        self.peers: list[socket.socket] = []

    def _socket(self, request: RoutedRequest) -> Answer | None:
        self.sockets.append(detach(dict(request.environ), b"socket of " + self.name)[0])
        return None

    def _application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.bodies.append(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Length", str(len(self.name)))])
        return [self.name]

    def _to_owner(self, received: bytes, descriptor: int) -> bool:
        self.asked.append(received)
        line, _, _ = received.partition(b"\r\n")
        for owner, process in self.owners.items():
            if b"sid=" + owner in line:
                self.handed.append(received)
                process.server.adopt(os.dup(descriptor), received)
                return True
        return False

    def connect(self, sends: bytes) -> socket.socket:
        """Have a connection accepted, on which something has come already."""
        theirs = socket.create_connection(self.address)
        theirs.setblocking(False)
        self.peers.append(theirs)
        theirs.sendall(sends)
        gevent.get_hub().loop.run_callback(self.server.accept)
        return theirs

    def close(self) -> None:
        """Drop every connection."""
        self.server.close()
        for sock in [*self.peers, *self.sockets]:
            sock.close()
        turn()


@pytest.fixture
def processes() -> Iterator[tuple[Process, Process]]:
    """The process that accepts connections, and the owner of the foreign sessions."""
    one, other = Process(b"one"), Process(b"other")
    one.owners[FOREIGN] = other
    yield one, other
    one.close()
    other.close()


def heard(peer: socket.socket, ending: bytes) -> bytes:
    """Return what the peer has been sent, up to this ending."""
    received = b""
    with gevent.Timeout(30):
        while not received.endswith(ending):
            turn()
            try:
                piece = peer.recv(10_000)
            except BlockingIOError:
                continue
            assert piece, received
            received += piece
    return received


def counted(process: Process) -> int:
    """Return how many connections of HTTP a process has."""
    turn()
    return len(process.server.connections)


def test_a_session_of_nobody_else_stays(processes: tuple[Process, Process]) -> None:
    """Its request is answered here, by a handler; one without a session asks nobody."""
    one, other = processes
    heard(one.connect(asking(b"/elsewhere", OWN)), b"one")
    heard(one.connect(asking(b"/elsewhere")), b"one")
    assert (len(one.asked), one.handed, other.bodies) == (1, [], [])


@pytest.mark.parametrize("first", [b"", asking(b"/elsewhere")])
def test_the_kernel_watches_a_connection_that_was_handed_over_for_its_owner_only(
    processes: tuple[Process, Process], first: bytes
) -> None:
    """Its next byte would make libev build the epoll set of the process that gave it away anew, once for each connection."""
    one, _ = processes
    given: list[Watched] = []
    hand_over = one.server.to_owner
    assert hand_over is not None

    def watched_hand_over(received: bytes, descriptor: int) -> bool:
        given.append(Watched(descriptor, os.fstat(descriptor).st_ino))
        return hand_over(received, descriptor)

    one.server.to_owner = watched_hand_over
    peer = one.connect(first)
    if first:
        heard(peer, b"one")
    turn()  # the process waits for a request, and watches
    peer.sendall(asking(b"/elsewhere", FOREIGN))
    heard(peer, b"other")
    assert len(given) == 1
    assert not watched() & set(given)


def test_an_owner_that_closes_before_the_giver_does_leaves_nothing_behind(processes: tuple[Process, Process]) -> None:
    """A giver that is busy still holds the connection when its answer has been given."""
    one, other = processes
    held: list[int] = []
    hand_over = one.server.to_owner
    assert hand_over is not None

    def held_hand_over(received: bytes, descriptor: int) -> bool:
        held.append(os.dup(descriptor))
        return hand_over(received, descriptor)

    one.server.to_owner = held_hand_over
    peer = one.connect(asking(b"/elsewhere", FOREIGN))
    heard(peer, b"other")
    peer.sendall(asking(b"/elsewhere", more=b"Connection: close\r\n"))
    heard(peer, b"other")
    assert (counted(other), stale()) == (0, set())
    for each in held:
        os.close(each)


def test_a_process_that_ends_while_it_hands_over_takes_no_byte_of_the_connection(processes: tuple[Process, Process]) -> None:
    """It may be the owner's by then, though nobody has said so yet."""
    one, other = processes
    waiting: list[gevent.Greenlet] = []
    hand_over = one.server.to_owner
    assert hand_over is not None

    def never_over(received: bytes, descriptor: int) -> bool:
        waiting.append(gevent.getcurrent())
        gevent.sleep(1000)
        return False

    one.server.to_owner = never_over
    peer = one.connect(asking(b"/elsewhere", FOREIGN))
    with gevent.Timeout(30):
        while not waiting:
            turn()
    (connection,) = one.server.connections._address_of
    hand_over(asking(b"/elsewhere", FOREIGN), connection.fileno())
    peer.sendall(asking(b"/elsewhere"))
    waiting[0].kill()
    with gevent.Timeout(30):
        while len(other.bodies) < 2:
            turn()
    assert (one.bodies, counted(one), stale()) == ([], 0, set())


def test_a_connection_whose_peer_has_gone_meanwhile_is_dropped(processes: tuple[Process, Process]) -> None:
    """It has no address any more."""
    _, other = processes
    ours = socket.socket()  # like one that has been reset: it is connected to nothing
    other.server.adopt(ours.detach(), b"")
    assert counted(other) == 0


def test_a_server_that_has_left_the_port_starts_to_accept_no_more(processes: tuple[Process, Process]) -> None:
    """Connections that are open, or adopted, go on."""
    one, other = processes
    other.server.stop_listening()
    other.server.stop_listening()
    other.server.start()
    other.server.accept()
    heard(one.connect(asking(b"/elsewhere", FOREIGN)), b"other")


def test_the_next_connection_is_left_to_others_for_a_while(processes: tuple[Process, Process]) -> None:
    """As long as this process is told; it does not accept meanwhile."""
    one, _ = processes
    asked: list[float] = []

    def leave_s() -> float:
        asked.append(0.0005)
        return asked[-1] if len(asked) < 3 else 0.0

    one.server.leave_s = leave_s
    heard(one.connect(asking(b"/elsewhere")), b"one")
    assert len(asked) >= 3


def test_answered_requests_are_logged_where_the_operator_asked_for_it(processes: tuple[Process, Process]) -> None:
    """Once each."""
    one, _ = processes
    logged: list[tuple[str, str, bool]] = []
    one.server.access_log = lambda exchange, size, seconds: logged.append(
        (exchange.environ["PATH_INFO"], exchange.status, size > 0)
    )
    heard(one.connect(asking(b"/elsewhere")), b"one")
    turn()
    assert logged == [("/elsewhere", "200 OK", True)]
