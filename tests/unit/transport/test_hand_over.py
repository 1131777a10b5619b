"""A connection with a next request that names a session of another process goes on there, with the bytes that were read of it."""

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from headgate.transport.http_routes import BeginsInHub
from headgate.transport.http_server import HTTPServer, finish_requests
from tests.support.epoll_sets import Watched, stale, watched
from tests.support.session_clock import read_all, turn, until

FOREIGN, OWN = b"BB", b"AA"


def asking(owner: bytes | None = None, more: bytes = b"") -> bytes:
    """Return a request, of a session of this owner if there is one."""
    query = b"" if owner is None else b"?sid=" + owner
    return b"GET /elsewhere" + query + b" HTTP/1.1\r\nHost: test\r\n" + more + b"\r\n"


class Process:
    """A process that shares its port. `to_owner` hands over to the other one, and a test may do something first."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.other: Process | None = None
        self.bodies: list[bytes] = []
        self.asked: list[bytes] = []
        self.handing_over: Callable[[int], object] = lambda descriptor: None
        routes = {("GET", "/socket"): BeginsInHub(lambda request: None)}  # so requests are tried in the hub first
        self.server = HTTPServer(("127.0.0.1", 0), self._application, routes=routes)
        self.server.start()
        self.server.to_owner = self.to_owner
        self.peers: list[socket.socket] = []

    def _application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.bodies.append(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Length", str(len(self.name)))])
        return [self.name]

    def to_owner(self, received: bytes, descriptor: int) -> bool:
        self.asked.append(received)
        is_foreign = self.other is not None and b"sid=" + FOREIGN in received.partition(b"\r\n")[0]
        if self.other is not None and is_foreign:
            self.handing_over(descriptor)
            self.other.server.adopt(os.dup(descriptor), received)
        return is_foreign

    def connect(self, sends: bytes) -> socket.socket:
        """Have a connection accepted, on which something has come already."""
        theirs = socket.create_connection(self.server.address)
        theirs.setblocking(False)
        self.peers.append(theirs)
        theirs.sendall(sends)
        gevent.get_hub().loop.run_callback(self.server.accept)
        return theirs

    def close(self) -> None:
        self.server.close()
        for sock in self.peers:
            sock.close()
        turn()


@pytest.fixture
def one() -> Iterator[Process]:
    """The process that accepts connections; the other one owns the foreign sessions."""
    one, other = Process(b"one"), Process(b"other")
    one.other = other
    yield one
    one.close()
    other.close()


@pytest.fixture
def other(one: Process) -> Process:
    assert one.other is not None
    return one.other


def hears(peer: socket.socket, ending: bytes) -> None:
    """Wait until the peer has been sent something that ends so."""
    received = [b""]

    def has_come() -> bool:
        received[0] += read_all(peer)
        return received[0].endswith(ending)

    until(has_come)


def counted(process: Process) -> int:
    """Return how many connections of HTTP a process has."""
    turn()
    return len(process.server.connections)


def test_a_session_of_nobody_else_stays(one: Process, other: Process) -> None:
    """Its request is answered here, by a handler; one without a session asks no process."""
    hears(one.connect(asking(OWN)), b"one")
    hears(one.connect(asking()), b"one")
    assert (len(one.asked), other.bodies) == (1, [])


@pytest.mark.parametrize("first", [b"", asking()])
def test_the_kernel_watches_a_connection_that_was_handed_over_for_its_owner_only(one: Process, first: bytes) -> None:
    """Its next byte would make libev rebuild the epoll set of the giving process, once for each connection."""
    given: list[Watched] = []
    one.handing_over = lambda descriptor: given.append(Watched(descriptor, os.fstat(descriptor).st_ino))
    peer = one.connect(first)
    if first:
        hears(peer, b"one")
    turn()  # the process waits for a request, and watches
    peer.sendall(asking(FOREIGN))
    hears(peer, b"other")
    assert len(given) == 1
    assert not watched() & set(given)


def test_an_owner_that_closes_before_the_giver_does_leaves_nothing_behind(one: Process, other: Process) -> None:
    """A busy giver still holds the connection when its answer has been given."""
    held: list[int] = []
    one.handing_over = lambda descriptor: held.append(os.dup(descriptor))
    peer = one.connect(asking(FOREIGN))
    hears(peer, b"other")
    peer.sendall(asking(more=b"Connection: close\r\n"))
    hears(peer, b"other")
    assert (counted(other), stale()) == (0, set())
    for each in held:
        os.close(each)


def test_a_process_that_ends_while_it_hands_over_takes_no_byte_of_the_connection(one: Process, other: Process) -> None:
    """It may be the owner's by then, though no message has said so yet."""
    waiting: list[gevent.Greenlet] = []

    def never_over(received: bytes, descriptor: int) -> bool:
        waiting.append(gevent.getcurrent())
        gevent.sleep(1000)
        return False

    one.server.to_owner = never_over
    peer = one.connect(asking(FOREIGN))
    until(lambda: waiting)
    (connection,) = one.server.connections._address_of
    one.to_owner(asking(FOREIGN), connection.fileno())
    peer.sendall(asking())
    waiting[0].kill()
    until(lambda: len(other.bodies) == 2)
    assert (one.bodies, counted(one), stale()) == ([], 0, set())


def test_a_connection_whose_peer_has_gone_meanwhile_is_dropped(other: Process) -> None:
    """It has no address any more."""
    ours = socket.socket()  # like a reset one, which is connected to nothing
    other.server.adopt(ours.detach(), b"")
    assert counted(other) == 0


def test_a_server_that_has_left_the_port_starts_to_accept_no_more(one: Process, other: Process) -> None:
    """Open or adopted connections have one more answer."""
    other.server.close()
    other.server.close()
    other.server.start()
    other.server.accept()
    hears(one.connect(asking(FOREIGN)), b"other")


@pytest.mark.parametrize("leave", [lambda server: server.leave(), lambda server: server.close()], ids=["leaves", "left"])
@pytest.mark.parametrize("begins", [b"", asking()], ids=["the first request", "a later request"])
def test_a_connection_to_a_server_that_leaves_the_port_ends_with_its_next_answer(
    one: Process, begins: bytes, leave: Callable[[HTTPServer], None]
) -> None:
    """`Connection: close` says so, as the process is about to end: a client may not repeat a request by itself."""
    peer = one.connect(begins)
    turn()
    if begins:
        hears(peer, b"one")
    leave(one.server)
    peer.sendall(asking())
    hears(peer, b"Connection: close\r\n\r\none")
    until(lambda: not counted(one))


def test_a_process_that_ends_answers_the_request_of_a_connection_that_it_has_just_accepted(one: Process) -> None:
    """Also without any time for the drain, as its client has connected for this request. One with an answer is idle."""
    peer = one.connect(b"")
    turn()
    one.server.close()
    ending = gevent.spawn(finish_requests, [one.server], 0)
    turn()
    assert not ending.ready()
    peer.sendall(asking())
    hears(peer, b"Connection: close\r\n\r\none")
    until(ending.ready)


def test_a_connection_that_has_had_an_answer_keeps_no_process_from_its_end(one: Process) -> None:
    """Its client knows that an idle connection may end."""
    peer = one.connect(b"")
    turn()
    assert not all(each.sent_bytes for each in one.server.connections)
    peer.sendall(asking())
    hears(peer, b"one")
    assert all(each.sent_bytes for each in one.server.connections)


def test_the_next_connection_is_left_to_others_for_a_while(one: Process) -> None:
    """As long as this process is asked to; it does not accept in that time."""
    left = [0.0005, 0.0005]
    one.server.leave_s = lambda: left.pop() if left else 0.0
    hears(one.connect(asking()), b"one")
    assert left == []


def test_answered_requests_are_logged_where_the_operator_asked_for_it(one: Process) -> None:
    logged: list[tuple[str, str, bool]] = []
    one.server.access_log = lambda exchange, size, seconds: logged.append(
        (exchange.environ["PATH_INFO"], exchange.status, size > 0)
    )
    hears(one.connect(asking()), b"one")
    turn()
    assert logged == [("/elsewhere", "200 OK", True)]
