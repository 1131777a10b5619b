"""Which connections and requests there is room for, over socket pairs; and the listening socket of the server."""

import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import gevent
import gevent.socket
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.metrics import ACCEPT_FAILURES, HTTP_CONNECTIONS, HTTP_ENDED
from headgate.transport import http_admission, http_server
from headgate.transport.http_admission import (
    ACCEPT_AGAIN_S,
    EXHAUSTED_LOG_S,
    PLACES_TAKEN_PAUSE_S,
    HttpAdmission,
    HttpConnections,
)
from headgate.transport.http_answers import Answer
from headgate.transport.http_connection import HttpConnection
from headgate.transport.http_limits import BACKLOG, HttpLimits
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_socket import NativeSocket
from tests.support.certificates import Authority
from tests.support.listening import granted, places_of
from tests.support.session_clock import until

ONE, OTHER = "192.0.2.1", "192.0.2.2"


class Connection(HttpConnection):
    """Stands for a connection, as far as the admission uses one."""

    def __init__(self) -> None:
        self.is_reserved = False
        self.ours, self.far = socket.socketpair()
        self.far.setblocking(False)
        self.fileno = self.ours.fileno

    def close(self) -> None:
        self.ours.close()
        self.far.close()


class Door:
    """An admission, and the connections that came to it; `pauses` are those in which it accepts nothing."""

    def __init__(self, **limits: Any) -> None:
        self.pauses: list[float] = []
        self.admission = HttpAdmission(HttpLimits(**limits), self.pauses.append)
        self.taken: list[Connection] = []
        self.is_full = False

    @property
    def connections(self) -> Any:
        return self.admission.connections

    def come(self, address: str = ONE) -> Answer | None:
        """Have a connection come, which is the last of `taken` then; return the answer that refuses it."""
        assert self.admission.may_accept()
        self.taken.append(Connection())
        return self.admission.take_in(self.taken[-1], (address, 5), is_for_clients=not self.is_full)

    def take(self, address: str = ONE) -> Connection:
        """Have a connection come, and be taken in."""
        assert self.come(address) is None
        return self.taken[-1]

    def cannot_accept(self) -> bool:
        """Return whether the next connection has to wait to be accepted."""
        return not self.admission.may_accept()

    def over(self, connection: Connection) -> None:
        self.connections.close(connection)

    @property
    def ended(self) -> list[bool]:
        """Which connections the server has ended."""
        return [ended(connection.far) for connection in self.taken]

    def close(self) -> None:
        for connection in self.taken:
            connection.close()


OpenDoor = Callable[..., Door]


@pytest.fixture
def open_door() -> Iterator[OpenDoor]:
    with ExitStack() as ending:
        yield lambda **limits: ending.enter_context(closing(Door(**limits)))


def ended(peer: socket.socket) -> bool:
    """Return whether the server has ended a connection."""
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False


def test_an_address_with_one_too_many_loses_the_connection_that_has_waited_longest(open_door: OpenDoor) -> None:
    """A connection at work stays; another address is not touched."""
    door = open_door(max_connections_per_address=2)
    door.take(OTHER)
    door.connections.work(door.take())
    door.take()
    door.take()

    assert door.ended == [False, False, True, False]
    assert (door.connections.count_at(ONE), door.connections.count_at(OTHER)) == (2, 1)


def test_an_address_whose_connections_all_work_is_refused_one_more(open_door: OpenDoor) -> None:
    """429, with the name of the limit; another address is not."""
    door = open_door(max_connections_per_address=2)
    for _ in range(2):
        door.connections.work(door.take())
    answer = door.come()

    assert answer is not None
    assert (answer.status[:4], b"connections_per_address (at most 2)" in answer.body) == ("429 ", True)
    assert door.come(OTHER) is None


def test_an_address_has_room_again_when_a_connection_of_it_is_over(open_door: OpenDoor) -> None:
    """A limit counts open connections; 0 is no limit."""
    door, unlimited = open_door(max_connections_per_address=1), open_door(max_connections_per_address=0)
    for _ in range(3):
        connection = door.take()
        door.connections.work(connection)
        door.over(connection)
    for _ in range(50):
        unlimited.connections.work(unlimited.take())


def test_one_address_has_an_eighth_of_the_descriptors_at_most(open_door: OpenDoor) -> None:
    """A higher setting is cut to that share, and the share is never below one."""
    door = open_door(max_connections_per_address=100)
    for allowed, limit in ((800, 100), (80, 10), (1, 1), (None, 100)):
        assert door.admission._per_address(allowed) == limit


@pytest.mark.parametrize(("descriptors", "most"), [(8, None), (None, 2), (800, 2)])
def test_http_has_a_quarter_of_the_descriptors_at_most(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch, descriptors: int | None, most: int | None
) -> None:
    """Or as many as it may have. The longest waiter goes, of whatever address; when all work, the newest: 503."""
    monkeypatch.setattr(http_admission, "descriptor_limit", lambda: descriptors)
    door = open_door(max_connections_per_address=0, max_connections=most)
    door.take(ONE)
    second, third = door.take(OTHER), door.take(OTHER)
    assert door.ended == [True, False, False]
    for connection in (second, third):
        door.connections.work(connection)
    monkeypatch.setattr(http_admission, "places", lambda: 1)
    asks_for_health = door.take(ONE)
    assert asks_for_health.is_reserved
    door.connections.work(asks_for_health)
    answer = door.come()

    assert answer is not None
    assert (answer.status[:4], "Retry-After" in dict(answer.headers)) == ("503 ", True)


class TestBehindAProxy:
    """All connections are the proxy's, and each request names its address."""

    def ask(self, door: Door, connection: Connection, address: str) -> str | None:
        """Let a request come in on a connection; return the status with which it is refused."""
        door.connections.work(connection)
        return refused(door, connection, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": f"198.51.100.9, {address}"})

    def test_requests_count_for_the_address_that_the_proxy_names(self, open_door: OpenDoor) -> None:
        """The third of one client is refused; another client is served on the same connection."""
        door = open_door(max_connections_per_address=2, proxies=1)
        first, second, third = door.take("10.0.0.1"), door.take("10.0.0.1"), door.take("10.0.0.1")

        assert [self.ask(door, each, "203.0.113.5") for each in (first, second, third)] == [None, None, "429 Too Many Requests"]
        assert self.ask(door, third, "203.0.113.6") is None
        door.admission.between_requests(first)
        assert door.connections.count_at("203.0.113.5") == 1
        assert self.ask(door, third, "203.0.113.5") is None
        assert not any(door.ended)

    def test_a_connection_of_the_client_that_waits_is_ended_for_a_newer_one(self, open_door: OpenDoor) -> None:
        """It is slow with its body, or with reading its answer."""
        door = open_door(max_connections_per_address=1, proxies=1)
        slow, newer = door.take("10.0.0.1"), door.take("10.0.0.1")
        assert self.ask(door, slow, "203.0.113.5") is None
        door.connections.wait(slow)

        assert self.ask(door, newer, "203.0.113.5") is None
        assert door.ended == [True, False]

    @pytest.mark.parametrize("limits", [{"proxies": 0}, {"max_connections_per_address": 0, "proxies": 1}])
    def test_requests_count_for_nobody_else(self, open_door: OpenDoor, limits: dict[str, int]) -> None:
        """Without a proxy of ours a client could name any address; without a limit there is nothing to count."""
        door = open_door(**{"max_connections_per_address": 1, **limits})
        connection = door.take()

        assert self.ask(door, connection, "203.0.113.5") is None
        assert door.connections.count_at("203.0.113.5") == 0


def refused(door: Door, connection: Connection, environ: dict[str, str]) -> str | None:
    """Return the status with which a request is refused; None for none."""
    answer = door.admission.refusal(connection, environ)
    return None if answer is None else answer.status


def test_a_process_without_a_descriptor_accepts_nothing_for_a_while(open_door: OpenDoor) -> None:
    """The listener stays readable, and would have it try for ever. It says so at most every ten seconds."""
    door, now_s, failures = open_door(), 1000.0, ACCEPT_FAILURES._value.get()
    door.admission._log_throttle = LogThrottle(lambda: now_s, every_s=EXHAUSTED_LOG_S)
    with capture_logs() as logs:
        for _ in range(3):
            door.admission.exhausted(OSError(errno.EMFILE, "none left"))
            now_s += EXHAUSTED_LOG_S / 2

    assert (door.pauses, ACCEPT_FAILURES._value.get()) == ([ACCEPT_AGAIN_S] * 3, failures + 3)
    assert [(line["event"], line["reason"]) for line in logs] == [("cannot accept connections", "none left")] * 2


class TestReservedPlaces:
    """Clients have all descriptors that they may have."""

    @pytest.fixture
    def full(self, open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch) -> Door:
        """A door with three reserved places, and no room otherwise."""
        monkeypatch.setattr(http_admission, "places", lambda: 3)
        door = open_door()
        door.is_full = True
        return door

    @pytest.mark.parametrize("path", ["/livez", "/healthz", "/metrics"])
    def test_a_health_page_is_answered(self, full: Door, path: str) -> None:
        """Its address does not matter."""
        assert refused(full, full.take(), {"PATH_INFO": path, "REMOTE_ADDR": ONE}) is None

    @pytest.mark.parametrize("path", ["/", "/socket.io/", "/livez/", "/healthz2"])
    def test_everything_else_is_refused(self, full: Door, path: str) -> None:
        """503, and counted. It is logged at most every ten seconds."""
        ended_before = HTTP_ENDED.labels("no descriptor")._value.get()
        with capture_logs() as logs:
            for _ in range(3):
                assert refused(full, full.take(), {"PATH_INFO": path, "REMOTE_ADDR": ONE}) == "503 Service Unavailable"
        assert HTTP_ENDED.labels("no descriptor")._value.get() == ended_before + 3
        assert [line["event"] for line in logs] == ["no room for new clients"]

    def test_who_waits_in_a_reserved_place_makes_room_for_those_who_come(self, full: Door) -> None:
        """Half of them; not before a moment has passed, in which their requests could have come."""
        for _ in range(3):
            full.take()
        assert full.cannot_accept()
        assert not any(full.ended)

        assert full.cannot_accept()
        assert full.ended == [True, True, False]
        assert full.pauses == [PLACES_TAKEN_PAUSE_S] * 2
        full.over(full.taken[0])
        full.take()

    def test_they_make_room_where_descriptors_end_before_the_places(self, full: Door) -> None:
        """Other code may have some of the descriptors of the places."""
        full.take()
        full.take()
        for _ in range(2):
            assert full.admission.may_accept()
            full.admission.exhausted(OSError(errno.EMFILE, "none left"))
        assert full.ended == [True, False]

    def test_a_page_that_is_being_made_is_not_ended(self, full: Door) -> None:
        first, _, last = (full.take() for _ in range(3))
        full.connections.work(first)
        full.connections.work(last)
        for _ in range(3):
            full.cannot_accept()
        assert full.ended == [False, True, False]

    def test_nothing_is_accepted_for_a_while_without_any_descriptor(self, full: Door) -> None:
        """Other code has the last one. A peer in a place makes room first."""
        full.take()
        failures, error = ACCEPT_FAILURES._value.get(), OSError(errno.EMFILE, "none left")
        full.admission.exhausted(error)
        full.over(full.taken[0])
        full.admission.exhausted(error)
        assert (full.pauses, ACCEPT_FAILURES._value.get()) == ([PLACES_TAKEN_PAUSE_S, ACCEPT_AGAIN_S], failures + 1)


Serve = Callable[..., HTTPServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"yes"]

    def make(**limits: Any) -> HTTPServer:
        server = HTTPServer(("127.0.0.1", 0), application, limits=HttpLimits(**limits))
        server.start()
        ending.callback(until, lambda: not len(server.connections))
        ending.callback(server.close)
        return server

    with ExitStack() as ending:
        yield make


ASK = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


def metric() -> float:
    return next(iter(HTTP_CONNECTIONS.collect())).samples[0].value


def test_connections_are_counted_until_they_are_over(serve: Serve) -> None:
    address = serve().address
    peers = [gevent.socket.create_connection(address) for _ in range(2)]
    until(lambda: metric() == 2)
    for peer in peers:
        peer.close()
    until(lambda: metric() == 0)


def test_a_server_accepts_again_when_there_is_room_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause; a peer waits in the kernel's queue until then, and nothing of the reserve is lost."""
    failed: list[OSError] = []

    class FailsOnce(NativeSocket):
        def _accept(self) -> tuple[int, Any]:
            if not failed:
                failed.append(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
                raise failed[0]
            accepted: tuple[int, Any] = super()._accept()  # type: ignore[misc]
            return accepted

    monkeypatch.setattr(http_admission, "ACCEPT_AGAIN_S", 0.001)
    monkeypatch.setattr(http_server, "NativeSocket", FailsOnce)
    with closing(gevent.socket.create_connection(serve().address, 30)) as peer:
        peer.sendall(ASK)
        assert peer.recv(1000).endswith(b"yes")
    assert failed


def test_a_server_that_was_closed_in_a_pause_stays_so(serve: Serve) -> None:
    """Its pause is over, and it has no listener any more."""
    server = serve()
    server._pause(0.0)
    server.close()
    gevent.sleep(0.001)
    server.accept()
    with pytest.raises(ConnectionRefusedError):
        gevent.socket.create_connection(server.address, 30)


@pytest.mark.parametrize("of_tuple", [True, False])
def test_a_server_serves_until_it_is_closed(of_tuple: bool) -> None:
    """On an address, or on a socket that already listens."""
    listener = ("127.0.0.1", 0) if of_tuple else gevent.socket.create_server(("127.0.0.1", 0))
    server = HTTPServer(listener, lambda environ, start_response: [])
    serving = gevent.spawn(server.serve_forever)
    gevent.sleep(0)
    assert server.server_port > 0
    server.stop(timeout=1)
    with gevent.Timeout(30):
        serving.join()
    assert serving.successful()


def test_an_adopted_connection_too_many_is_refused_without_waiting_for_its_peer(serve: Serve) -> None:
    """The sibling has already read its request, so nothing more comes, and the server goes on at once."""
    server, busy = serve(max_connections_per_address=1), Connection()
    server.connections.open(busy, "127.0.0.1")
    server.connections.work(busy)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname(), 30)
        accepted, _ = listener.accept()
    with peer, gevent.Timeout(30):
        server.adopt(accepted.detach(), ASK)
        assert peer.recv(1000).startswith(b"HTTP/1.1 429 ")
        assert peer.recv(1) == b""
    assert len(server.connections) == 1
    server.connections.close(busy)
    busy.close()


def test_as_many_connections_may_wait_as_the_kernel_lets_wait() -> None:
    """All clients may come back at once, and one that finds no place in the queue is a second late, or three, or seven."""
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [])
    server.init_socket()
    assert server.socket is not None
    with closing(server.socket):
        assert places_of(server.socket) == granted(BACKLOG)


STEPS = st.tuples(
    st.sampled_from(["open", "wait", "work", "close", "attribute"]), st.integers(0, 9), st.sampled_from(["a", "b", None])
)


@given(st.lists(STEPS, max_size=200))
def test_counts_and_order_are_those_of_a_list(steps: list[tuple[str, int, str | None]]) -> None:
    """The longest waiter, in all and of each address, is found after any history."""
    connections: Any = HttpConnections()
    addresses: dict[int, str | None] = {}
    waiting: dict[str | None, list[int]] = {"all": [], "a": [], "b": [], None: []}

    def leave(number: int, names: Iterable[str | None]) -> None:
        for name in names:
            waiting[name] = [each for each in waiting[name] if each != number]

    for step, number, address in steps:
        if step == "open" and number not in addresses:
            connections.open(number, address)
            addresses[number] = address
            waiting["all"].append(number)
            waiting[address].append(number)
        elif step == "attribute":
            connections.attribute(number, address)
            if number in addresses and addresses[number] != address:
                addresses[number] = address
                if number in waiting["all"]:
                    leave(number, ("a", "b", None))
                    waiting[address].append(number)
        elif step == "wait":
            connections.wait(number)
            if number in addresses and number not in waiting["all"]:
                waiting["all"].append(number)
                waiting[addresses[number]].append(number)
        elif step in ("work", "close"):
            getattr(connections, step)(number)
            leave(number, list(waiting))
            if step == "close":
                addresses.pop(number, None)
        assert len(connections) == len(addresses)
        assert connections.longest_waiting() == next(iter(waiting["all"]), None)
        for name in ("a", "b"):
            assert connections.count_at(name) == list(addresses.values()).count(name)
            assert connections.longest_waiting(name) == next(iter(waiting[name]), None)
    for number in addresses:
        connections.close(number)
    assert not any([connections._address_of, connections._waiting, connections._at]), (
        "nothing is remembered of those that are over"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"certfile": "none.pem", "keyfile": "1.key"}, "certfile 'none.pem' with keyfile '1.key': there is no 'none.pem'"),
        ({"certfile": "1.pem", "keyfile": "none.key"}, "there is no 'none.key'"),
        ({"certfile": "1.pem", "keyfile": "2.key"}, "'2.key': the key is of another certificate"),
        ({"certfile": "1.pem"}, "certfile '1.pem': no PEM text of a certificate and its key"),
        ({"certfile": "1.pem", "keyfile": "locked.key"}, "certfile '1.pem' has a password, and none is given"),
        ({"certfile": "1.pem", "keyfile": "1.key", "ca_certs": "none.pem"}, "ca_certs 'none.pem': there is no 'none.pem'"),
    ],
)
def test_files_of_tls_that_cannot_be_used_are_named(
    options: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL's errors name no file, and a key with a password would wait for someone at the terminal."""
    authority = Authority(tmp_path)
    for host in ("localhost", "other.example"):
        authority.issue(host)
    key = load_pem_private_key((tmp_path / "1.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password"))
    (tmp_path / "locked.key").write_bytes(locked)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=reason):
        HTTPServer(("127.0.0.1", 0), lambda *_: [], **options)
