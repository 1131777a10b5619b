"""The Engine.IO server's answers over HTTP, called as a WSGI application: no socket, no process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pytest

from headgate.transport.engine import EngineServer, OneTooMany
from headgate.transport.engineio_http import BAD_REQUEST, FORBIDDEN, UNKNOWN_SESSION
from headgate.transport.limits import TransportLimits
from headgate.transport.session_state import SessionState
from tests.support.session_clock import turn

HANDSHAKE = "EIO=4&transport=polling"
LIMITS = TransportLimits(ping_interval_s=3600, handshake_deadline_s=3600, max_message_bytes=100)


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

    def __init__(self, **options: Any) -> None:
        self.server = EngineServer(transport_limits=LIMITS, **options)
        self.ends: list[str] = []
        self.messages: list[str | bytes] = []
        self.connect: Callable[[str], Any] = lambda sid: None
        self.server.on("connect", lambda sid, environ: self.connect(sid))
        self.server.on("message", lambda sid, message: self.messages.append(message))
        self.server.on("disconnect", lambda sid, reason: self.ends.append(reason))

    def ask(self, query: str, method: str = "GET", body: bytes = b"", **environ: str) -> Answer:
        """Send a request."""
        said: list[Any] = []
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
            lambda status, headers: said.append((status, dict(headers))),
        )
        try:
            body = b"".join(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        ((status, headers),) = said
        return Answer(status, headers, body)

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
    made.server.disconnect()
    turn()
    made.server.deadlines.close()


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
    [(False, "401 Unauthorized", FORBIDDEN[0]), (OneTooMany("full", 3), "429 Too Many Requests", BAD_REQUEST[0])],
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
    answer = engine.ask(
        "EIO=4&transport=websocket",
        HTTP_UPGRADE="websocket",
        HTTP_CONNECTION="Upgrade",
        HTTP_SEC_WEBSOCKET_VERSION="13",
        HTTP_SEC_WEBSOCKET_KEY="dGhlIHNhbXBsZSBub25jZQ==",
    )
    turn()

    assert answer.status == "501 Not Implemented"
    assert engine.server.sockets == {}
    assert [reason.partition(":")[0] for reason in engine.ends] == ["handshake failed"]


def test_a_request_for_a_session_that_the_application_has_not_let_in_finds_none(engine: Engine) -> None:
    """Its id may leak out of a connect handler that waits."""
    answers: list[Answer] = []
    engine.connect = lambda sid: answers.append(engine.ask(f"{HANDSHAKE}&sid={sid}"))
    sid = engine.open()

    assert answers[0].code == UNKNOWN_SESSION[0]
    assert engine.server.sockets[sid].state is SessionState.POLLING


def test_a_body_that_is_too_large_is_refused_before_it_is_read(engine: Engine) -> None:
    """With both numbers; the session is over."""
    sid = engine.open()
    answer = engine.ask(f"{HANDSHAKE}&sid={sid}", "POST", b"4" * 101)

    assert answer.status == "413 Content Too Large"
    assert b"payload_too_large: 101 bytes, at most 100" in answer.body
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
    parts = engine.server.handle_request(
        {"REQUEST_METHOD": "GET", "QUERY_STRING": f"{HANDSHAKE}&sid={sid}", "HTTP_HOST": "here", "wsgi.url_scheme": "http"},
        lambda status, headers: None,
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
