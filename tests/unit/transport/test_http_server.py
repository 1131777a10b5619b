"""Which connections the HTTP server takes in, over socket pairs that a scripted listener accepts: no port, no process."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.metrics import ACCEPT_FAILURES, HTTP_CONNECTIONS, HTTP_ENDED
from headgate.transport import descriptors, http_server
from headgate.transport.http_limits import BACKLOG, HttpLimits
from headgate.transport.http_routes import NeverWaits
from headgate.transport.http_server import ACCEPT_AGAIN_S, EXHAUSTED_LOG_S, PLACES_TAKEN_PAUSE_S, HTTPServer
from headgate.transport.peer_socket import NativeSocket
from tests.support.listening import granted, places_of
from tests.support.wsgi import Said

ONE, OTHER = "192.0.2.1", "192.0.2.2"
PEERS = 100


class Listener:
    """Stands for the listening socket: accepts the connections that the test has made, or fails as the kernel does."""

    family, type, proto, timeout = socket.AF_UNIX, socket.SOCK_STREAM, 0, 0.0

    def __init__(self) -> None:
        self.waiting: list[tuple[int, object] | OSError] = []
        self._socket = socket.socket()

    def _accept(self) -> tuple[int, object]:
        if not self.waiting:
            raise BlockingIOError
        accepted = self.waiting.pop(0)
        if isinstance(accepted, OSError):
            raise accepted
        return accepted

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class Accepting(HTTPServer):
    """Records when it stops to accept and when it starts again."""

    accepting = True

    def stop_accepting(self) -> None:
        self.accepting = False

    def start_accepting(self) -> None:
        self.accepting = True


class Door:
    """A server and the peers that came to it."""

    def __init__(self, **limits: Any) -> None:
        self.listener = Listener()
        self.server = Accepting(("127.0.0.1", 0), lambda environ, start_response: [], limits=HttpLimits(**limits))
        self.server.socket = self.listener
        self.peers: list[socket.socket] = []
        self.accepted: list[Any] = []

    def connect(self, address: str = ONE) -> socket.socket:
        """Have a peer wait to be accepted."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.listener.waiting.append((ours.detach(), (address, 5)))
        self.peers.append(theirs)
        return theirs

    def accept(self) -> Any:
        """Have the server accept; return the socket of a connection that it took in."""
        accepted = self.server.do_read()
        if accepted is None:
            return None
        self.accepted.append(accepted[0])
        return accepted[0]

    def take(self, address: str = ONE) -> Any:
        """Connect, and be taken in."""
        self.connect(address)
        self.sock = self.accept()
        assert self.sock is not None
        return self.sock

    def close(self) -> None:
        """Drop everything."""
        for sock in [*self.accepted, *self.peers]:
            sock.close()
        self.server._held.close()
        self.listener.close()


@pytest.fixture
def open_door() -> Iterator[Callable[..., Door]]:
    """Make servers with these limits."""
    doors: list[Door] = []

    def make(**limits: Any) -> Door:
        doors.append(Door(**limits))
        return doors[-1]

    yield make
    for door in doors:
        door.close()


def ended(peer: socket.socket) -> bool:
    """Return whether the server has ended a connection."""
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False


def refused(application: Any) -> str | None:
    """Return the status with which an application refuses; None for none."""
    if application is None:
        return None
    said = Said()
    application({}, said)
    return said.status


def counted() -> float:
    """Return what the metric says."""
    (metric,) = HTTP_CONNECTIONS.collect()
    return metric.samples[0].value


def test_connections_are_counted_until_they_are_over(open_door: Callable[..., Door]) -> None:
    """In the metric, too."""
    door = open_door()
    first, second = door.take(), door.take()
    assert counted() == 2
    door.server.do_close(first)
    door.server.do_close(second)

    assert counted() == 0
    assert door.accept() is None


def test_an_address_with_one_too_many_loses_the_connection_that_has_waited_longest(open_door: Callable[..., Door]) -> None:
    """A connection at work stays; another address is not touched."""
    door = open_door(max_connections_per_address=2)
    elsewhere = door.take(OTHER)
    working, waiting = door.take(), door.take()
    door.server.connections.work(working)
    newest = door.take()

    assert [ended(peer) for peer in door.peers] == [False, False, True, False]
    assert door.server.connections.count_at(ONE) == 2
    assert {sock for sock in (elsewhere, working, newest, waiting) if sock in door.server.connections._address_of} == {
        elsewhere,
        working,
        newest,
    }
    waiting.close()


def test_an_address_whose_connections_all_work_is_refused_one_more(open_door: Callable[..., Door]) -> None:
    """429, told which limit; the next in the queue, of another address, is taken in the same turn."""
    door = open_door(max_connections_per_address=2)
    for sock in (door.take(), door.take()):
        door.server.connections.work(sock)
    refused, _ = door.connect(), door.connect(OTHER)

    assert door.accept() is not None
    assert door.server.connections.count_at(OTHER) == 1
    answer = refused.recv(1000)
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"connections_per_address (at most 2)" in answer
    assert ended(refused)


def test_an_address_has_room_again_when_a_connection_of_it_is_over(open_door: Callable[..., Door]) -> None:
    """Limits are on what there is at once."""
    door = open_door(max_connections_per_address=1)
    for _ in range(3):
        sock = door.take()
        door.server.connections.work(sock)
        door.server.do_close(sock)


def test_without_a_limit_one_address_may_have_any_number(open_door: Callable[..., Door]) -> None:
    """0 says so."""
    door = open_door(max_connections_per_address=0)
    for _ in range(50):
        door.server.connections.work(door.take())


def test_one_address_has_an_eighth_of_the_descriptors_at_most(
    open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A higher setting is cut to that share, and the share is never below one."""
    door = open_door(max_connections_per_address=100)
    for allowed, limit in ((800, 100), (80, 10), (1, 1), (None, 100)):
        monkeypatch.setattr(http_server, "descriptor_limit", lambda allowed=allowed: allowed)
        assert door.server._per_address() == limit


def test_http_has_a_quarter_of_the_descriptors_at_most(open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has waited longest goes, of whatever address; when all work, the newest is answered 503."""
    monkeypatch.setattr(http_server, "descriptor_limit", lambda: 8)
    door = open_door(max_connections_per_address=0)
    door.take(ONE)
    second, third = door.take(OTHER), door.take(OTHER)
    assert [ended(peer) for peer in door.peers] == [True, False, False]
    for sock in (second, third):
        door.server.connections.work(sock)
    monkeypatch.setattr(http_server, "places", lambda: 1)
    assert door.server.has_reserved_place(door.take(ONE))  # it may ask for health
    door.server.connections.work(door.sock)
    peer = door.connect(ONE)

    assert door.accept() is None
    answer = peer.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: " in answer


class TestBehindAProxy:
    """All connections are the proxy's: each request says whose it is."""

    def ask(self, door: Door, sock: Any, address: str) -> str | None:
        """Let a request come in on a connection; return the status with which it is refused."""
        door.server.connections.work(sock)
        return refused(door.server.refusal(sock, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": f"198.51.100.9, {address}"}))

    def test_requests_count_for_the_address_that_the_proxy_names(self, open_door: Callable[..., Door]) -> None:
        """The third of one client is refused; another client is served on the same connection."""
        door = open_door(max_connections_per_address=2, proxies=1)
        first, second, third = door.take("10.0.0.1"), door.take("10.0.0.1"), door.take("10.0.0.1")

        assert [self.ask(door, sock, "203.0.113.5") for sock in (first, second, third)] == [None, None, "429 Too Many Requests"]
        assert self.ask(door, third, "203.0.113.6") is None
        door.server.between_requests(first)
        assert door.server.connections.count_at("203.0.113.5") == 1
        assert self.ask(door, third, "203.0.113.5") is None
        assert not any(ended(peer) for peer in door.peers)

    def test_a_connection_of_the_client_that_waits_is_ended_for_a_newer_one(self, open_door: Callable[..., Door]) -> None:
        """It is slow with its body, or with reading its answer."""
        door = open_door(max_connections_per_address=1, proxies=1)
        slow, newer = door.take("10.0.0.1"), door.take("10.0.0.1")
        assert self.ask(door, slow, "203.0.113.5") is None
        door.server.connections.wait(slow)

        assert self.ask(door, newer, "203.0.113.5") is None
        assert [ended(peer) for peer in door.peers] == [True, False]
        slow.close()

    @pytest.mark.parametrize("limits", [{"proxies": 0}, {"max_connections_per_address": 0, "proxies": 1}])
    def test_requests_count_for_nobody_else(self, open_door: Callable[..., Door], limits: dict[str, int]) -> None:
        """Without a proxy of ours anybody could name any address; without a limit there is nothing to count."""
        door = open_door(**{"max_connections_per_address": 1, **limits})
        sock = door.take()

        assert self.ask(door, sock, "203.0.113.5") is None
        assert door.server.connections.count_at("203.0.113.5") == 0


class TestExhausted:
    """The process has no descriptor left, or no memory."""

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
    def test_the_server_accepts_nothing_for_a_while(
        self, open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """The listener stays readable, and would have it try for ever. It says so at most every ten seconds."""
        door = open_door()
        asked: list[tuple[float, Callable[[], None]]] = []
        now_s = 1000.0
        monkeypatch.setattr(http_server, "later", lambda delay_s, function: asked.append((delay_s, function)))
        monkeypatch.setattr(http_server, "time", SimpleNamespace(monotonic=lambda: now_s))
        failures = ACCEPT_FAILURES._value.get()
        door.server._stop_event.clear()  # as a server that has been started
        with capture_logs() as logs:
            for _ in range(3):
                door.listener.waiting.append(OSError(number, os.strerror(number)))
                assert door.accept() is None
                assert not door.server.accepting
                delay_s, again = asked.pop()
                again()
                assert (delay_s, door.server.accepting) == (ACCEPT_AGAIN_S, True)
                now_s += EXHAUSTED_LOG_S / 2

        assert ACCEPT_FAILURES._value.get() == failures + 3
        assert [(line["event"], line["reason"]) for line in logs] == [("cannot accept connections", os.strerror(number))] * 2

    def test_a_server_that_was_stopped_meanwhile_stays_so(
        self, open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its pause is over, and it has no listener any more."""
        door = open_door()
        monkeypatch.setattr(http_server, "later", lambda delay_s, function: function())
        door.listener.waiting.append(OSError(errno.EMFILE, "none left"))
        door.accept()

        assert not door.server.accepting

    def test_any_other_fault_of_accepting_is_let_out(self, open_door: Callable[..., Door]) -> None:
        """pywsgi sees to it."""
        door = open_door()
        door.listener.waiting.append(OSError(errno.EPERM, "a packet filter"))
        with pytest.raises(PermissionError):
            door.accept()


class TestReservedPlaces:
    """Clients have all descriptors that they may have."""

    @pytest.fixture
    def full(self, open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch) -> Door:
        """A door with three reserved places, and no room otherwise."""
        monkeypatch.setattr(http_server, "has_room", lambda listener_fd: False)
        monkeypatch.setattr(http_server, "places", lambda: 3)
        monkeypatch.setattr(descriptors, "places", lambda: 3)
        self.pauses: list[float] = []
        self.again: list[Callable[[], None]] = []

        def later(delay_s: float, function: Callable[[], None]) -> None:
            self.pauses.append(delay_s)
            self.again.append(function)

        monkeypatch.setattr(http_server, "later", later)
        door = open_door()
        door.server._stop_event.clear()  # as a server that has been started
        door.server._hold()
        return door

    @pytest.mark.parametrize("path", ["/livez", "/healthz", "/metrics"])
    def test_a_health_page_is_answered(self, full: Door, path: str) -> None:
        """Its address does not matter."""
        assert full.server.refusal(full.take(), {"PATH_INFO": path, "REMOTE_ADDR": ONE}) is None

    @pytest.mark.parametrize("path", ["/", "/socket.io/", "/livez/", "/healthz2"])
    def test_everything_else_is_refused(self, full: Door, path: str) -> None:
        """503, and counted."""
        ended_before = HTTP_ENDED.labels("no descriptor")._value.get()
        assert refused(full.server.refusal(full.take(), {"PATH_INFO": path, "REMOTE_ADDR": ONE})) == "503 Service Unavailable"
        assert HTTP_ENDED.labels("no descriptor")._value.get() == ended_before + 1

    def test_it_is_logged_at_most_every_ten_seconds(self, full: Door) -> None:
        """One line, however many are refused."""
        with capture_logs() as logs:
            for _ in range(3):
                full.take()
        assert [line["event"] for line in logs] == ["no room for new clients"]

    def test_who_waits_in_a_reserved_place_makes_room_for_those_who_come(self, full: Door) -> None:
        """Not before a moment has passed, in which its request could have come; nobody is ended for nobody."""
        for _ in range(3):
            full.take()
        assert full.accept() is None
        assert not any(ended(peer) for peer in full.peers)
        assert not full.server.accepting

        newest = full.connect()
        self.again.pop()()
        assert full.accept() is None
        assert [ended(peer) for peer in full.peers] == [True, True, False, False]
        assert self.pauses == [PLACES_TAKEN_PAUSE_S] * 2
        self.again.pop()()
        for sock in [sock for sock in full.accepted if not full.server.has_reserved_place(sock)]:
            sock.close()
        assert full.accept() is not None
        assert not ended(newest)

    def test_a_page_that_is_being_made_is_not_ended(self, full: Door) -> None:
        """The others are."""
        first, *_ = (full.take() for _ in range(3))
        full.server.connections.work(first)
        full.server.connections.work(full.sock)
        for _ in range(3):
            full.accept()
        assert [ended(peer) for peer in full.peers] == [False, True, False]

    def test_a_reserve_that_is_short_of_a_descriptor_keeps_nobody_waiting_for_longer(
        self, full: Door, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Refused peers that come again at once: a turn lasts as long as their requests, whose places the next ones get."""
        monkeypatch.setattr(descriptors, "places", lambda: 2)  # the third is a connection of the gateway's own
        full.server._held.lend()
        failures = ACCEPT_FAILURES._value.get()
        for _ in range(PEERS):
            full.connect()
        while full.listener.waiting:
            if (sock := full.accept()) is None:
                for sock in full.accepted:
                    full.server.do_close(sock)
                self.again.pop()()
        assert set(self.pauses) == {PLACES_TAKEN_PAUSE_S}
        assert sum(self.pauses) < 1
        assert ACCEPT_FAILURES._value.get() == failures

    def test_who_waits_in_a_short_reserve_makes_room_too(self, full: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        """Half of those that are in it."""
        monkeypatch.setattr(descriptors, "places", lambda: 2)
        full.server._held.lend()
        full.take()
        full.take()
        for _ in range(2):
            assert full.accept() is None
            self.again.pop()()
        assert [ended(peer) for peer in full.peers] == [True, False]

    def test_a_descriptor_of_the_reserve_is_held_again_before_anything_else_can_have_it(self, full: Door) -> None:
        """When the connection that had it is over, and when it was lent for nobody."""
        sock = full.take()
        assert len(full.server._held) == 2
        full.server.do_close(sock)
        assert len(full.server._held) == 3
        assert full.accept() is None
        assert len(full.server._held) == 3
        full.listener.waiting.append(OSError(errno.ENFILE, "none left in the system"))
        assert full.accept() is None
        assert len(full.server._held) == 3

    def test_nothing_is_accepted_for_a_while_when_no_descriptor_is_held(self, full: Door) -> None:
        """A connection would get one of the gateway's own."""
        full.server._held.close()
        full.server._hold = lambda: None  # type: ignore[method-assign]
        failures = ACCEPT_FAILURES._value.get()
        full.connect()
        assert full.accept() is None
        assert self.pauses == [ACCEPT_AGAIN_S]
        assert ACCEPT_FAILURES._value.get() == failures + 1
        fd, _ = full.listener.waiting.pop()  # type: ignore[misc]
        os.close(fd)


def connection_from_here() -> tuple[int, socket.socket]:
    """Return the descriptor of a connection that a sibling has accepted, and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    peer.settimeout(30)
    return accepted.detach(), peer


def test_an_adopted_connection_too_many_is_refused_without_waiting_for_its_peer(open_door: Callable[..., Door]) -> None:
    """Its request has been read already by the sibling, so nothing more comes: the server goes on at once."""
    door = open_door(max_connections_per_address=1)
    door.server.connections.work(door.take("127.0.0.1"))
    descriptor, peer = connection_from_here()
    with peer, gevent.Timeout(30):
        door.server.adopt(descriptor, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 429 ")
        assert peer.recv(1) == b""
    assert len(door.server.connections) == 1


def test_an_adopted_connection_is_refused_while_all_greenlets_are_taken() -> None:
    """Waiting for one would keep the client, and the sibling, waiting."""
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], spawn=1)
    busy = server.pool.spawn(gevent.sleep, 3600)
    descriptor, peer = connection_from_here()
    with peer, gevent.Timeout(30):
        server.adopt(descriptor, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 503 ")
    assert len(server.connections) == 0
    busy.kill()


def test_every_connection_of_a_bounded_number_of_greenlets_has_one_from_its_beginning() -> None:
    """Else those that wait in the loop would ask for more greenlets than there may be, where nobody can wait for one."""
    routes = {("GET", "/socket"): NeverWaits(lambda _: None)}
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], routes=routes, spawn=1)
    server.init_socket()
    accepted, peer = socket.socketpair()
    ours = NativeSocket(fileno=accepted.detach())
    ours.setblocking(False)
    server.do_handle(ours, (ONE, 5))
    assert server.full()
    peer.close()
    gevent.sleep(0)
    server.pool.kill()
    server.close()


def test_as_many_connections_may_wait_as_the_kernel_lets_wait() -> None:
    """All clients may come back at once, and one that finds no place in the queue is a second late, or three, or seven."""
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [])
    server.init_socket()
    with closing(server.socket):
        assert places_of(server.socket) == granted(BACKLOG)
