"""The Engine.IO server's answers over HTTP, called as a WSGI application: no socket, no process."""

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
from headgate.runtime.log_throttle import LogThrottle
from headgate.socketio.engine import DropInEngine
from headgate.transport.engine import OneTooMany
from headgate.transport.engineio_http import BAD_REQUEST, FORBIDDEN, UNKNOWN_SESSION
from headgate.transport.http_server import HTTPServer
from headgate.transport.limits import TransportLimits
from headgate.transport.session_state import SessionState
from headgate.transport.upgrade import begin_upgrade
from tests.support.http_peer import serve_on
from tests.support.session_clock import Clock, controlled_clock, native_pair, read_all, turn, until
from tests.support.websocket_codec import TEXT, frames_in, handshake, masked
from tests.support.wsgi import Said

HANDSHAKE = "EIO=4&transport=polling"
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
        code: int = json.loads(self.body)["code"]
        return code

    @property
    def error(self) -> dict[str, Any]:
        """The refusal in the shape of the product."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


class Engine:
    """A server with an application that records, and a connect handler that the test chooses."""

    def __init__(self, limits: TransportLimits = LIMITS, **options: Any) -> None:
        self.server = DropInEngine(transport_limits=limits, **options)
        self.ends: list[str] = []
        self.messages: list[str | bytes] = []
        self.connect: Callable[[str], Any] = lambda sid: None
        self.server.on("connect", lambda sid, environ: self.connect(sid))
        self.server.on("message", lambda sid, message: self.messages.append(message))
        self.server.on("disconnect", lambda sid, reason: self.ends.append(reason))

    def begun(self, query: str, said: Said | None = None, method: str = "GET", body: bytes = b"", **environ: Any) -> Any:
        """Send a request; return the server's iterable."""
        asked = {"REQUEST_METHOD": method, "QUERY_STRING": query, "CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
        return self.server.handle_request({**asked, "wsgi.url_scheme": "http", "HTTP_HOST": "here", **environ}, said or Said())

    def ask(self, query: str, method: str = "GET", body: bytes = b"", **environ: Any) -> Answer:
        parts = self.begun(query, said := Said(), method, body, **environ)
        try:
            return Answer(said.status, said.headers, b"".join(parts))
        finally:
            if hasattr(parts, "close"):
                parts.close()

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
        """Open a polling session; return the query of its requests."""
        answer = self.ask(HANDSHAKE)
        assert answer.status == "200 OK"
        return f"{HANDSHAKE}&sid={json.loads(answer.body[1:])['sid']}"

    @property
    def sid(self) -> str:
        (sid,) = self.server.sockets
        return sid


@pytest.fixture
def make() -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(*limits: TransportLimits, **options: Any) -> Engine:
        made.append(Engine(*limits, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def engine(make: Callable[..., Engine]) -> Engine:
    """A server with default options."""
    return make()


@pytest.fixture
def polling(engine: Engine) -> str:
    """The query of a polling session's requests."""
    return engine.open()


@pytest.mark.parametrize(("interval_s", "timeout_s"), [(3600, 20), (1.5, 0.75), (0.3, 0.2)])
def test_a_session_opens_with_the_limits_of_the_server(make: Callable[..., Engine], interval_s: float, timeout_s: float) -> None:
    """In milliseconds (the reference server announces 0 for 0.3 s) and bytes; it may move to WebSocket."""
    engine = make(TransportLimits(ping_interval_s=interval_s, ping_timeout_s=timeout_s, max_message_bytes=100))
    opening = json.loads(engine.ask(HANDSHAKE).body.removeprefix(b"0"))

    assert opening == {
        "sid": engine.sid,
        "upgrades": ["websocket"],
        "pingInterval": interval_s * 1000,
        "pingTimeout": timeout_s * 1000,
        "maxPayload": 100,
    }


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (False, "401 Unauthorized", FORBIDDEN[0]),
        (OneTooMany(LimitReached("clients", 7, 9)), "429 Too Many Requests", BAD_REQUEST[0]),
        (OneTooMany(LimitReached("clients", 7, 9), "503 Service Unavailable"), "503 Service Unavailable", BAD_REQUEST[0]),
    ],
)
def test_a_session_that_the_application_refuses_does_not_exist(engine: Engine, refusal: object, status: str, code: int) -> None:
    """No handler is notified of its end, because it never was. A passing refusal says when to come again, in body and header."""
    engine.connect = lambda sid: refusal
    answer = engine.ask(HANDSHAKE)
    turn()

    assert (answer.status, answer.code) == (status, code)
    assert (engine.server.sockets, engine.ends) == ({}, [])
    if refusal:
        error = answer.error
        assert (error["code"], error["name"], error["retry"], error["retry_after_s"]) == ("limit_reached", "clients", True, 9)
        body = json.loads(answer.body)
        assert (body["message"], body["retry_after_s"]) == (f"Bad request: {error['message']}", 9)
        assert answer.headers["Retry-After"] == "9"


def test_a_session_that_its_own_connect_handler_ends_is_refused(engine: Engine) -> None:
    """It was let in and is over. The application hears of the end, the browser that it may not stay."""
    engine.connect = engine.server.disconnect
    answer = engine.ask(HANDSHAKE)
    turn()

    assert (answer.status, answer.code) == ("401 Unauthorized", FORBIDDEN[0])
    assert (engine.server.sockets, engine.ends) == ({}, ["server disconnect"])


def test_under_uwsgi_a_client_is_refused_with_words(engine: Engine) -> None:
    """Over polling, too, where its polls would hang."""
    under_uwsgi: dict[str, Any] = {"uwsgi.version": "2.0"}
    answer = engine.ask(HANDSHAKE, **under_uwsgi)

    assert (answer.status, answer.error["code"]) == ("501 Not Implemented", "not_implemented")
    assert engine.server.sockets == {}


def test_a_request_for_a_session_that_the_application_has_not_let_in_finds_none(engine: Engine) -> None:
    """Its id may leak out of a connect handler that waits."""
    answers: list[Answer] = []
    engine.connect = lambda sid: answers.append(engine.ask(f"{HANDSHAKE}&sid={sid}"))
    engine.open()

    assert answers[0].code == UNKNOWN_SESSION[0]
    assert engine.server.sockets[engine.sid].state is SessionState.POLLING


@pytest.mark.parametrize("size", [101, 10**9])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(engine: Engine, polling: str, size: int) -> None:
    """With both numbers; the session is over. (A missing input would fail when it is read.)"""
    absent: dict[str, Any] = {"CONTENT_LENGTH": str(size), "wsgi.input": None}
    answer = engine.ask(polling, "POST", **absent)

    assert answer.status == "413 Content Too Large"
    error = answer.error
    assert (error["code"], error["size"], error["limit"]) == ("payload_too_large", size, 100)
    turn()
    assert engine.ends == ["payload too large"]


def test_final_frames_are_given_to_the_next_poll_once(engine: Engine, polling: str) -> None:
    """After it the session is unknown."""
    engine.server.send(engine.sid, "final")
    engine.server.disconnect(engine.sid)
    turn()

    assert engine.ask(polling).body == b"4final\x1e1"
    assert engine.ask(polling).code == UNKNOWN_SESSION[0]


def test_an_answer_of_a_poll_that_was_not_written_ends_the_session(engine: Engine, polling: str) -> None:
    """Its frames are lost, and silence would hide it."""
    engine.server.send(engine.sid, "lost")
    parts: Any = engine.begun(polling)
    next(iter(parts))
    parts.close()
    turn()

    assert engine.ends == ["transport error"]


def test_an_application_without_clients_of_ours_loses_a_session_whose_queue_is_full(engine: Engine, polling: str) -> None:
    """There is no client to notify of a gap."""
    sid = engine.sid
    for number in range(LIMITS.queue_frames + 1):
        engine.server.send(sid, str(number))
    turn()

    assert engine.ends == ["slow consumer"]


PAGE = "https://app.example.com"


@pytest.fixture
def listing(make: Callable[..., Engine]) -> Engine:
    """A server that lists two origins, one in capitals and with its port."""
    return make(cors_allowed_origins=["HTTPS://App.example.com:443", "https://here.example"])


@pytest.mark.parametrize(
    ("method", "query", "code"),
    [
        *(("GET", query, 0) for query in ("", "EIO=4", "EIO=4&transport=", "EIO=4&transport=carrier-pigeon")),
        *(("GET", query, 5) for query in ("transport=polling", "EIO=3&transport=polling", "EIO=abc&transport=polling")),
        *((method, HANDSHAKE, 2) for method in ("POST", "PUT", "DELETE")),
        *((method, f"{HANDSHAKE}&sid=nobody", 1) for method in ("GET", "POST")),
        *(("GET", query, 3) for query in ("EIO=4&transport=websocket&sid=nobody", "EIO=4&transport=websocket")),
        ("GET", HANDSHAKE + "&x=1" * 40, 3),
    ],
)
def test_a_wrong_request_is_answered_400_with_its_code(listing: Engine, method: str, query: str, code: int) -> None:
    """The codes are the reference server's; beside them is the shape of the product, which a listed page may read. A
    WebSocket's refusal is hidden from pages, so the client asks once more over HTTP, and shows this."""
    answer = listing.ask(query, method, HTTP_ORIGIN=PAGE)

    assert (answer.status, answer.code) == ("400 Bad Request", code)
    assert answer.error["code"] == ("unknown_session" if code == 1 else "bad_request")
    assert (bool(answer.error["message"]), answer.error["retry"]) == (True, False)
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert answer.headers["Access-Control-Expose-Headers"] == "Retry-After"
    assert listing.server.sockets == {}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"HTTP_SEC_WEBSOCKET_VERSION": "8"}, "426 Upgrade Required"),
        *(({"HTTP_UPGRADE": other}, "400 Bad Request") for other in ("", "xwebsocket", "websockets", "h2c")),
        *(({"HTTP_UPGRADE": one}, "501 Not Implemented") for one in ("websocket", "WebSocket", "h2c, websocket")),
        ({"HTTP_CONNECTION": "keep-alive, UPGRADE"}, "501 Not Implemented"),
    ],
)
def test_a_wrong_websocket_handshake_leaves_no_session(engine: Engine, change: dict[str, str], status: str) -> None:
    """RFC 6455 section 4.2.1. Nor does one without a socket that can be detached, as under another server: 501, and its end is
    reported. The fields are lists (RFC 9110 section 7.8)."""
    answer = engine.ask("EIO=4&transport=websocket", **(UPGRADE | change))
    turn()

    assert answer.status == status

    assert engine.server.sockets == {}
    assert [reason.partition(":")[0] for reason in engine.ends] == (["handshake failed"] if status[:3] == "501" else [])


def test_a_handshake_of_another_version_gets_the_version_to_speak(engine: Engine) -> None:
    """RFC 9110 section 15.5.22 and RFC 6455 section 4.4: a client may then try again."""
    headers = engine.ask("EIO=4&transport=websocket", **(UPGRADE | {"HTTP_SEC_WEBSOCKET_VERSION": "8"})).headers
    assert (headers["Connection"], headers["Upgrade"], headers["Sec-WebSocket-Version"]) == ("Upgrade", "websocket", "13")


class TestBodies:
    """Packets in the bodies of POST requests."""

    def test_every_kind_of_message_keeps_its_place(self, engine: Engine, polling: str) -> None:
        """Several in one body, several in one answer; bytes in base64."""
        packets = ["4one", "4zwei", "4", "4drei ü €", "bAQIDBA=="]
        assert engine.ask(polling, "POST", "\x1e".join(packets).encode()).body == b"ok"
        turn()
        assert engine.messages == ["one", "zwei", "", "drei ü €", b"\x01\x02\x03\x04"]
        for message in engine.messages:
            engine.server.send(engine.sid, message)

        assert engine.ask(polling).body.decode().split("\x1e") == packets

    @pytest.mark.parametrize("count", [16, 17, 40, 100, 101])
    def test_many_packets_in_one_body_are_all_delivered_or_refused(self, make: Callable[..., Engine], count: int) -> None:
        """The reference server answers 200 to 17 and drops them all. One more than a session may send ends it."""
        engine = make(TransportLimits(inbound_burst=100))
        posting = engine.begin(engine.open(), "POST", "\x1e".join(f"4{number}" for number in range(count)).encode())
        until(lambda: len(engine.messages) == count or engine.ends)
        posting.join()

        taken = count <= 100
        assert posting.value.status == ("200 OK" if taken else "400 Bad Request")
        assert engine.messages == [str(number) for number in range(count if taken else 0)]
        assert engine.ends == ([] if taken else ["transport error"])

    def test_a_body_that_runs_into_the_rate_limit_is_not_answered_ok(self, make: Callable[..., Engine], clock: Clock) -> None:
        """The second body exceeds the bucket. A partly taken body must not be answered 200."""
        engine = make(TransportLimits(inbound_per_s=10, inbound_burst=100))
        polling, statuses = engine.open(), []
        for _ in range(2):
            posting = engine.begin(polling, "POST", b"\x1e".join([b"4x"] * 90))
            posting.join()
            statuses.append(posting.value.status)
        turn()

        assert statuses == ["200 OK", "400 Bad Request"]
        assert engine.ends == ["inbound flood"]

    @pytest.mark.parametrize("body", [b"abc", b"4ok\x1e", b"b!!!", b"4\xff\xfe", b"7", b""])
    def test_an_invalid_body_is_refused_and_ends_the_session(self, engine: Engine, polling: str, body: bytes) -> None:
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

    @pytest.mark.parametrize("half", [b"4half", b"4whole\x1ebAAEC", b""])
    def test_a_body_that_breaks_off_without_an_error_ends_the_session(self, engine: Engine, polling: str, half: bytes) -> None:
        """gunicorn's reader returns the bytes that came. They may look like whole packets."""
        assert engine.ask(polling, "POST", half, CONTENT_LENGTH="100").status == "400 Bad Request"
        turn()
        assert (engine.messages, engine.ends) == ([], ["transport error"])


class TestEnds:
    """The end of a session, reported by HTTP."""

    @pytest.mark.parametrize("poll_first", [True, False])
    def test_a_closing_post_ends_the_poll_with_a_noop(self, engine: Engine, polling: str, poll_first: bool) -> None:
        """The official suite's `6`, whichever of the two requests comes first."""
        requests: list[Any] = [(polling,), (polling, "POST", b"1")]
        begun = [engine.begin(*request) for request in (requests if poll_first else reversed(requests))]
        poll, close = begun if poll_first else reversed(begun)
        poll.join()

        assert (close.value.body, poll.value.body) == (b"ok", b"6")
        assert engine.ask(polling).code == UNKNOWN_SESSION[0]
        assert engine.ends == ["client disconnect"]

    def test_a_second_poll_ends_both(self, engine: Engine, polling: str) -> None:
        """The first gets CLOSE, the second is refused, the session is gone."""
        first = engine.begin(polling)
        second = engine.ask(polling)
        first.join()
        turn()

        assert (first.value.body, second.status) == (b"1", "400 Bad Request")
        assert engine.server.sockets == {}

    def test_requests_behind_an_upgrade_are_refused(self, engine: Engine, polling: str) -> None:
        """And do the session no harm."""
        session = engine.server.sockets[engine.sid]
        ours, theirs = native_pair()
        with theirs:
            begin_upgrade(session, ours)
            theirs.sendall(masked(TEXT, "2probe") + masked(TEXT, "5"))
            turn()

            assert [engine.ask(polling, *request).status for request in (("GET",), ("POST", b"4abc"))] == ["400 Bad Request"] * 2
            assert session.state is SessionState.OPEN
            engine.close()


class TestWebSocket:
    """WebSockets over the real HTTP handler, on a socket pair."""

    def dial(self, engine: Engine, query: str, behind: bytes = b"") -> socket.socket:
        """Send a handshake, with more bytes right after it; return the browser's end."""
        server = HTTPServer(("127.0.0.1", 0), engine.server.handle_request)
        ours, theirs = gevent.socket.socketpair()
        theirs.sendall(handshake("here", f"/engine.io/?{query}") + behind)
        serve_on(server, ours)
        turn()
        browser = socket.socket(fileno=theirs.detach())
        browser.setblocking(False)
        return browser

    def received(self, browser: socket.socket) -> tuple[bytes, list[bytes]]:
        """Return the head of the answer, and the payloads of the frames after it."""
        head, _, stream = read_all(browser).partition(b"\r\n\r\n")
        return head, [payload for _, payload in frames_in(stream)[0]]

    def test_a_session_opens_with_frames_that_came_right_behind_the_handshake(self, engine: Engine) -> None:
        """It has nowhere to move to, and its first frame goes out with the answer."""
        engine.server.on("message", lambda sid, message: engine.server.send(sid, f"back {message}"))
        with self.dial(engine, "EIO=4&transport=websocket", masked(TEXT, "4early") + masked(TEXT, "4bird")) as browser:
            head, (opening, *answers) = self.received(browser)

            assert head.startswith(b"HTTP/1.1 101 ")
            assert json.loads(opening.removeprefix(b"0"))["upgrades"] == []
            assert answers == [b"4back early", b"4back bird"]
            assert engine.server.sockets[engine.sid].state is SessionState.OPEN
            engine.close()

    def test_a_session_moves_from_polling(self, engine: Engine, polling: str) -> None:
        """The probe is answered, and later packets go over the WebSocket."""
        query = polling.replace("polling", "websocket")
        with self.dial(engine, query, masked(TEXT, "2probe") + masked(TEXT, "5")) as browser:
            engine.server.send(engine.sid, "moved")
            head, payloads = self.received(browser)

            assert head.startswith(b"HTTP/1.1 101 ")
            assert payloads == [b"3probe", b"4moved"]
            engine.close()

    def test_a_server_that_does_not_upgrade_says_so(self, make: Callable[..., Engine]) -> None:
        """In its opening, and to a browser that tries nevertheless."""
        engine = make(allow_upgrades=False)
        opening = json.loads(engine.ask(HANDSHAKE).body[1:])
        answer = engine.ask(f"EIO=4&transport=websocket&sid={opening['sid']}", **UPGRADE)

        assert opening["upgrades"] == []
        assert (answer.status, answer.code) == ("400 Bad Request", BAD_REQUEST[0])


class TestHeaders:
    """Headers of requests and answers."""

    @pytest.mark.parametrize(
        "origin",
        [PAGE, "https://app.example.com:443", "https://APP.example.com.", "https://here.example", "http://localhost:5173"],
    )
    def test_an_origin_that_is_not_allowed_is_refused(self, listing: Engine, origin: str) -> None:
        """With the setting, for its developer; a listed one may connect in every spelling, and finds its own."""
        answers = [listing.ask(HANDSHAKE, HTTP_ORIGIN=origin), listing.ask("", "OPTIONS", HTTP_ORIGIN=origin)]
        allowed = origin != "http://localhost:5173"

        statuses = ["200 OK", "204 No Content"] if allowed else ["403 Forbidden"] * 2
        assert [answer.status for answer in answers] == statuses
        assert [answer.headers.get("Access-Control-Allow-Origin") for answer in answers] == [origin if allowed else None] * 2
        if not allowed:
            assert (answers[0].code, answers[0].error["code"]) == (FORBIDDEN[0], "origin_not_allowed")
            assert answers[0].error["origin"] == origin
            assert "cors_allowed_origins" in answers[0].error["message"]

    def test_a_large_answer_is_compressed_for_a_browser_that_takes_it(self, engine: Engine, polling: str) -> None:
        """A small one costs less as it is."""
        answers = []
        asked = ("gzip, br", "br", "br, GZIP;q=0.5", "gzip;q=0", "*", "gzip; q=0.000, *", "not-gzip", "")
        for size, accepted in (*((2000, each) for each in asked), (10, "gzip")):
            engine.server.send(engine.sid, "x" * size)
            answers.append(engine.ask(polling, HTTP_ACCEPT_ENCODING=accepted))

        gzipped = [answer.headers.get("Content-Encoding") == "gzip" for answer in answers]
        assert gzipped == [True, False, True, False, True, False, False, False, False]
        assert gzip.decompress(answers[0].body) == b"4" + b"x" * 2000

    def test_a_cookie_carries_the_id_of_the_session(self, make: Callable[..., Engine]) -> None:
        """For a proxy in front that keeps a session to one server by it."""
        engine = make(cookie="io")
        assert engine.ask(HANDSHAKE).headers["Set-Cookie"].startswith(f"io={engine.sid}")


def test_packets_for_a_session_that_is_over_are_dropped(engine: Engine) -> None:
    """No caller waits for them; python-socketio looks the session up by a separate method."""
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


def test_without_a_list_the_forwarded_scheme_of_a_websocket_is_that_of_its_page(engine: Engine) -> None:
    """Traefik forwards wss where the page's origin has https."""
    forwarded: dict[str, Any] = {"HTTP_X_FORWARDED_PROTO": "wss", "HTTP_X_FORWARDED_HOST": "App.example.com:443"}
    assert engine.ask(HANDSHAKE, HTTP_ORIGIN=PAGE, **forwarded).status == "200 OK"
    assert engine.ask(HANDSHAKE, HTTP_ORIGIN="http://app.example.com", **forwarded).status == "403 Forbidden"


def test_a_refused_origin_is_in_the_log_once_a_minute_with_the_line_that_allows_it(listing: Engine) -> None:
    """For each origin; however many a client makes up, the table is bounded."""
    now_s = [0.0]
    listing.server.cors.refused = LogThrottle(lambda: now_s[0], every_s=60, max_names=2)
    with capture_logs() as lines:
        for name in ("a", "a", "b", *range(99)):
            listing.ask(HANDSHAKE, HTTP_ORIGIN=f"https://{name}.example")
        now_s[0] = 60.0
        listing.ask(HANDSHAKE, HTTP_ORIGIN="https://a.example")

    told = [(line["origin"], line["set"], line["left_out"]) for line in lines if line["event"] == "origin refused"]
    assert [origin for origin, *_ in told] == [f"https://{name}.example" for name in ("a", "b", "0", "a")]
    assert told[0][1:] == ("cors_allowed_origins='https://a.example'", 0)


def test_no_cache_may_keep_an_answer(engine: Engine, polling: str) -> None:
    """A cache knows answers by their URL, and would serve one client's session to another."""
    engine.server.send(engine.sid, "x")
    other = engine.open()
    engine.server.disconnect(other.rpartition("=")[2])
    turn()
    answers = [
        engine.ask(HANDSHAKE),
        engine.ask(polling),
        engine.ask(polling, "POST", b"4x"),
        engine.ask(polling, "OPTIONS"),
        engine.ask(f"{HANDSHAKE}&sid=nobody"),
        engine.ask(HANDSHAKE, HTTP_ORIGIN="https://evil.example"),
        engine.ask(polling, "POST", b"4" * 1000),
        engine.ask(other),  # its final frames
    ]

    assert [answer.status[:3] for answer in answers] == ["200", "200", "200", "204", "400", "403", "413", "200"]
    assert {answer.headers.get("Cache-Control") for answer in answers} == {"no-store"}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "BREW"])
def test_a_session_has_two_methods(engine: Engine, polling: str, method: str) -> None:
    """The answer names them (RFC 9110 section 15.5.6); the session stays."""
    answer = engine.ask(polling, method)
    assert (answer.status, answer.headers["Allow"]) == ("405 Method Not Allowed", "OPTIONS, GET, POST")
    assert (answer.code, answer.error["code"]) == (BAD_REQUEST[0], "method_not_allowed")
    assert engine.ask(polling, "POST", b"4still here").body == b"ok"


@pytest.mark.parametrize("query", [HANDSHAKE, f"{HANDSHAKE}&sid=nobody"])
def test_an_answer_to_head_has_no_body(engine: Engine, query: str) -> None:
    """gevent's pywsgi does not drop it, and its client would read it as the next answer."""
    answer = engine.ask(query, "HEAD")
    assert (answer.status, answer.body) == ("400 Bad Request", b"")
