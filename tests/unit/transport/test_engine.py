"""The Engine.IO server's answers over HTTP, called as a WSGI application: no socket, no process."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import gevent
import gevent.socket
import pytest
from structlog.testing import capture_logs

from headgate.errors import LimitReached
from headgate.runtime.seldom import Seldom
from headgate.socketio.engine import DropInEngine
from headgate.transport.engine import OneTooMany
from headgate.transport.engineio_http import BAD_REQUEST, FORBIDDEN, UNKNOWN_SESSION
from headgate.transport.http_server import HTTPServer
from headgate.transport.limits import TransportLimits
from headgate.transport.peer_socket import NativeSocket
from headgate.transport.session_state import SessionState
from tests.support.http_peer import serve_on
from tests.support.session_clock import Clock, controlled_clock, read_all, turn
from tests.support.websocket_codec import TEXT, frame_at, handshake, masked
from tests.support.wsgi import Said

HANDSHAKE = "EIO=4&transport=polling"
FULL = OneTooMany(LimitReached("clients", 7, 3))
UPGRADE: dict[str, Any] = {
    "HTTP_UPGRADE": "websocket",
    "HTTP_CONNECTION": "Upgrade",
    "HTTP_SEC_WEBSOCKET_VERSION": "13",
    "HTTP_SEC_WEBSOCKET_KEY": "dGhlIHNhbXBsZSBub25jZQ==",
}
LIMITS = TransportLimits(ping_interval_s=3600, handshake_deadline_s=3600, max_message_bytes=100)

clock = pytest.fixture(controlled_clock)


@dataclass
class Answer:
    """An answer, read whole."""

    status: str
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> int:
        """Engine.IO's error code."""
        code: int = json.loads(self.body)["code"]
        return code


class Engine:
    """A server whose application records, and whose connect handler the test chooses."""

    def __init__(self, limits: TransportLimits = LIMITS, **options: Any) -> None:
        self.server = DropInEngine(transport_limits=limits, **options)
        self.ends: list[str] = []
        self.messages: list[str | bytes] = []
        self.connect: Callable[[str], Any] = lambda sid: None
        self.server.on("connect", lambda sid, environ: self.connect(sid))
        self.server.on("message", lambda sid, message: self.messages.append(message))
        self.server.on("disconnect", lambda sid, reason: self.ends.append(reason))

    def ask(self, query: str, method: str = "GET", body: bytes = b"", **environ: Any) -> Answer:
        """Send a request."""
        said = Said()
        parts = self.server.handle_request(
            {
                "REQUEST_METHOD": method,
                "QUERY_STRING": query,
                "CONTENT_LENGTH": str(len(body)),
                "wsgi.input": BytesIO(body),
                "wsgi.url_scheme": "http",
                "HTTP_HOST": "here",
                **environ,
            },
            said,
        )
        try:
            body = b"".join(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        return Answer(said.status, said.headers, body)

    def begin(self, query: str, method: str = "GET", body: bytes = b"") -> Any:
        """Send a request that may have to wait; its `value` is the answer."""
        greenlet = gevent.spawn(self.ask, query, method, body)
        turn()
        return greenlet

    def close(self) -> None:
        """End every session."""
        self.server.disconnect()
        turn()
        self.server.deadlines.close()

    def open(self) -> str:
        """Open a polling session; return its id."""
        answer = self.ask(HANDSHAKE)
        assert answer.status == "200 OK"
        sid: str = json.loads(answer.body[1:])["sid"]
        return sid


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A server with default options."""
    made = Engine()
    yield made
    made.close()


@pytest.fixture
def polling(engine: Engine) -> str:
    """The query of a polling session's requests."""
    return f"{HANDSHAKE}&sid={engine.open()}"


def test_a_session_opens_with_the_limits_of_the_server(engine: Engine) -> None:
    """In milliseconds and bytes; it may move to WebSocket."""
    answer = engine.ask(HANDSHAKE)
    opening = json.loads(answer.body.removeprefix(b"0"))

    assert opening.pop("sid") in engine.server.sockets
    assert opening == {"upgrades": ["websocket"], "pingInterval": 3_600_000, "pingTimeout": 20_000, "maxPayload": 100}


def test_a_body_goes_in_and_a_poll_brings_frames_out(engine: Engine) -> None:
    """With the application in between."""
    sid = engine.open()
    assert engine.ask(f"{HANDSHAKE}&sid={sid}", "POST", b"4one\x1e4zwei").body == b"ok"
    turn()
    engine.server.send(sid, "back")

    assert engine.messages == ["one", "zwei"]
    assert engine.ask(f"{HANDSHAKE}&sid={sid}").body == b"4back"


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (False, "401 Unauthorized", FORBIDDEN[0]),
        (OneTooMany(LimitReached("clients", 7, 3)), "429 Too Many Requests", BAD_REQUEST[0]),
    ],
)
def test_a_session_that_the_application_refuses_does_not_exist(engine: Engine, refusal: object, status: str, code: int) -> None:
    """Nobody is told of its end: it never was."""
    engine.connect = lambda sid: refusal
    answer = engine.ask(HANDSHAKE)
    turn()

    assert (answer.status, answer.code) == (status, code)
    assert (engine.server.sockets, engine.ends) == ({}, [])


def test_a_session_that_its_own_connect_handler_ends_is_refused(engine: Engine) -> None:
    """It was let in and is over: the application hears of the end, the browser that it may not stay."""
    engine.connect = engine.server.disconnect
    answer = engine.ask(HANDSHAKE)
    turn()

    assert (answer.status, answer.code) == ("401 Unauthorized", FORBIDDEN[0])
    assert (engine.server.sockets, engine.ends) == ({}, ["server disconnect"])


def test_a_websocket_that_cannot_be_detached_is_answered_501(engine: Engine) -> None:
    """Under a WSGI server other than ours; the session that was made for it ends."""
    answer = engine.ask("EIO=4&transport=websocket", **UPGRADE)
    turn()

    assert answer.status == "501 Not Implemented"
    assert engine.server.sockets == {}
    assert [reason.partition(":")[0] for reason in engine.ends] == ["handshake failed"]


def test_under_uwsgi_a_client_is_refused_with_words(engine: Engine) -> None:
    """Over polling, too, where its polls would hang."""
    answer = engine.ask("EIO=4&transport=polling", **{"uwsgi.version": "2.0"})  # type: ignore[arg-type]

    assert answer.status == "501 Not Implemented"
    assert engine.server.sockets == {}


def test_a_request_for_a_session_that_the_application_has_not_let_in_finds_none(engine: Engine) -> None:
    """Its id may leak out of a connect handler that waits."""
    answers: list[Answer] = []
    engine.connect = lambda sid: answers.append(engine.ask(f"{HANDSHAKE}&sid={sid}"))
    sid = engine.open()

    assert answers[0].code == UNKNOWN_SESSION[0]
    assert engine.server.sockets[sid].state is SessionState.POLLING


@pytest.mark.parametrize("size", [101, 10**9])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(engine: Engine, polling: str, size: int) -> None:
    """With both numbers; the session is over. (An input that is not there would fail when it is read.)"""
    absent: dict[str, Any] = {"CONTENT_LENGTH": str(size), "wsgi.input": None}
    answer = engine.ask(polling, "POST", **absent)

    assert answer.status == "413 Content Too Large"
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["size"], error["limit"]) == ("payload_too_large", size, 100)
    turn()
    assert engine.ends == ["payload too large"]


def test_final_frames_are_given_to_the_next_poll_once(engine: Engine) -> None:
    """Behind it the session is unknown."""
    sid = engine.open()
    engine.server.send(sid, "final")
    engine.server.disconnect(sid)
    turn()

    assert engine.ask(f"{HANDSHAKE}&sid={sid}").body == b"4final\x1e1"
    assert engine.ask(f"{HANDSHAKE}&sid={sid}").code == UNKNOWN_SESSION[0]


def test_an_answer_of_a_poll_that_was_not_written_ends_the_session(engine: Engine) -> None:
    """Its frames are lost, and silence would hide it."""
    sid = engine.open()
    engine.server.send(sid, "lost")
    parts: Any = engine.server.handle_request(
        {"REQUEST_METHOD": "GET", "QUERY_STRING": f"{HANDSHAKE}&sid={sid}", "HTTP_HOST": "here", "wsgi.url_scheme": "http"},
        Said(),
    )
    next(iter(parts))
    parts.close()
    turn()

    assert engine.ends == ["transport error"]


def test_an_application_without_clients_of_ours_loses_a_session_whose_queue_is_full(engine: Engine) -> None:
    """There is nobody to tell of a gap."""
    sid = engine.open()
    for number in range(LIMITS.queue_frames + 1):
        engine.server.send(sid, str(number))
    turn()

    assert engine.ends == ["slow consumer"]


@pytest.mark.parametrize(
    ("method", "query", "code"),
    [
        ("GET", "", 0),
        ("GET", "EIO=4", 0),
        ("GET", "EIO=4&transport=", 0),
        ("GET", "EIO=4&transport=carrier-pigeon", 0),
        ("GET", "transport=polling", 5),
        ("GET", "EIO=3&transport=polling", 5),
        ("GET", "EIO=abc&transport=polling", 5),
        ("POST", HANDSHAKE, 2),
        ("PUT", HANDSHAKE, 2),
        ("DELETE", HANDSHAKE, 2),
        ("GET", f"{HANDSHAKE}&sid=nobody", 1),
        ("POST", f"{HANDSHAKE}&sid=nobody", 1),
        ("GET", "EIO=4&transport=websocket&sid=nobody", 3),
        ("GET", "EIO=4&transport=websocket", 3),
        ("GET", HANDSHAKE + "&x=1" * 40, 3),
    ],
)
def test_a_wrong_request_is_answered_400_with_its_code(engine: Engine, method: str, query: str, code: int) -> None:
    """The codes are the reference server's."""
    answer = engine.ask(query, method)

    assert (answer.status, answer.code) == ("400 Bad Request", code)
    assert engine.server.sockets == {}


def test_a_method_other_than_get_and_post_on_a_session_is_refused(engine: Engine, polling: str) -> None:
    """PUT and DELETE mean nothing here, and do the session no harm."""
    assert [engine.ask(polling, method).code for method in ("PUT", "DELETE")] == [BAD_REQUEST[0]] * 2
    assert engine.ask(polling, "POST", b"4still here").body == b"ok"
    turn()
    assert engine.messages == ["still here"]


@pytest.mark.parametrize(
    ("change", "status"),
    [({"HTTP_SEC_WEBSOCKET_VERSION": "8"}, "426 Upgrade Required"), ({"HTTP_UPGRADE": "h2c"}, "400 Bad Request")],
)
def test_a_wrong_websocket_handshake_leaves_no_session(engine: Engine, change: dict[str, str], status: str) -> None:
    """RFC 6455 section 4.2.1."""
    assert engine.ask("EIO=4&transport=websocket", **(UPGRADE | change)).status == status
    assert engine.server.sockets == {}


@pytest.mark.parametrize(("interval_s", "timeout_s", "announced"), [(0.3, 0.2, (300, 200)), (1.5, 0.75, (1500, 750))])
def test_intervals_below_a_second_are_announced_in_milliseconds(
    interval_s: float, timeout_s: float, announced: tuple[int, int]
) -> None:
    """The reference server announces 0 for 0.3 s."""
    engine = Engine(TransportLimits(ping_interval_s=interval_s, ping_timeout_s=timeout_s))
    opening = json.loads(engine.ask(HANDSHAKE).body[1:])
    engine.close()

    assert (opening["pingInterval"], opening["pingTimeout"]) == announced


class TestBodies:
    """Packets in the bodies of POST requests."""

    def test_every_kind_of_message_keeps_its_place(self, engine: Engine, polling: str) -> None:
        """Several in one body, several in one answer; bytes in base64."""
        packets = ["4one", "4zwei", "4", "4drei ü €", "bAQIDBA=="]
        assert engine.ask(polling, "POST", "\x1e".join(packets).encode()).body == b"ok"
        turn()
        assert engine.messages == ["one", "zwei", "", "drei ü €", b"\x01\x02\x03\x04"]
        for message in engine.messages:
            engine.server.send(next(iter(engine.server.sockets)), message)

        assert engine.ask(polling).body.decode().split("\x1e") == packets

    @pytest.mark.parametrize("count", [16, 17, 40, 100])
    def test_many_packets_in_one_body_are_all_delivered(self, count: int) -> None:
        """The reference server answers 200 to 17 and drops them all."""
        engine = Engine(TransportLimits(inbound_burst=100))
        polling = f"{HANDSHAKE}&sid={engine.open()}"
        posting = engine.begin(polling, "POST", "\x1e".join(f"4{number}" for number in range(count)).encode())
        posting.join()
        while len(engine.messages) < count:
            turn()
        engine.close()

        assert posting.value.body == b"ok"
        assert engine.messages == [str(number) for number in range(count)]

    def test_more_packets_than_a_session_may_send_are_refused(self) -> None:
        """All of them, and the session ends: never taken and lost."""
        engine = Engine(TransportLimits(inbound_burst=100))
        polling = f"{HANDSHAKE}&sid={engine.open()}"
        answer = engine.ask(polling, "POST", b"\x1e".join([b"4x"] * 101))
        turn()
        engine.close()

        assert answer.status == "400 Bad Request"
        assert (engine.messages, engine.ends) == ([], ["transport error"])

    def test_a_body_that_runs_into_the_rate_limit_is_not_answered_ok(self, clock: Clock) -> None:
        """The second body exceeds what the bucket holds: a body of which a part was not taken must not be answered 200."""
        engine = Engine(TransportLimits(inbound_per_s=10, inbound_burst=100))
        polling = f"{HANDSHAKE}&sid={engine.open()}"
        statuses = []
        for _ in range(2):
            posting = engine.begin(polling, "POST", b"\x1e".join([b"4x"] * 90))
            posting.join()
            statuses.append(posting.value.status)
        turn()
        engine.close()

        assert statuses == ["200 OK", "400 Bad Request"]
        assert engine.ends == ["inbound flood"]

    @pytest.mark.parametrize("body", [b"abc", b"4ok\x1e", b"b!!!", b"4\xff\xfe", b"7", b""])
    def test_an_invalid_body_is_refused_and_ends_the_session(self, engine: Engine, polling: str, body: bytes) -> None:
        """As the reference server does."""
        assert engine.ask(polling, "POST", body).status == "400 Bad Request"
        turn()
        assert engine.ends == ["transport error"]
        assert engine.ask(polling).code == UNKNOWN_SESSION[0]

    def test_a_body_that_breaks_off_ends_the_session(self, engine: Engine, polling: str) -> None:
        """No message comes from half a body."""

        class Broken:
            def read(self, size: int) -> bytes:
                raise OSError("unexpected end of file")

        assert engine.ask(polling, "POST", b"4half", **{"wsgi.input": Broken()}).status == "400 Bad Request"
        turn()
        assert (engine.messages, engine.ends) == ([], ["transport error"])


class TestEnds:
    """The end of a session, told by HTTP."""

    @pytest.mark.parametrize("poll_first", [True, False])
    def test_a_closing_post_ends_the_poll_with_a_noop(self, engine: Engine, polling: str, poll_first: bool) -> None:
        """The official suite's `6`, whichever of the two requests comes first."""
        if poll_first:
            poll = engine.begin(polling)
            close = engine.ask(polling, "POST", b"1")
        else:
            close = engine.ask(polling, "POST", b"1")
            poll = engine.begin(polling)
        poll.join()

        assert (close.body, poll.value.body) == (b"ok", b"6")
        assert engine.ask(polling).code == UNKNOWN_SESSION[0]
        assert engine.ends == ["client disconnect"]

    def test_a_second_poll_ends_both(self, engine: Engine, polling: str) -> None:
        """The first is told CLOSE, the second is refused, the session is gone."""
        first = engine.begin(polling)
        second = engine.ask(polling)
        first.join()
        turn()

        assert (first.value.body, second.status) == (b"1", "400 Bad Request")
        assert engine.server.sockets == {}

    def test_requests_behind_an_upgrade_are_refused(self, engine: Engine, polling: str) -> None:
        """And do the session no harm."""
        (session,) = engine.server.sockets.values()
        ours, theirs = socket.socketpair()
        with theirs:
            session.probe(NativeSocket(fileno=ours.detach()))
            theirs.sendall(masked(TEXT, "2probe") + masked(TEXT, "5"))
            turn()
            assert session.state is SessionState.OPEN

            assert [engine.ask(polling, *request).status for request in (("GET",), ("POST", b"4abc"))] == ["400 Bad Request"] * 2
            assert session.state is SessionState.OPEN
            engine.close()


class TestWebSocket:
    """WebSockets over the real HTTP handler, on a socket pair."""

    def dial(self, engine: Engine, query: str, behind: bytes = b"") -> socket.socket:
        """Send a handshake, with more bytes right behind it; return the browser's end."""
        server = HTTPServer(("127.0.0.1", 0), engine.server.handle_request)
        ours, theirs = gevent.socket.socketpair()
        theirs.sendall(handshake("here", f"/engine.io/?{query}") + behind)
        serve_on(server, ours)
        turn()
        browser = socket.socket(fileno=theirs.detach())
        browser.setblocking(False)
        return browser

    def received(self, browser: socket.socket) -> tuple[bytes, list[bytes]]:
        """Return the head of the answer, and the payloads of the frames behind it."""
        head, _, stream = read_all(browser).partition(b"\r\n\r\n")
        payloads, at = [], 0
        while (frame := frame_at(stream, at)) is not None:
            payloads.append(stream[frame.start : frame.end])
            at = frame.end
        return head, payloads

    def test_a_session_opens_with_frames_that_came_right_behind_the_handshake(self, engine: Engine) -> None:
        """It has nowhere to move to, and its first frame goes out with the answer."""
        engine.server.on("message", lambda sid, message: engine.server.send(sid, f"back {message}"))
        with self.dial(engine, "EIO=4&transport=websocket", masked(TEXT, "4early") + masked(TEXT, "4bird")) as browser:
            head, (opening, *answers) = self.received(browser)
            (session,) = engine.server.sockets.values()

            assert head.startswith(b"HTTP/1.1 101 ")
            assert json.loads(opening.removeprefix(b"0"))["upgrades"] == []
            assert answers == [b"4back early", b"4back bird"]
            assert session.state is SessionState.OPEN
            engine.close()

    def test_a_session_moves_from_polling(self, engine: Engine) -> None:
        """The probe is answered, and what is sent behind the move goes over the WebSocket."""
        sid = engine.open()
        with self.dial(engine, f"EIO=4&transport=websocket&sid={sid}", masked(TEXT, "2probe") + masked(TEXT, "5")) as browser:
            engine.server.send(sid, "moved")
            head, payloads = self.received(browser)

            assert head.startswith(b"HTTP/1.1 101 ")
            assert payloads == [b"3probe", b"4moved"]
            engine.close()

    def test_a_server_that_does_not_upgrade_says_so(self) -> None:
        """In its opening, and to a browser that tries nevertheless."""
        engine = Engine(allow_upgrades=False)
        opening = json.loads(engine.ask(HANDSHAKE).body[1:])
        answer = engine.ask(f"EIO=4&transport=websocket&sid={opening['sid']}", **UPGRADE)
        engine.close()

        assert opening["upgrades"] == []
        assert (answer.status, answer.code) == ("400 Bad Request", BAD_REQUEST[0])


class TestHeaders:
    """Headers of requests and answers."""

    @pytest.mark.parametrize(("origin", "allowed"), [("https://here.example", True), ("https://elsewhere.example", False)])
    def test_an_origin_that_is_not_allowed_is_refused(self, origin: str, allowed: bool) -> None:
        """Before anything else is looked at."""
        engine = Engine(cors_allowed_origins=["https://here.example"])
        answers = [engine.ask(HANDSHAKE, HTTP_ORIGIN=origin), engine.ask("", "OPTIONS", HTTP_ORIGIN=origin)]
        engine.close()

        statuses = ["200 OK", "204 No Content"] if allowed else ["403 Forbidden"] * 2
        assert [answer.status for answer in answers] == statuses
        assert [answer.headers.get("Access-Control-Allow-Origin") == origin for answer in answers] == [allowed] * 2

    def test_a_large_answer_is_compressed_for_a_browser_that_takes_it(self, engine: Engine, polling: str) -> None:
        """A small one costs less as it is."""
        (sid,) = engine.server.sockets
        answers = []
        asked = ("gzip, br", "br", "br, GZIP;q=0.5", "gzip;q=0", "*", "gzip; q=0.000, *", "not-gzip", "")
        for size, accepted in (*((2000, each) for each in asked), (10, "gzip")):
            engine.server.send(sid, "x" * size)
            answers.append(engine.ask(polling, HTTP_ACCEPT_ENCODING=accepted))

        gzipped = [answer.headers.get("Content-Encoding") == "gzip" for answer in answers]
        assert gzipped == [True, False, True, False, True, False, False, False, False]
        assert gzip.decompress(answers[0].body) == b"4" + b"x" * 2000

    def test_a_cookie_carries_the_id_of_the_session(self) -> None:
        """For a proxy in front that keeps a session to one server by it."""
        engine = Engine(cookie="io")
        answer = engine.ask(HANDSHAKE)
        engine.close()

        assert answer.headers["Set-Cookie"].startswith(f"io={json.loads(answer.body[1:])['sid']}")


def test_packets_for_a_session_that_is_over_are_dropped(engine: Engine) -> None:
    """Nobody waits for them; python-socketio looks the session up by a method of its own."""
    engine.server.send("nobody", "text")
    engine.server.disconnect("nobody")
    with pytest.raises(KeyError):
        engine.server.get_session("nobody")

    assert engine.ends == []


def test_ids_are_many_and_a_forked_process_has_others(engine: Engine) -> None:
    """Random bits are fetched for many ids at once, and those of a parent are not its child's."""
    ids = [engine.server.generate_id() for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{20}", made) for made in ids)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, engine.server.generate_id().encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as told:
        made = told.read().decode()
    assert len(made) == 20
    assert made not in [engine.server.generate_id() for _ in range(200)]


PAGE = "https://app.example.com"


@pytest.fixture
def listing() -> Iterator[Engine]:
    """A server that lists one origin, in capitals and with its port."""
    made = Engine(cors_allowed_origins=["HTTPS://App.example.com:443"])
    yield made
    made.close()


REFUSALS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "unknown transport": ("EIO=4&transport=pigeon", "GET", {}, "bad_request"),
    "unknown version": ("EIO=3&transport=polling", "GET", {}, "bad_request"),
    "bad method": (HANDSHAKE, "PUT", {}, "bad_request"),
    "unknown session": (f"{HANDSHAKE}&sid=nobody", "GET", {}, "unknown_session"),
    "no upgrade": ("EIO=4&transport=websocket", "GET", {}, "bad_request"),
    "another server": ("EIO=4&transport=polling", "GET", {"uwsgi.version": "2.0"}, "not_implemented"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_every_refusal_has_the_shape_of_the_product_and_a_listed_page_may_read_it(listing: Engine, case: str) -> None:
    """A WebSocket's refusal is hidden from pages: the client asks once more over HTTP, and shows this."""
    query, method, environ, code = REFUSALS[case]
    answer = listing.ask(query, method, HTTP_ORIGIN=PAGE, **environ)
    error = json.loads(answer.body)["error"]

    assert error["code"] == code
    assert error["message"]
    assert error["retry"] is False
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert answer.headers["Access-Control-Expose-Headers"] == "Retry-After"


def test_a_refusal_that_passes_says_when_to_come_again(listing: Engine) -> None:
    """In the body and in the header; both may be read."""
    listing.connect = lambda sid: OneTooMany(LimitReached("clients", 7, 9), "503 Service Unavailable")
    answer = listing.ask(HANDSHAKE, HTTP_ORIGIN=PAGE)
    error = json.loads(answer.body)["error"]

    assert (answer.status, error["code"], error["name"]) == ("503 Service Unavailable", "limit_reached", "clients")
    assert (error["retry"], error["retry_after_s"], answer.headers["Retry-After"]) == (True, 9, "9")


def test_a_page_that_may_not_connect_is_named_with_the_setting(listing: Engine) -> None:
    """The page itself cannot read it; its developer does, in the network panel."""
    answer = listing.ask(HANDSHAKE, HTTP_ORIGIN="http://localhost:5173")
    error = json.loads(answer.body)["error"]

    assert (answer.status, answer.code, error["code"]) == ("403 Forbidden", FORBIDDEN[0], "origin_not_allowed")
    assert error["origin"] == "http://localhost:5173"
    assert "cors_allowed_origins" in error["message"]
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("origin", [PAGE, "https://app.example.com:443", "https://APP.example.com."])
def test_a_listed_origin_may_connect_in_every_spelling(listing: Engine, origin: str) -> None:
    """The answer repeats the one that came: a browser compares letters."""
    answer = listing.ask(HANDSHAKE, HTTP_ORIGIN=origin)
    assert answer.status == "200 OK"
    assert answer.headers["Access-Control-Allow-Origin"] == origin


def test_without_a_list_the_forwarded_scheme_of_a_websocket_is_that_of_its_page(engine: Engine) -> None:
    """Traefik forwards wss where the page's origin has https."""
    forwarded: dict[str, Any] = {"HTTP_X_FORWARDED_PROTO": "wss", "HTTP_X_FORWARDED_HOST": "App.example.com:443"}
    assert engine.ask(HANDSHAKE, HTTP_ORIGIN=PAGE, **forwarded).status == "200 OK"
    assert engine.ask(HANDSHAKE, HTTP_ORIGIN="http://app.example.com", **forwarded).status == "403 Forbidden"


def test_a_refused_origin_is_in_the_log_once_a_minute_with_the_line_that_allows_it(listing: Engine) -> None:
    """For each origin; however many a client makes up, the table is bounded."""
    now_s = [0.0]
    listing.server.refused_origins = Seldom(lambda: now_s[0], every_s=60, most_names=2)
    with capture_logs() as lines:
        for origin in (
            "https://a.example",
            "https://a.example",
            "https://b.example",
            *(f"https://{n}.example" for n in range(99)),
        ):
            listing.ask(HANDSHAKE, HTTP_ORIGIN=origin)
        now_s[0] = 60.0
        listing.ask(HANDSHAKE, HTTP_ORIGIN="https://a.example")

    told = [(line["origin"], line["set"], line["left_out"]) for line in lines if line["event"] == "origin refused"]
    assert [origin for origin, *_ in told] == [f"https://{name}.example" for name in ("a", "b", "0", "a")]
    assert told[0][1:] == ("cors_allowed_origins='https://a.example'", 0)


def test_no_cache_may_keep_an_answer(engine: Engine) -> None:
    """A cache knows answers by their URL: it would serve one client's session to another."""
    sid = engine.open()
    engine.server.send(sid, "x")
    answers = [
        engine.ask(HANDSHAKE),
        engine.ask(f"{HANDSHAKE}&sid={sid}"),
        engine.ask(f"{HANDSHAKE}&sid={sid}", "POST", b"4x"),
        engine.ask(f"{HANDSHAKE}&sid={sid}", "OPTIONS"),
        engine.ask(f"{HANDSHAKE}&sid=nobody"),
        engine.ask(HANDSHAKE, HTTP_ORIGIN="https://evil.example"),
        engine.ask(f"{HANDSHAKE}&sid={sid}", "POST", b"4" * 1000),
    ]
    other = engine.open()
    engine.server.disconnect(other)
    turn()
    answers.append(engine.ask(f"{HANDSHAKE}&sid={other}"))  # its final frames

    assert [answer.status[:3] for answer in answers] == ["200", "200", "200", "204", "400", "403", "413", "200"]
    assert {answer.headers.get("Cache-Control") for answer in answers} == {"no-store"}


@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket", "h2c, websocket"])
def test_an_upgrade_to_websocket_may_stand_among_others(engine: Engine, upgrade: str) -> None:
    """The fields are lists (RFC 9110 section 7.8). The request gets as far as the socket, which this test has none of."""
    asked: dict[str, Any] = {**UPGRADE, "HTTP_UPGRADE": upgrade, "HTTP_CONNECTION": "keep-alive, UPGRADE"}
    assert engine.ask("EIO=4&transport=websocket", **asked).status == "501 Not Implemented"


@pytest.mark.parametrize("upgrade", ["", "xwebsocket", "websockets", "h2c"])
def test_another_upgrade_is_none_to_websocket(engine: Engine, upgrade: str) -> None:
    """Not even one that begins or ends so."""
    asked: dict[str, Any] = {**UPGRADE, "HTTP_UPGRADE": upgrade}
    assert engine.ask("EIO=4&transport=websocket", **asked).status == "400 Bad Request"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "BREW"])
def test_a_session_has_two_methods(engine: Engine, polling: str, method: str) -> None:
    """The answer names them (RFC 9110 section 15.5.6); the session stays."""
    answer = engine.ask(polling, method)
    assert (answer.status, answer.headers["Allow"]) == ("405 Method Not Allowed", "GET, POST, OPTIONS")
    assert json.loads(answer.body)["error"]["code"] == "method_not_allowed"
    assert len(engine.server.sockets) == 1
