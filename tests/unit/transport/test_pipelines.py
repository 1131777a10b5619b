"""Random requests over kept connections, in pieces and ahead of their answers, to two processes that share a port.
The sockets, the servers and the hand-over are the real ones; the processes are in this one. One hand-over at a time:
test_hand_over.py.

A client follows HTTP/1.1 (RFC 9112 section 9.3.2). It sends requests ahead, reads the answers in order, and sends those without
an answer again over a new connection.
"""

import os
import socket
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import gevent
import gevent.socket
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.transport import http_channel
from headgate.transport.detach import detach
from headgate.transport.http_answers import Answer
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import BeginsInHub, RoutedRequest
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_socket import NativeSocket
from headgate.workers.peer_workers import letters_of, owner_of
from tests.support.epoll_sets import stale
from tests.support.session_clock import read_all, until

RANDOM = "abcdefghij0123456_-Z"


class Request(NamedTuple):
    """One request of a client. `owner` is the number of the process that has the session it names; None: it names none."""

    kind: str
    owner: int | None
    size: int
    answer_size: int
    more: str

    @property
    def ends(self) -> bool:
        """Whether the client says that its connection ends after the answer."""
        return self.more in ("close", "1.0") or self.kind == "refused"

    def to_bytes(self, number: int) -> bytes:
        sid = "" if self.owner is None else f"&sid={letters_of(self.owner)}{RANDOM}"
        path = {"route": "/route", "refused": "/route", "now": "/now"}.get(self.kind, "/application")
        version = "1.0" if self.more == "1.0" else "1.1"
        fields = [f"X-Id: {number}", "Host: a", f"X-Size: {self.answer_size}", f"X-Refused: {self.kind == 'refused'}"]
        body = self.body(number)
        if self.more == "chunked" and self.kind == "application":
            fields.append("Transfer-Encoding: chunked")
            pieces = [body[at : at + 3000] for at in range(0, len(body), 3000)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        elif self.kind != "now":
            fields.append(f"Content-Length: {len(body)}")
        if self.more == "close":
            fields.append("Connection: close")
        if self.more == "expect" and self.size:
            fields.append("Expect: 100-continue")
        head = "\r\n".join([f"{'GET' if self.kind == 'now' else 'POST'} {path}?a=b{sid} HTTP/{version}", *fields])
        return f"{head}\r\n\r\n".encode() + body

    def body(self, number: int) -> bytes:
        return b"" if self.kind == "now" else (b"%d " % number * (self.size // 2 + 1))[: self.size]

    def answer(self, number: int, process: int) -> bytes:
        """Return the body of its answer by a process."""
        return b"%d %d %d " % (process, number, zlib.crc32(self.body(number))) + bytes(self.answer_size)


class Process:
    """A process: an HTTP server with routes and an application, which note their requests."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, Counter[int]()
        self.sockets: list[NativeSocket] = []
        routes: dict[tuple[str, str], Any] = {
            ("POST", "/route"): self._route,
            ("GET", "/now"): BeginsInHub(lambda request: self._answer(request.environ, b"")),
            ("GET", "/socket"): self._socket,
        }
        # An idle connection waits for longer than a test does: what ends is ended.
        self.server = HTTPServer(("127.0.0.1", 0), self._application, routes=routes, limits=HttpLimits(keep_alive_s=600))
        self.server.start()

    def _answer(self, environ: Any, body: bytes) -> Answer:
        number = int(environ["HTTP_X_ID"])
        self.asked[number] += 1
        told = b"%d %d %d " % (self.number, number, zlib.crc32(body)) + bytes(int(environ["HTTP_X_SIZE"]))
        refused = environ["HTTP_X_REFUSED"] == "True"
        return Answer("429 NO" if refused else "200 OK", [("Content-Length", str(len(told)))], told, closes=refused)

    def _route(self, request: RoutedRequest) -> Answer:
        answer = self._answer(request.environ, request.body())
        gevent.sleep(0)
        return answer

    def _socket(self, request: RoutedRequest) -> None:
        detached = detach(dict(request.environ), b"HTTP/1.1 101 Switching Protocols\r\n\r\n%d " % self.number)
        assert isinstance(detached.sock, NativeSocket)
        self.sockets.append(detached.sock)
        detached.sock.send(detached.unsent + detached.received.upper())

    def _application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        gevent.sleep(0)
        answer = self._answer(environ, environ["wsgi.input"].read())
        return answer(environ, start_response)


class World:
    """The processes. Each hands connections to the other."""

    def __init__(self) -> None:
        self.processes = [Process(number) for number in range(2)]
        for number, process in enumerate(self.processes):
            process.server.to_owner = partial(self._to_owner, number)

    def _to_owner(self, number: int, received: bytes, descriptor: int) -> bool:
        owner = owner_of(received)
        gevent.sleep(0)
        if owner is None or owner == number:
            return False
        self.processes[owner].server.adopt(os.dup(descriptor), received)
        return True

    def at_rest(self) -> bool:
        """Whether no client is served."""
        return not any(len(process.server.connections) for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            process.server.stop(timeout=1)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Processes with sockets that let the loop run."""
    for name in ("socket", "create_connection", "socketpair"):
        monkeypatch.setattr(socket, name, getattr(gevent.socket, name))
    with gevent.Timeout(280):
        made = World()
        yield made
        made.close()


class Answers:
    """Reads answers off a connection."""

    def __init__(self, client: socket.socket) -> None:
        self._client, self._received = client, b""

    def next(self) -> tuple[bytes, bytes] | None:
        """Return head and body of the next one; None at the end."""
        while True:
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 100"):
                self._received = rest
                continue
            if end:
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                if len(rest) >= size:
                    self._received = rest[size:]
                    return head, rest[:size]
            piece = b""
            with suppress(ConnectionResetError):
                piece = self._client.recv(65536)
            if not piece:
                assert not self._received, f"half an answer: {self._received[:200]!r}"
                return None
            self._received += piece

    def body(self) -> bytes | None:
        """Return the body of the next one; None at the end."""
        answer = self.next()
        return None if answer is None else answer[1]


def ask_all(world: World, requests: list[Request], cuts: list[int], moves_after: int | None, half_closes: bool) -> None:
    """Send all requests as the module says; check that each has its own answer, once and in order, from its owner."""
    port = world.processes[0].server.server_port
    done = 0
    for process in world.processes:
        process.asked.clear()
    while done < len(requests):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each small piece may wait for 40 ms
        whole = b"".join(request.to_bytes(number) for number, request in enumerate(requests) if number >= done)
        sending = gevent.spawn(send, client, whole, cuts, half_closes)
        answers, before = Answers(client), done
        while done < len(requests) and (answer := answers.next()) is not None:
            head, body = answer
            accepting = 0 if port == world.processes[0].server.server_port else 1
            expected = {requests[done].owner} if requests[done].owner is not None else {accepting, *range(2)}
            assert body in [requests[done].answer(done, number) for number in expected if number is not None], (done, head)
            assert head.startswith(b"HTTP/1.1 429" if requests[done].kind == "refused" else b"HTTP/1.1 200"), head
            ends = b"connection: close" in head.lower()
            assert ends or not requests[done].ends, head
            done += 1
            if moves_after is not None and done > moves_after:
                port = world.processes[1].server.server_port
            if ends:
                break
        if done == len(requests) or done > before:
            sending.kill()
        assert done > before, "a connection without an answer"
        client.close()
    until(world.at_rest)
    asked = sum((process.asked for process in world.processes), Counter[int]())
    assert asked == Counter(range(len(requests))), "asked twice, or never"
    assert stale() == set()


def send(client: socket.socket, whole: bytes, cuts: list[int], half_closes: bool) -> None:
    """Send bytes in pieces, and let others have their turn between two."""
    at = 0
    with suppress(OSError):  # the server has ended the connection
        for cut in cuts:
            client.sendall(whole[at : at + cut])
            at += cut
            gevent.sleep(0)
            gevent.sleep(0)
        client.sendall(whole[at:])
        if half_closes:
            client.shutdown(socket.SHUT_WR)


def descriptors() -> set[str]:
    """Return the descriptors of this process."""
    found: set[str] = set()
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of this listing
            found.add(os.readlink(f"/proc/self/fd/{each}"))
    return found


REQUESTS = st.builds(
    Request,
    kind=st.sampled_from(["route", "route", "application", "now", "refused"]),
    owner=st.sampled_from([None, None, 0, 1]),
    size=st.sampled_from([0, 1, 10, 9000, 80_000]),
    answer_size=st.sampled_from([0, 0, 10, 30_000, 200_000]),
    more=st.sampled_from(["", "", "", "close", "1.0", "chunked", "expect"]),
)


def test_each_request_has_its_own_answer_once_and_in_order(world: World) -> None:
    """For any owner of the sessions, any cut of the pieces, and any place to which clients come back. No descriptor is left."""
    ask_all(world, [Request("route", 1, 10, 10, "")], [], 0, False)  # every part is there now
    before = descriptors()

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(REQUESTS, min_size=1, max_size=8),
        st.lists(st.sampled_from([1, 2, 30, 200, 8192, 20_000]), max_size=20),
        st.none() | st.integers(0, 5),
        st.booleans(),
    )
    def check(requests: list[Request], cuts: list[int], moves_after: int | None, half_closes: bool) -> None:
        with gevent.Timeout(60, AssertionError("it does not end")):
            ask_all(world, requests, cuts, moves_after, half_closes)
            until(lambda: not descriptors() - before)

    check()


@pytest.mark.parametrize("owner", [0, 1])
@pytest.mark.parametrize("kind", ["route", "application"])
@pytest.mark.parametrize("sent", ["nothing", "the line", "the head", "a part of the body", "all", "one request before"])
def test_a_drain_that_begins_meanwhile_ends_no_request(world: World, owner: int, kind: str, sent: str) -> None:
    """Whatever has come of it. The port is left to others, so the connection ends with the first answer that begins later."""
    asked = Request(kind, owner, 9000, 10, "")
    whole, client = asked.to_bytes(1), socket.create_connection(("127.0.0.1", world.processes[0].server.server_port))
    answers = Answers(client)
    if sent == "one request before":
        client.sendall(Request("application", 0, 10, 10, "").to_bytes(0))
        assert answers.next()
    head = whole.index(b"\r\n\r\n") + 4
    ends = {"the line": whole.index(b"\r\n") + 2, "the head": head, "a part of the body": head + 5000, "all": len(whole)}
    at = ends.get(sent, 0)
    client.sendall(whole[:at])
    for _ in range(20):
        gevent.sleep(0)
    for process in world.processes:
        process.server.close()
    for _ in range(20):
        gevent.sleep(0)
    client.sendall(whole[at:])
    assert answers.body() == asked.answer(1, owner)
    if sent == "all":
        last = Request("application", 0, 10, 10, "")
        client.sendall(last.to_bytes(2))
        assert answers.body() == last.answer(2, 0)
    assert answers.next() is None
    client.close()
    until(world.at_rest)
    assert stale() == set()


@pytest.mark.parametrize("last", [Request("refused", 0, 10, 10, ""), Request("application", 1, 10, 10, "close")])
def test_answers_arrive_though_the_client_has_sent_ahead_of_the_last_one(world: World, last: Request) -> None:
    """Closed with requests unread, a connection would be reset, and the answers lost that the kernel has not delivered yet."""
    ahead = [Request("route", 0, 80_000, 10, "")] * 3
    ask_all(world, [Request("application", 0, 10, 200_000, ""), last, *ahead], [], None, False)


def test_a_client_that_sends_ahead_without_end_is_left_after_a_while(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has LINGER_S to read its answer, and to end."""
    monkeypatch.setattr(http_channel, "LINGER_S", 0.0)
    client = socket.create_connection(("127.0.0.1", world.processes[0].server.server_port))
    client.sendall(Request("application", 0, 10, 10, "close").to_bytes(0) + bytes(20_000))
    until(lambda: world.processes[0].asked)
    until(world.at_rest)
    client.close()


@pytest.mark.parametrize("owner", [0, 1])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("behind", [b"", b"hello"])
def test_an_upgrade_may_stand_at_the_end_of_a_pipeline(world: World, owner: int, before: int, behind: bytes) -> None:
    """Its socket is its owner's, with the bytes after the request, and in both directions."""
    requests = [Request("route", 0, 10, 10, ""), Request("application", 0, 10, 10, "")][:before]
    sid = f"{letters_of(owner)}{RANDOM}"
    upgrade = f"GET /socket?sid={sid} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode() + behind
    client = socket.create_connection(("127.0.0.1", world.processes[0].server.server_port))
    client.sendall(b"".join(request.to_bytes(number) for number, request in enumerate(requests)) + upgrade)
    received, ending = b"", b"%d %b" % (owner, behind.upper())
    while not received.endswith(b"\r\n\r\n" + ending):
        piece = client.recv(65536)
        assert piece, received
        received += piece
    assert received.count(b"HTTP/1.1 ") == before + 1
    (owned,) = world.processes[owner].sockets
    owned.send(b"down")
    assert client.recv(100) == b"down"
    client.sendall(b"up")
    until(lambda: read_all(owned) == b"up")
    client.close()
    owned.close()
    until(world.at_rest)
    assert stale() == set()
