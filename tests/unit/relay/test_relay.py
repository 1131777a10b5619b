"""The relay of a process, over real sockets of this process: a request of a foreign session goes to its owner, and no further."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import gevent
import gevent.event
import gevent.socket
import pytest
from structlog.testing import capture_logs

from headgate.errors import InvalidRequest
from headgate.redis.keys import RELAYS
from headgate.redis.relays import LEASE_S
from headgate.relay import connection as links
from headgate.relay import directory, relay
from headgate.relay.handshake import Handshake
from headgate.relay.link import WINDOW_BYTES
from headgate.relay.owners import Owner
from headgate.relay.pipe import Out
from headgate.relay.relay import Relay
from headgate.settings import Settings
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_address import address_of
from tests.support.epoll_sets import stale
from tests.support.small_redis import SmallRedis

RANDOM = "abcdefghij0123456_-Z"
KEY = "a secret of this site, which is long enough"


@pytest.fixture(autouse=True)
def cooperative(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sockets let the loop run, as in a gateway, whose process gevent has patched."""
    for name in ("socket", "create_connection", "socketpair"):
        monkeypatch.setattr(socket, name, getattr(gevent.socket, name))
    with gevent.Timeout(60):
        yield


@pytest.fixture
def redis(monkeypatch: pytest.MonkeyPatch) -> SmallRedis:
    """The Redis of all gateways."""
    server = SmallRedis()
    monkeypatch.setattr(directory, "open_client", lambda *_, **__: server.client())
    return server


class Gateway:
    """A gateway process as far as relaying goes: an HTTP server whose application echoes, and its relay."""

    def __init__(self, name: str, row: int = 0, key: str = KEY) -> None:
        self.owner = Owner(name, row)
        self.environs: list[dict[str, Any]] = []
        self.server = HTTPServer(("127.0.0.1", 0), self._application)
        settings = Settings(redis_url="redis://127.0.0.1:1/0", internal_address=("127.0.0.1", 0), relay_key=key)
        self.relay = Relay(settings, self.owner, self.server.adopt)
        self.server.to_owner = self.relay.hand_over
        self.answer: Callable[[dict[str, Any]], bytes] = lambda environ: environ["wsgi.input"].read() or b"nothing"
        self.server.start()
        self.relay.start()

    @property
    def sid(self) -> str:
        return self.owner.letters + RANDOM

    def _application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.environs.append(environ)
        body = self.owner.gateway.encode() + b" " + self.answer(environ)
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    def connect(self) -> socket.socket:
        """Return a connection to its public port."""
        return socket.create_connection(("127.0.0.1", self.server.server_port))

    def ask(self, sid: str, body: bytes = b"", client: socket.socket | None = None) -> tuple[bytes, bytes]:
        """Ask over a connection, a new one if none is given; return the head and the body of the answer."""
        client = client or self.connect()
        client.sendall(request(sid, body))
        return answer_of(client)

    def close(self) -> None:
        self.relay.close()
        self.server.stop(timeout=1)


def request(sid: str, body: bytes = b"") -> bytes:
    return b"POST /socket.io/?EIO=4&sid=%b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (sid.encode(), len(body), body)


def answer_of(client: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += read(client)
    head, _, body = received.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < size:
        body += read(client)
    return head, body


def read(client: socket.socket) -> bytes:
    piece = client.recv(65536)
    assert piece, "the connection has ended"
    return piece


def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until it is so; the test's deadline ends it."""
    while not condition():
        gevent.sleep(0.001)


@pytest.fixture
def gateways(redis: SmallRedis) -> Iterator[Callable[..., Gateway]]:
    """Make gateways that end with the test."""
    made: list[Gateway] = []

    def make(name: str, row: int = 0, key: str = KEY) -> Gateway:
        made.append(Gateway(name, row, key))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def pair(gateways: Callable[..., Gateway]) -> tuple[Gateway, Gateway]:
    """Two gateways that know each other."""
    one, two = gateways("gate-1"), gateways("gate-2")
    one.relay._directory.look()
    return one, two


def test_a_request_is_answered_by_its_owner_with_the_clients_own_address(pair: tuple[Gateway, Gateway]) -> None:
    """Over one connection between the two, however many there are. The answer says that the client's connection ends."""
    one, two = pair
    for body in (b"first", bytes(3 * WINDOW_BYTES)):
        client = one.connect()
        head, answer = one.ask(two.sid, body, client)
        assert answer == b"gate-2 " + body
        assert b"connection: close" in head.lower()
        assert two.environs[-1]["REMOTE_PORT"] == str(client.getsockname()[1])
        assert client.recv(1) == b""
        client.close()
    assert (one.environs, len(one.relay._dialed), len(two.relay._peers)) == ([], 1, 1)
    until(lambda: not one.relay._streams() and not two.relay._streams())


def test_an_own_session_and_none_stay(pair: tuple[Gateway, Gateway]) -> None:
    """Nobody is dialed."""
    one, _ = pair
    assert one.ask(one.sid)[1] == b"gate-1 nothing"
    assert one.ask("")[1] == b"gate-1 nothing"
    assert one.relay._dialed == {}


def test_many_requests_at_once_share_one_connection(pair: tuple[Gateway, Gateway]) -> None:
    """A slow one keeps no other waiting."""
    one, two = pair
    gate = gevent.event.Event()
    two.answer = lambda environ: (body := environ["wsgi.input"].read(), body == b"slow" and gate.wait())[0]
    slow = one.connect()
    slow.sendall(request(two.sid, b"slow"))
    quick = [gevent.spawn(one.ask, two.sid, b"%d" % number) for number in range(20)]
    gevent.joinall(quick, raise_error=True)
    assert [each.value[1] for each in quick] == [b"gate-2 %d" % number for number in range(20)]
    gate.set()
    assert answer_of(slow)[1] == b"gate-2 slow"
    assert len(one.relay._dialed) == 1


def test_a_client_that_reads_nothing_stops_only_itself(pair: tuple[Gateway, Gateway]) -> None:
    """What waits for it between the gateways is bounded by its window."""
    one, two = pair
    two.answer = lambda environ: bytes(4_000_000) if environ["wsgi.input"].read() == b"much" else b"little"
    stopped = socket.socket()
    stopped.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stopped.connect(("127.0.0.1", one.server.server_port))
    stopped.sendall(request(two.sid, b"much"))
    until(lambda: two.environs)
    for _ in range(20):
        assert one.ask(two.sid, b"x")[1] == b"gate-2 little"
    (connection,) = one.relay._dialed.values()
    assert sum(len(pipe._unsent) for pipe in connection._pipes.values()) <= WINDOW_BYTES
    assert answer_of(stopped)[1] == b"gate-2 " + bytes(4_000_000)


def test_a_websocket_goes_on_in_both_directions(pair: tuple[Gateway, Gateway]) -> None:
    """Bytes behind the answer, until one side ends."""
    one, two = pair
    taken: list[socket.socket] = []

    def adopt(descriptor: int, received: bytes, address: Any) -> None:
        taken.append(socket.socket(fileno=descriptor))

    two.relay._adopt = adopt
    client = one.connect()
    client.sendall(request(two.sid))
    until(lambda: taken)
    (owned,) = taken
    assert owned.recv(65536) == request(two.sid)
    assert stale() == set()  # the client's connection has a descriptor of the relay's from now on
    for _ in range(3):
        owned.sendall(b"down" * 50_000)
        received = b""
        while len(received) < 200_000:
            received += read(client)
        client.sendall(b"up" * 10)
        assert owned.recv(65536) == b"up" * 10
    client.close()
    assert owned.recv(1) == b""
    owned.close()
    until(lambda: not one.relay._streams() and not two.relay._streams())


@pytest.mark.parametrize("behind", [0, 40_000])
def test_an_owner_that_ends_before_the_client_has_said_all_has_its_whole_answer_delivered(
    pair: tuple[Gateway, Gateway], behind: int
) -> None:
    """However slowly the client reads it, and though more of its bytes come that nobody reads: requests behind this one."""
    one, two = pair
    two.answer = lambda _: bytes(60_000)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", one.server.server_port))
    client.sendall(request(two.sid) + bytes(behind))
    until(lambda: two.environs)
    until(lambda: any(pipe._out is not Out.OPEN for each in one.relay._dialed.values() for pipe in each._pipes.values()))
    for _ in range(3):
        client.sendall(bytes(10_000))
        gevent.sleep(0.01)
    assert answer_of(client)[1] == b"gate-2 " + bytes(60_000)
    client.close()
    until(lambda: not one.relay._streams() and not two.relay._streams())


def test_a_client_that_has_ended_its_side_has_its_answer(pair: tuple[Gateway, Gateway]) -> None:
    """However long the application takes: the end of a request is not the end of the wait for its answer."""
    one, two = pair
    gate = gevent.event.Event()
    two.answer = lambda _: (gate.wait(), b"late")[1]
    client = one.connect()
    client.sendall(request(two.sid))
    client.shutdown(socket.SHUT_WR)
    until(lambda: two.environs)
    until(lambda: any(pipe._out is Out.SHUT for peer in two.relay._peers for pipe in peer._pipes.values()))
    for _ in range(20):
        for connection in [*one.relay._dialed.values(), *two.relay._peers]:
            connection._tick()
    gate.set()
    assert answer_of(client)[1] == b"gate-2 late"
    assert client.recv(1) == b""
    until(lambda: not one.relay._streams() and not two.relay._streams())


def test_a_client_that_gives_up_is_noticed_by_the_owner(pair: tuple[Gateway, Gateway]) -> None:
    """Its connection ends there, as it would without a relay."""
    one, two = pair
    taken: list[socket.socket] = []
    two.relay._adopt = lambda descriptor, *_: taken.append(socket.socket(fileno=descriptor))
    client = one.connect()
    client.sendall(request(two.sid))
    until(lambda: taken)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    (owned,) = taken
    while owned.recv(65536):
        pass
    owned.close()


def test_an_owner_that_redis_does_not_name_is_nobodys(pair: tuple[Gateway, Gateway], redis: SmallRedis) -> None:
    """A forged id: this process answers, which does not know the session. Redis is not asked for each of them."""
    one, _ = pair
    before = redis.asked.count("ZRANGE")
    for _ in range(30):
        assert one.ask("gate-3AA" + RANDOM)[1] == b"gate-1 nothing"
    assert redis.asked.count("ZRANGE") <= before + 2
    assert one.relay._dialed == {}


def test_an_owner_that_has_just_started_is_found(pair: tuple[Gateway, Gateway], gateways: Callable[..., Gateway]) -> None:
    """It is looked for when it is asked for."""
    one, _ = pair
    three = gateways("gate-3", 5)
    assert one.ask(three.sid)[1] == b"gate-3 nothing"


def test_an_owner_that_is_gone_leaves_the_answer_to_this_process(pair: tuple[Gateway, Gateway]) -> None:
    """Whether its connection ends while a request waits, or it cannot be reached; the log has one line."""
    one, two = pair
    assert one.ask(two.sid)[1] == b"gate-2 nothing"
    two.relay._closed = True
    two.relay._listener.close()
    gevent.kill(two.relay._accepting)
    for peer in list(two.relay._peers):
        peer.close()
    until(lambda: not one.relay._dialed)
    with capture_logs() as logs:
        for _ in range(5):
            assert one.ask(two.sid)[1] == b"gate-1 nothing"
    assert [each["event"] for each in logs] == ["another gateway could not be reached"]


def test_a_client_whose_owner_dies_meanwhile_loses_its_connection(pair: tuple[Gateway, Gateway]) -> None:
    """It comes back, and learns that its session is over."""
    one, two = pair
    two.answer = lambda _: gevent.sleep(1000) or b""
    client = one.connect()
    client.sendall(request(two.sid))
    until(lambda: two.environs)
    for peer in list(two.relay._peers):
        peer.close()
    assert client.recv(1) == b""


def test_a_gateway_with_another_key_is_refused_and_told_once(gateways: Callable[..., Gateway]) -> None:
    """By the one that dials, which sends it nothing of a client."""
    one, two = gateways("gate-1"), gateways("gate-2", 0, KEY + "!")
    one.relay._directory.look()
    with capture_logs() as logs:
        for _ in range(5):
            assert one.ask(two.sid)[1] == b"gate-1 nothing"
    assert [(each["event"], each["reason"]) for each in logs if each["log_level"] == "warning"] == [
        ("another gateway could not be reached", "another key")
    ]
    assert two.environs == []


@pytest.mark.parametrize("says", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"headgate-relay-1gate-2AA" + bytes(64)])
def test_a_stranger_on_the_internal_port_is_refused(pair: tuple[Gateway, Gateway], says: bytes) -> None:
    """And told once; nothing of it reaches the application."""
    _, two = pair
    with capture_logs() as logs:
        for _ in range(3):
            stranger = socket.create_connection(two.relay.address)
            stranger.sendall(says)
            while stranger.recv(65536):
                pass
            stranger.close()
    assert len([each for each in logs if each["event"] == "a connection to the relay was refused"]) == 1
    assert (two.environs, two.relay._strangers) == ([], 0)


def test_strangers_have_only_so_many_places(pair: tuple[Gateway, Gateway], monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is closed at once, and a place is free again when one has gone."""
    monkeypatch.setattr(relay, "MAX_STRANGERS", 2)
    _, two = pair
    silent = [socket.create_connection(two.relay.address) for _ in range(2)]
    until(lambda: two.relay._strangers == 2)
    assert socket.create_connection(two.relay.address).recv(1) == b""
    silent[0].close()
    until(lambda: two.relay._strangers == 1)
    for each in silent:
        each.close()


HIDDEN = b"POST /hidden?sid=%b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 0\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        b"Content-Length: 0\r\nContent-Length: 60\r\n\r\n",
        CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n",
        b"X: y\rContent-Length: 60\r\n\r\n",
        b"X: y\r\n Content-Length: 60\r\n\r\n",
        b"Content-Length: 0\r\n\r\n",
        b"Connection: keep-alive\r\nContent-Length: 0\r\n\r\n",
        b"Content-Length: 0\n\n",
    ],
    ids=["length and chunks", "two lengths", "chunks twice", "no chunks", "bare CR", "folded", "plain", "kept", "bare LF"],
)
def test_nothing_is_smuggled_behind_a_relayed_request(pair: tuple[Gateway, Gateway], fields: bytes) -> None:
    """The gateways cannot differ about where it ends: one of them reads it, and nobody reads anything behind it."""
    one, two = pair
    for hidden in (one.sid, two.sid):
        client = one.connect()
        client.sendall(request(two.sid).partition(b"Content-Length")[0] + fields + HIDDEN % hidden.encode())
        client.shutdown(socket.SHUT_WR)
        received = b""
        while piece := client.recv(65536):
            received += piece
        assert received.count(b"HTTP/1.1 ") <= 1
        client.close()
    assert one.environs == []
    assert all(environ["PATH_INFO"] == "/socket.io/" for environ in two.environs)
    until(lambda: not one.relay._streams() and not two.relay._streams())


def test_the_public_port_knows_nothing_of_the_relay(pair: tuple[Gateway, Gateway]) -> None:
    """A client that speaks to it as a gateway would, or names a header of ours, is a client."""
    one, two = pair
    stranger = one.connect()
    stranger.sendall(Handshake(b"key", one.owner.letters, dials=True).first + b"\r\n\r\n")
    assert read(stranger).startswith(b"HTTP/1.1 400 ")
    client = one.connect()
    client.sendall(request(one.sid).replace(b"Host: a", b"Host: a\r\nX-Headgate-Relayed: 192.0.2.7\r\nForwarded: for=192.0.2.7"))
    assert answer_of(client)[1] == b"gate-1 nothing"
    assert one.environs[-1]["REMOTE_ADDR"] == "127.0.0.1"
    assert two.environs == []


def test_a_relayed_request_counts_for_the_address_that_its_own_gateway_would_count_it_for(pair: tuple[Gateway, Gateway]) -> None:
    """Behind a proxy of ours for the one that it names, and without one for the peer, whatever the client has written."""
    one, two = pair
    for sid in (one.sid, two.sid):
        client = one.connect()
        client.sendall(request(sid).replace(b"Host: a", b"Host: a\r\nX-Forwarded-For: 198.51.100.1, 192.0.2.7"))
        answer_of(client)
    (here,), (there,) = one.environs, two.environs
    for proxies, address in ((0, "127.0.0.1"), (1, "192.0.2.7"), (2, "198.51.100.1")):
        assert address_of(here, proxies) == address_of(there, proxies) == address


def test_the_limit_of_an_address_holds_at_the_owner(pair: tuple[Gateway, Gateway]) -> None:
    """Through whichever gateway its connections come."""
    one, two = pair
    two.server.limits = replace(two.server.limits, max_connections_per_address=2)
    gate = gevent.event.Event()
    two.answer = lambda _: (gate.wait(), b"")[1]
    working = [one.connect() for _ in range(2)]
    for client in working:
        client.sendall(request(two.sid))
    until(lambda: len(two.environs) == 2)
    assert one.ask(two.sid)[0].startswith(b"HTTP/1.1 429 ")
    gate.set()
    for client in working:
        answer_of(client)


def test_an_owner_that_stands_still_keeps_a_client_waiting_no_longer_than_it_may(
    pair: tuple[Gateway, Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is connected already or not. The owner does nothing for a request that was given up, or its client would
    have sent it twice."""
    one, two = pair
    assert one.ask(two.sid)[1] == b"gate-2 nothing"
    until(lambda: not one.relay._streams())
    monkeypatch.setattr(relay, "HAND_OVER_S", 0.05)
    (peer,) = two.relay._peers
    peer._reader.stop()
    assert one.ask(two.sid, b"given up")[1] == b"gate-1 given up"
    peer._reader.start(peer._readable)
    monkeypatch.setattr(relay, "HAND_OVER_S", 60.0)
    assert one.ask(two.sid, b"next")[1] == b"gate-2 next"
    assert len(two.environs) == 2
    until(lambda: not two.relay._streams() and not one.relay._streams())
    assert (len(one.relay._dialed), one.relay._streams()) == (1, 0)
    next(iter(one.relay._dialed.values())).close()
    two.relay._accepting.kill()  # type: ignore[union-attr]
    monkeypatch.setattr(relay, "HAND_OVER_S", 0.05)
    assert one.ask(two.sid)[1] == b"gate-1 nothing"


def test_a_body_that_nobody_reads_waits_at_the_client(pair: tuple[Gateway, Gateway]) -> None:
    """And in the kernel: the gateways hold a window of it at most."""
    one, two = pair
    gate = gevent.event.Event()
    two.answer = lambda environ: (gate.wait(), b"%d" % len(environ["wsgi.input"].read()))[1]
    client = one.connect()
    sending = gevent.spawn(client.sendall, request(two.sid, bytes(3_000_000)))
    until(lambda: two.environs)
    for _ in range(200):
        gevent.sleep(0)
    ends = [*one.relay._dialed.values(), *two.relay._peers]
    assert sum(pipe.unsent_bytes for end in ends for pipe in end._pipes.values()) <= WINDOW_BYTES
    gate.set()
    assert answer_of(client)[1] == b"gate-2 3000000"
    sending.join()


def test_an_owner_that_dies_between_a_head_and_its_body_ends_the_clients_connection(pair: tuple[Gateway, Gateway]) -> None:
    """It has half a request: nobody else can answer it. The other sessions of the client's gateway go on."""
    one, two = pair
    client = one.connect()
    client.sendall(request(two.sid, bytes(100_000))[:5000])
    until(lambda: two.environs)
    for peer in list(two.relay._peers):
        peer.close()
    assert client.recv(1) == b""
    assert one.ask(one.sid)[1] == b"gate-1 nothing"
    until(lambda: not one.relay._streams())


def test_a_relayed_request_goes_no_further(pair: tuple[Gateway, Gateway], gateways: Callable[..., Gateway]) -> None:
    """Where the owner that was asked does not own the session: it answers itself. Nothing goes round in circles."""
    one, two = pair
    three = gateways("gate-3")
    one.relay._directory._known[three.owner.letters] = two.relay.address  # as a forged entry would have it
    assert one.ask(three.sid)[1] == b"gate-1 nothing"  # whoever listens there is not gate-3
    two.relay._directory.look()
    two.server.adopt(*_relayed(two, three.sid))
    until(lambda: two.environs)
    assert three.environs == []


def _relayed(gateway: Gateway, sid: str) -> tuple[int, bytes, tuple[str, int]]:
    ours, theirs = socket.socketpair()
    _kept.append(ours)
    return theirs.detach(), request(sid), ("192.0.2.7", 4711)


_kept: list[socket.socket] = []


def test_without_room_an_owner_takes_no_more(pair: tuple[Gateway, Gateway], monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is answered where it is."""
    one, two = pair
    assert one.ask(two.sid)[1] == b"gate-2 nothing"
    monkeypatch.setattr(two.relay, "_has_room", lambda lasts: False)
    assert one.ask(two.sid)[1] == b"gate-1 nothing"
    monkeypatch.setattr(one.relay, "_has_room", lambda lasts: False)
    assert one.ask(two.sid)[1] == b"gate-1 nothing"


@pytest.mark.parametrize("short", ["has_room", "descriptor_limit"])
def test_streams_never_take_the_last_descriptors(
    pair: tuple[Gateway, Gateway], monkeypatch: pytest.MonkeyPatch, short: str
) -> None:
    """Nor more than their part of them: health pages and Redis need some, too."""
    one, two = pair
    assert one.ask(two.sid)[1] == b"gate-2 nothing"
    until(lambda: not one.relay._streams())
    monkeypatch.setattr(relay, short, lambda *_: False if short == "has_room" else relay.STREAM_SHARE - 1)
    assert one.ask(two.sid)[1] == b"gate-1 nothing"


@pytest.mark.parametrize("short", ["link", "descriptors", "descriptors of the owner"])
def test_websockets_leave_room_for_polls(pair: tuple[Gateway, Gateway], monkeypatch: pytest.MonkeyPatch, short: str) -> None:
    """They stay for as long as they live. A client whose upgrade is declined polls on; a poll without room ends its session."""
    one, two = pair
    go_on = gevent.event.Event()
    two.answer = lambda environ: b"upgraded" if "websocket" in environ["QUERY_STRING"] and go_on.wait() else b"polled"
    if short == "link":
        monkeypatch.setattr(links, "MAX_STREAMS", 4)
    else:
        asks = one.relay if short == "descriptors" else two.relay
        monkeypatch.setattr(asks, "_has_room", partial(_has_room_of, asks, 4))
    upgrade = request(two.sid).replace(b"EIO=4", b"EIO=4&transport=websocket")
    upgrading = [one.connect() for _ in range(2)]
    for each in upgrading:
        each.sendall(upgrade)
    until(lambda: len(two.environs) == 2)
    declined = one.connect()
    declined.sendall(upgrade)
    assert answer_of(declined)[1].startswith(b"gate-1 ")
    assert one.ask(two.sid)[1] == b"gate-2 polled"
    go_on.set()
    assert [answer_of(each)[1] for each in upgrading] == [b"gate-2 upgraded"] * 2
    until(lambda: not one.relay._streams() and not two.relay._streams())
    again = one.connect()
    again.sendall(upgrade)
    assert answer_of(again)[1] == b"gate-2 upgraded"
    for each in (*upgrading, declined, again):
        each.close()
    until(lambda: not one.relay._streams() and not len(one.server.connections))


def _has_room_of(asked: Relay, streams: int, lasts: bool) -> bool:
    """Answer as a relay would that may have so many streams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay, "descriptor_limit", lambda: streams * relay.STREAM_SHARE)
        patch.setattr(relay, "has_room", lambda descriptor: True)
        return Relay._has_room(asked, lasts)


def test_a_connection_to_an_owner_that_has_left_is_closed(pair: tuple[Gateway, Gateway], redis: SmallRedis) -> None:
    """When Redis does not name it any more and nobody is carried. A lease that has ended is enough."""
    one, two = pair
    one.ask(two.sid)
    until(lambda: not one.relay._streams())
    redis.now_s += LEASE_S
    one.relay._directory.look()
    assert one.relay._dialed == {}


def test_a_relay_that_is_closed_leaves_the_directory_and_no_descriptor(redis: SmallRedis) -> None:
    """And hands nothing over any more."""
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    one, two = Gateway("gate-1"), Gateway("gate-2")
    one.relay._directory.look()
    client = one.connect()
    one.ask(two.sid, b"x", client)
    client.close()
    for each in (one, two):
        each.close()
        each.relay.close()
    assert RELAYS not in redis.present()
    assert not one.relay.hand_over(request(two.sid), 0)
    gc.collect()
    until(lambda: len(os.listdir("/dev/fd")) == before)


def test_the_first_free_port_is_taken(redis: SmallRedis) -> None:
    """Redis names it. An address that is not this machine's is one clear line."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        host, port = held.getsockname()
        settings = Settings(redis_url="redis://127.0.0.1:1/0", internal_address=(host, port), relay_key=KEY)
        made = Relay(settings, Owner("gate-1", 0), lambda *_: None)
        assert made.address.port > port
        made.close()
    elsewhere = Settings(redis_url="redis://127.0.0.1:1/0", internal_address=("192.0.2.7", 8100), relay_key=KEY)
    with pytest.raises(InvalidRequest, match=r"HEADGATE_INTERNAL_ADDRESS=192\.0\.2\.7:8100"):
        Relay(elsewhere, Owner("gate-1", 0), lambda *_: None)
