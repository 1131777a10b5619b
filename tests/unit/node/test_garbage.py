"""Sessions leave no garbage: no cycle that would wait for the garbage collector, and no growth.

Real HTTP over loopback, in the test's own process, to a gateway on a model of Redis.
"""

import gc
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

import gevent
import pytest
from gevent import socket as cooperative

from headgate.auth.tokens import Tokens
from headgate.delivery.client import Client
from headgate.settings.settings import Settings
from headgate.transport.http_answers import Answer
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import RoutedRequest
from headgate.transport.http_server import HTTPServer
from headgate.transport.session import Session
from headgate.transport.websocket import WebSocket
from tests.support.gateway_here import DEADLINE_S, POLL_S, GatewayOnModel, StartGatewayOnModel
from tests.support.model_redis import NAMESPACE
from tests.support.websocket_codec import TEXT, masked

SECRET = "s" * 32
# Fewer than one for each session of a kind in a part, because a loop, a log line or a cache may keep some.
SLACK_OBJECTS = 20
PARTS = 4
WEBSOCKET = (
    "GET /socket.io/?EIO=4&transport=websocket{more} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Site:
    """A gateway with its HTTP server, and the greenlet that moves its clock. `tokens` mints."""

    def __init__(self, gateway: GatewayOnModel) -> None:
        self.gateway = gateway
        tokens = Tokens.configured(gateway.gateway.settings)
        assert tokens is not None
        self.tokens = tokens
        self.asked = 0
        routes = {("GET", "/socket.io/"): self._route}
        application = gateway.gateway.wsgi_app(_nothing)
        self.served = HTTPServer(("127.0.0.1", 0), application, limits=HttpLimits.of(Settings()), routes=routes)
        self.served.start()
        self._ticking = gevent.spawn(self._tick)

    def connect(self) -> cooperative.socket:
        """Open a TCP connection to the server."""
        return cooperative.create_connection(("127.0.0.1", self.served.server_port), timeout=DEADLINE_S)

    def settle(self) -> None:
        """Wait until every session is over and forgotten, and its deadlines, which ask for nothing any more, have passed."""
        engine = self.gateway.gateway._sockets.engine
        sessions = engine.sessions
        with gevent.Timeout(DEADLINE_S):
            while sessions or len(self.served.connections) or self.gateway.namespace.clients:
                gevent.sleep(POLL_S)
            gevent.sleep(POLL_S)  # the greenlets that have ended them end
        slots, engine.deadlines._slots = engine.deadlines._slots, {}
        for callback, arguments in [due for slot in slots.values() for due in slot]:
            callback(*arguments)
        self.gateway.server.ran.clear()  # the model's own record

    def wait_until_asked(self, count: int) -> None:
        """Wait until so many requests of Socket.IO's path have come."""
        with gevent.Timeout(DEADLINE_S):
            while self.asked < count:
                gevent.sleep(POLL_S)

    def _route(self, request: RoutedRequest) -> Answer | None:
        self.asked += 1
        return self.gateway.gateway.handshake(request)

    def close(self) -> None:
        """Stop the server and the clock."""
        self._ticking.kill()
        self.served.stop(timeout=0)

    def _tick(self) -> None:
        while True:
            self.gateway.clock.advance(POLL_S)
            gevent.sleep(POLL_S)


@pytest.fixture
def site(gateway_on_model: StartGatewayOnModel) -> Iterator[Site]:
    """A gateway that takes tokens, and anonymous clients; no client is one too many."""
    options: dict[str, Any] = {"token_secret": SECRET, "anonymous_subscribe": ("#",), "anonymous_namespaces": (NAMESPACE,)}
    gateway = gateway_on_model(dev=False, max_clients_per_address=0, failed_logins_burst=0, **options)
    site = Site(gateway)
    yield site
    site.close()


# The kinds of sessions ---------------------------------------------------------------------------------------------------


def anonymous(site: Site, number: int) -> None:
    """Joins with a subscription, and hangs up."""
    sock, received = opened(site)
    send(sock, {"subscriptions": [{"pattern": f"orders.{number % 100}"}]})
    read_until(sock, received, b"welcome")
    sock.close()


def token(site: Site, number: int) -> None:
    """Joins with a token and its own topics, and says goodbye."""
    sock, received = opened(site)
    user = f"u{number % 100}"
    minted = site.tokens.mint(user, ["orders.#"], [], 3600)
    send(sock, {"token": minted, "subscriptions": [{"pattern": f"users.{user}.#"}, {"pattern": "orders.#"}]})
    assert b'"ok":false' not in read_until(sock, received, b"welcome")
    sock.sendall(masked(TEXT, f"41/{NAMESPACE},") + masked(TEXT, "1"))
    read_to_end(sock)


def forbidden(site: Site, number: int) -> None:
    """Joins, and gets none of the subscriptions that it asks for, then or later."""
    sock, received = opened(site)
    minted = site.tokens.mint("ana", ["orders.#"], [], 3600)
    send(sock, {"token": minted, "subscriptions": [{"pattern": "users.bob.#"}, {"pattern": "a..b"}, "no pattern"]})
    received = read_until(sock, received, b"welcome")
    for ack, request in enumerate((["subscribe", {"pattern": "users.bob.#"}], ["replay", {}], ["unheard of"])):
        sock.sendall(masked(TEXT, f"42/{NAMESPACE},{ack}{json.dumps(request)}"))
        read_until(sock, received, f"43/{NAMESPACE},{ack}".encode())
    sock.close()


def refused(site: Site, number: int) -> None:
    """Has an invalid token."""
    sock, received = opened(site)
    send(sock, {"token": "a.b.c"})
    read_until(sock, received, f"44/{NAMESPACE}".encode())
    sock.close()


def in_no_namespace(site: Site, number: int) -> None:
    """Asks for an unserved namespace."""
    sock, received = opened(site)
    sock.sendall(masked(TEXT, "40/nowhere,"))
    read_until(sock, received, b"44/nowhere")
    sock.close()


def broken_frame(site: Site, number: int) -> None:
    """Sends a frame that no browser sends."""
    sock, _ = opened(site)
    sock.sendall(b"\x81\x05hello")
    read_to_end(sock)


def broken_packet(site: Site, number: int) -> None:
    """Sends no packet of Socket.IO."""
    sock, _ = opened(site)
    sock.sendall(masked(TEXT, "49{"))
    read_to_end(sock)


def hangs_up(site: Site, number: int) -> None:
    """Is gone before it is answered."""
    asked = site.asked
    sock = site.connect()
    sock.sendall(WEBSOCKET.format(more="").encode())
    sock.close()
    site.wait_until_asked(asked + 1)


def polling(site: Site, number: int) -> None:
    """Never leaves long-polling."""
    sock = site.connect()
    sid = join_polling(sock)
    request(sock, "POST", f"&sid={sid}", b"1")
    sock.close()


def upgraded(site: Site, number: int) -> None:
    """Moves from long-polling to a WebSocket."""
    sock = site.connect()
    sid = join_polling(sock)
    wire = site.connect()
    wire.sendall(WEBSOCKET.format(more=f"&sid={sid}").encode())
    received = read_until(wire, b"", b"\r\n\r\n")
    wire.sendall(masked(TEXT, "2probe"))
    read_until(wire, received, b"3probe")
    wire.sendall(masked(TEXT, "5") + masked(TEXT, "1"))
    read_to_end(wire)
    sock.close()


def unknown_session(site: Site, number: int) -> None:
    """Polls for an unknown session."""
    sock = site.connect()
    request(sock, "GET", "&sid=nobody")
    sock.close()


def not_http(site: Site, number: int) -> None:
    """Sends no request."""
    sock = site.connect()
    sock.sendall(b"hello\r\n\r\n")
    read_to_end(sock)


KINDS = [
    *(anonymous, token, forbidden, refused, in_no_namespace, broken_frame, broken_packet, hangs_up),
    *(polling, upgraded, unknown_session, not_http),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_session_that_is_over_is_freed_without_the_garbage_collector(site: Site, kind: Callable[[Site, int], None]) -> None:
    """No cycle holds a session, its client, its socket, its request, or an error that it received."""
    kind(site, 0)  # made once
    site.settle()
    gc.disable()
    gc.freeze()  # the collector looks at what is made from here on
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for number in range(3):
            kind(site, number)
        site.settle()
        assert [thing for thing in gc.get_objects() if isinstance(thing, Session | Client | WebSocket)] == []
        gc.collect()
        assert [repr(thing) for thing in gc.garbage if is_ours(thing)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize(
    ("sessions", "kinds"),
    [
        pytest.param(100 * len(KINDS), KINDS, id="short"),
        pytest.param(1_000_000, [anonymous, token], id="million", marks=[pytest.mark.nightly, pytest.mark.timeout(7200)]),
    ],
)
def test_sessions_that_come_and_go_leave_nothing(site: Site, sessions: int, kinds: list[Callable[[Site, int], None]]) -> None:
    """With the garbage collector off all the while, sessions add nothing that it would have to look through.

    A module that is imported in between, or a cache that fills up, adds objects once. A leak of sessions grows in every part.
    """
    gc.disable()
    gc.freeze()
    try:
        counts = []
        for part in range(PARTS):
            for number in range(part * sessions // PARTS, (part + 1) * sessions // PARTS):
                kinds[number % len(kinds)](site, number)
                if number % 100 == 0:
                    site.settle()
            site.settle()
            counts.append(len(gc.get_objects()))
        assert min(after - before for before, after in pairwise(counts)) < SLACK_OBJECTS, counts
    finally:
        gc.unfreeze()
        gc.enable()


# Private -----------------------------------------------------------------------------------------------------------------


def _nothing(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("404 Not Found", [("Content-Length", "0")])
    return []


def is_ours(thing: object) -> bool:
    """Whether it is a thing of Headgate's, or a frame of its code."""
    module = thing.f_globals.get("__name__", "") if isinstance(thing, FrameType) else type(thing).__module__
    return str(module).startswith("headgate")


def opened(site: Site) -> tuple[cooperative.socket, bytes]:
    """Return an open WebSocket, and the bytes after the handshake's answer."""
    sock = site.connect()
    sock.sendall(WEBSOCKET.format(more="").encode())
    return sock, read_until(sock, b"", b"\r\n\r\n").split(b"\r\n\r\n", 1)[1]


def send(sock: cooperative.socket, auth: object) -> None:
    """Send CONNECT."""
    sock.sendall(masked(TEXT, f"40/{NAMESPACE}," + json.dumps(auth)))


def read_until(sock: cooperative.socket, received: bytes, word: bytes) -> bytes:
    """Read until a word has come; return all."""
    while word not in received:
        data = sock.recv(65536)
        assert data, f"{word!r} has not come: {received!r}"
        received += data
    return received


def read_to_end(sock: cooperative.socket) -> None:
    """Read until the gateway closes the connection, and close it."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    sock.close()


def request(sock: cooperative.socket, method: str, query: str, body: bytes = b"") -> bytes:
    """Make a request of Engine.IO's long-polling; return the body of its answer."""
    line = f"{method} /socket.io/?EIO=4&transport=polling{query} HTTP/1.1\r\n"
    sock.sendall(f"{line}Host: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    head, _, rest = read_until(sock, b"", b"\r\n\r\n").partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(rest) < length:
        rest += sock.recv(65536)
    return rest


def join_polling(sock: cooperative.socket) -> str:
    """Open a session and join by long-polling; return the id of the session."""
    sid = json.loads(request(sock, "GET", "")[1:])["sid"]
    request(sock, "POST", f"&sid={sid}", f"40/{NAMESPACE},".encode())
    received = b""
    while b"welcome" not in received:
        received += request(sock, "GET", f"&sid={sid}")
    return str(sid)
