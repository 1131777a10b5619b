"""The connection between two gateways, whose other end the test plays by hand: what waits, what lingers, and how it ends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gevent
import pytest

from headgate.relay import connection, pipe
from headgate.relay.connection import Connection
from headgate.relay.frames import Frame, Kind
from headgate.relay.link import PING_EVERY_S, SILENT_S, WINDOW_BYTES, Data, Event, Link, Opened, Reset
from headgate.transport.http_limits import HttpLimits
from headgate.transport.peer_socket import NativeSocket

ANA = ("192.0.2.7", 4711)


class Peer:
    """The owner's end, which reads only when it is told to."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair()
        self.sock.setblocking(False)
        for each in (ours, self.sock):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.link = Link(0.0, dials=False)
        self.events: list[Event] = []
        self.lost: list[str] = []
        self.clients: list[socket.socket] = []
        self.connection = Connection(native(ours), b"", dials=True, lost=lambda _, reason: self.lost.append(reason))

    def carry(self, received: bytes = b"request") -> tuple[socket.socket, Any]:
        """Have a client carried; return the client's own end, and the greenlet that waits for the answer."""
        theirs, client = socket.socketpair()
        client.setblocking(False)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.clients.append(client)
        return client, gevent.spawn(self.connection.carry, native(theirs), ANA, received, 60.0)

    def taken(self) -> tuple[socket.socket, int]:
        """Have a client carried, and take it; return its end and its stream."""
        client, waiting = self.carry()
        self.until(lambda: any(isinstance(event, Opened) for event in self.events))
        stream = next(event.stream for event in self.events if isinstance(event, Opened))
        self.events.clear()
        self.link.take(stream)
        self.turn(read=True)
        waiting.join()
        assert waiting.value is True
        return client, stream

    def turn(self, *, read: bool) -> None:
        """Let the loop run once; send what there is to say, and read what has come if so told."""
        if self.link.outgoing:
            with suppress(BlockingIOError):  # the kernel may move what the other end has read a little later
                del self.link.outgoing[: self.sock.send(self.link.outgoing)]
        gevent.sleep(0.0001)
        if read:
            with suppress(BlockingIOError):
                self.events += self.link.receive(self.sock.recv(65536), 0.0)

    def until(self, condition: Callable[[], Any], *, read: bool = True) -> None:
        while not condition():
            self.turn(read=read)

    def bytes_of(self, stream: int) -> int:
        return sum(len(event.data) for event in self.events if isinstance(event, Data) and event.stream == stream)


def native(sock: socket.socket) -> NativeSocket:
    made = NativeSocket(fileno=sock.detach())
    made.setblocking(False)
    return made


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    with gevent.Timeout(60):
        yield made
    made.connection.close()
    made.connection.close()
    for each in [made.sock, *made.clients]:
        each.close()


def ended(client: socket.socket) -> bool:
    """Whether a client's connection is over."""
    try:
        return client.recv(65536) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_while_much_waits_no_client_is_read(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that reads slowly fills no memory here; all bytes come when it goes on."""
    monkeypatch.setattr(connection, "CONGESTED_BYTES", 20_000)
    streams = [peer.taken() for _ in range(3)]
    for client, _ in streams:
        client.sendall(bytes(50_000))
    peer.until(lambda: peer.connection._congested, read=False)
    for _ in range(20):
        peer.turn(read=False)
    assert len(peer.connection._unsent) < 20_000 + pipe.READ_BYTES + 1000
    peer.until(lambda: [peer.bytes_of(stream) for _, stream in streams] == [50_000] * 3)
    assert not peer.connection._congested


def test_a_client_is_read_no_further_than_the_window_of_its_stream(peer: Peer) -> None:
    """And again when the owner has passed bytes on."""
    client, stream = peer.taken()
    window = WINDOW_BYTES - len(b"request")
    while peer.bytes_of(stream) < window:
        with suppress(BlockingIOError):
            client.send(bytes(30_000))
        peer.turn(read=True)
    with suppress(BlockingIOError):
        client.send(bytes(30_000))
    for _ in range(20):
        peer.turn(read=True)
    assert peer.bytes_of(stream) == window
    peer.link.passed_on(stream, WINDOW_BYTES)
    peer.until(lambda: peer.bytes_of(stream) > window)


def test_a_client_that_stays_when_all_is_said_is_dropped(peer: Peer) -> None:
    """After a while, in turns of the loop: a pause of this process costs no client its connection."""
    client, stream = peer.taken()
    peer.link.send(stream, b"answer")
    peer.link.end(stream)
    peer.until(lambda: peer.connection._pipes[stream]._out is pipe.Out.SHUT)
    assert client.recv(100) == b"answer"
    ticks = round(pipe.LINGER_S / connection.TICK_S)
    for _ in range(ticks - 1):
        peer.connection._tick()
    assert len(peer.connection) == 1
    peer.connection._tick()
    assert len(peer.connection) == 0
    peer.until(lambda: Reset(stream) in peer.events)


def test_a_client_that_does_not_read_its_answer_is_dropped(peer: Peer) -> None:
    """When the owner has said all, its deadlines are over: the pace of every answer holds here. Reading gives time back."""
    client, stream = peer.taken()
    peer.link.send(stream, bytes(WINDOW_BYTES))
    peer.link.end(stream)
    ticks = round(HttpLimits().write_deadline_s / connection.TICK_S)
    peer.until(lambda: peer.connection._pipes[stream]._out is pipe.Out.ENDING)
    for _ in range(ticks - 1):
        peer.connection._tick()
    waits = peer.connection._pipes[stream].unsent_bytes
    received = 0
    while peer.connection._pipes[stream].unsent_bytes > waits - 3 * HttpLimits().min_bytes_per_s:
        with suppress(BlockingIOError):
            received += len(client.recv(1000))
        peer.turn(read=True)
    assert received < WINDOW_BYTES
    for _ in range(2):
        peer.connection._tick()
    assert len(peer.connection) == 1
    for _ in range(ticks):
        peer.connection._tick()
    assert len(peer.connection) == 0
    assert peer.connection._pipes == {}


def test_a_client_that_is_killed_in_its_wait_leaves_nothing(peer: Peer) -> None:
    """As when the server stops: neither a stream nor a descriptor."""
    client, waiting = peer.carry()
    peer.until(lambda: len(peer.connection))
    waiting.kill()
    assert (len(peer.connection), peer.connection._opening) == (0, {})
    assert ended(client)


def test_the_rest_of_an_answer_goes_out_before_the_end(peer: Peer) -> None:
    """However slowly the client reads."""
    client, stream = peer.taken()
    peer.link.send(stream, bytes(WINDOW_BYTES))
    peer.link.end(stream)
    received = 0
    while True:
        peer.turn(read=True)
        try:
            piece = client.recv(1000)
        except BlockingIOError:
            continue
        if not piece:
            break
        received += len(piece)
    assert received == WINDOW_BYTES
    client.close()
    peer.until(lambda: not len(peer.connection))


def test_a_client_that_is_broken_is_reset(peer: Peer) -> None:
    """Whether it is read or written."""
    client, stream = peer.taken()
    peer.until(lambda: not peer.link.outgoing)
    client.sendall(b"x")
    client.close()
    peer.link.send(stream, b"answer")
    peer.until(lambda: not len(peer.connection))


@pytest.mark.parametrize("answers", [True, False])
def test_an_owner_that_does_not_take_a_stream_leaves_the_client_alone(peer: Peer, answers: bool) -> None:
    """It refuses, or says nothing in time. Nothing was read of the client, or written to it."""
    theirs, client = socket.socketpair()
    client.setblocking(False)
    peer.clients.append(client)
    client.sendall(b"more")
    waiting = gevent.spawn(peer.connection.carry, native(theirs), ANA, b"request", 60.0 if answers else 0.0)
    peer.until(lambda: any(isinstance(event, Opened) for event in peer.events))
    if answers:
        peer.link.reset(1)
    peer.until(waiting.ready)
    assert (waiting.value, len(peer.connection)) == (False, 0)
    if not answers:
        peer.link.take(1)  # late
    for _ in range(5):
        peer.turn(read=True)
    assert not peer.connection.closed


def test_a_silent_peer_is_asked_and_given_up(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock. Its clients' connections end."""
    client, _ = peer.taken()
    began_s = peer.connection._link._heard_s
    monkeypatch.setattr(connection, "monotonic", lambda: began_s + PING_EVERY_S)
    peer.connection._tick()
    peer.until(lambda: peer.link.outgoing)
    monkeypatch.setattr(connection, "monotonic", lambda: began_s + SILENT_S)
    peer.connection._tick()
    assert peer.lost == ["silent"]
    assert ended(client)


def test_a_peer_that_breaks_a_rule_is_given_up(peer: Peer) -> None:
    """With one that waits to be taken, which is told so. Nothing can be carried any more."""
    client, _ = peer.taken()
    _, waiting = peer.carry()
    peer.turn(read=True)
    peer.sock.send(Frame(Kind.DATA, 77, b"x").to_bytes())
    peer.until(waiting.ready, read=False)
    assert (waiting.value, peer.lost) == (False, ["a stream that was never opened"])
    assert ended(client)
    _, refused = peer.carry()
    refused.join()
    assert refused.value is False


def test_the_end_of_the_connection_is_the_end_of_all(peer: Peer) -> None:
    """Found out by reading, also when it was found by writing."""
    client, _ = peer.taken()
    peer.sock.close()
    client.sendall(b"more")
    while not peer.lost:
        gevent.sleep(0.0001)
    assert ended(client)
