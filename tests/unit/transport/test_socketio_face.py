"""The gateway's face of python-socketio, over polling sessions of the test: no socket, no process."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gevent
import pytest
from gevent.event import Event
from structlog.testing import capture_logs

from headgate.errors import LimitReached
from headgate.events.wire.frames import message_frame
from headgate.transport import socketio_face as face_module
from headgate.transport.engine import Engine
from headgate.transport.limits import TransportLimits
from headgate.transport.outbox import CONNECT_HEAD_START_S
from headgate.transport.session import Session
from headgate.transport.socketio_face import Acknowledge, ConnectRefused, OneTooMany, ServedNamespace, SocketIOFace
from tests.support.session_clock import turn

NAMESPACE = "notifications"
FULL = OneTooMany(LimitReached("clients", 7, 3))


class Gateway:
    """Hooks and handlers that record, in order, their calls."""

    def __init__(self, *, names_namespaces: bool = False) -> None:
        self.calls: list[Any] = []
        self.later: list[Acknowledge] = []
        self.full, self.names = False, names_namespaces
        self.face = SocketIOFace(
            namespaces=[NAMESPACE],
            limits=TransportLimits(handshake_deadline_s=3600),
            is_allowed=lambda *_: True,
            names_namespaces=names_namespaces,
        )
        self.face.hooks = self
        served = ServedNamespace(
            f"/{NAMESPACE}".encode(),
            connect=self.connect,
            disconnect=lambda client, reason: self.calls.append(("disconnect", client, reason)),
            requests={"subscribe": self.subscribe, "ask": lambda *_: self.begin},
            unknown=lambda name, client: {"unknown": name},
        )
        self.face.serve(served)
        self.engine: Engine = self.face.engine

    def opening(self, session_id: str, environ: Mapping[str, Any]) -> OneTooMany | None:
        self.calls.append(("opening", session_id))
        return FULL if self.full else None

    def connect(self, session: Session, client: str, environ: dict[str, Any], auth: Any) -> Callable[[], None]:
        """Refuse a client on request, and welcome the others."""
        self.calls.append(("connect", client, auth))
        if auth == {"refuse": True}:
            raise ConnectRefused("no", {"code": "unauthorized"})

        def joined() -> None:
            self.calls.append(("joined", session.sid, client))
            session.offer_control(message_frame(b'2/notifications,["welcome"]'))

        return joined

    def over(self, session_id: str) -> None:
        self.calls.append(("over", session_id))

    def subscribe(self, client: str, *arguments: Any) -> dict[str, Any]:
        return {"ok": True, "arguments": list(arguments)}

    def begin(self, acknowledge: Acknowledge) -> Callable[[], None]:
        """Keep a function that acknowledges a request later."""
        self.later.append(acknowledge)
        return lambda: None

    def open(self, sid: str = "session", environ: dict[str, Any] | None = None) -> Session:
        session = self.engine.sessions[sid] = Session(self.engine, sid)
        assert self.face.opening(sid, environ or {"REMOTE_ADDR": "::1"}) is None
        session.start_polling()
        return session

    def say(self, session: Session, packet: str) -> list[bytes]:
        """Let the browser send a packet; return the packets that the next poll would get."""
        session.received(packet)
        turn()
        return [frame.packet for frame in session.take_frames()]

    def join(self) -> tuple[Session, str]:
        """Open a session that joins the namespace; return it, and the id of its client."""
        session = self.open()
        self.say(session, "40/notifications,")
        return session, self.client

    @property
    def client(self) -> str:
        """The id of the client that connected last."""
        client: str = self.named("connect")[-1][1]
        return client

    def named(self, name: str) -> list[Any]:
        return [call for call in self.calls if call[0] == name]


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """A gateway with one namespace. Nothing here blocks, so nothing need be cooperative."""
    monkeypatch.setattr(face_module, "is_patched", lambda: True)
    made = Gateway(names_namespaces=getattr(request, "param", False))
    yield made
    made.face.engine.end_all()
    turn()


def test_a_client_connects_and_is_welcomed_behind_its_connect_packet(gateway: Gateway) -> None:
    """The hooks come in the order of a session's life, with names that have no slash."""
    session = gateway.open()
    packets = gateway.say(session, '40/notifications,{"token":1}')
    client = gateway.client

    assert packets == [f'40/notifications,{{"sid":"{client}"}}'.encode(), b'42/notifications,["welcome"]']
    assert gateway.calls == [("opening", "session"), ("connect", client, {"token": 1}), ("joined", "session", client)]
    assert gateway.face.session_of(NAMESPACE, client) is session


def test_answers_of_joins_are_written_together_and_data_waits_for_them(gateway: Gateway) -> None:
    """In the turn in which the joins end nothing is written. Each write would wake a peer that sleeps again at the next."""
    sessions = [Session(gateway.engine, name) for name in ("one", "two")]
    for session in sessions:
        gateway.engine.sessions[session.sid] = session
        session.start_polling()
        gateway.face.opening(session.sid, {})
        gateway.engine.deliver(session, "0/notifications,")
        session.offer(message_frame(b'2/notifications,["event"]'))
    assert [session.corks for session in sessions] == [1, 1]
    assert [[b'"welcome"' in frame.packet for frame in session.take_frames()] for session in sessions] == [[False, True]] * 2

    turn()
    gevent.sleep(2 * CONNECT_HEAD_START_S)

    assert [session.corks for session in sessions] == [0, 0]
    assert [[frame.packet for frame in session.take_frames()] for session in sessions] == [[b'42/notifications,["event"]']] * 2


def test_a_refused_client_is_told_message_and_data(gateway: Gateway) -> None:
    """It has not joined, and is in no namespace; its session may try again."""
    session = gateway.open()
    packets = gateway.say(session, '40/notifications,{"refuse":true}')

    assert packets == [b'44/notifications,{"message":"no","data":{"code":"unauthorized"}}']
    assert gateway.named("joined") == []
    with pytest.raises(KeyError):
        gateway.face.session_of(NAMESPACE, gateway.client)
    assert gateway.say(session, "40/notifications,")[0].startswith(b'40/notifications,{"sid"')


@pytest.mark.parametrize("gateway", [False, True], indirect=True, ids=["elsewhere", "in development"])
def test_a_namespace_that_is_not_served_is_refused_as_the_protocol_has_it(gateway: Gateway) -> None:
    """Without a call to any handler. In development the page shows the served names; a stranger learns none."""
    (answer,) = gateway.say(gateway.open(), "40/elsewhere,")
    refusal = json.loads(answer.removeprefix(b"44/elsewhere,"))
    data = refusal.pop("data", None)

    assert (refusal, gateway.named("connect")) == ({"message": "Invalid namespace"}, [])
    assert (data and (data["code"], data["known"])) == (("unknown_namespace", ["notifications"]) if gateway.names else None)


def test_requests_are_dispatched_by_name_and_acknowledged(gateway: Gateway) -> None:
    """Ahead of waiting events, because a client that lags must hear that it has subscribed."""
    session, _ = gateway.join()
    session.offer(message_frame(b'2/notifications,["event"]'))

    assert gateway.say(session, '42/notifications,7["subscribe",{"pattern":"a.#"}]') == [
        b'43/notifications,7[{"ok":true,"arguments":[{"pattern":"a.#"}]}]',
        b'42/notifications,["event"]',
    ]


def test_a_request_that_is_acknowledged_later_holds_up_nothing(gateway: Gateway) -> None:
    """The client's next requests are answered in the meantime; a departed client gets no answer, and that is no fault."""
    session, _ = gateway.join()
    assert gateway.say(session, '42/notifications,7["ask",{}]') == []
    assert gateway.say(session, '42/notifications,8["subscribe",{}]') == [b'43/notifications,8[{"ok":true,"arguments":[{}]}]']
    gateway.later.pop()({"ok": True})
    assert [frame.packet for frame in session.take_frames()] == [b'43/notifications,7[{"ok":true}]']
    gateway.say(session, '42/notifications,9["ask",{}]')
    gateway.face.engine.end_all()
    turn()
    gateway.later.pop()({"ok": True})
    assert session.take_frames() == []


def test_binary_packets_are_not_accepted(gateway: Gateway) -> None:
    """The gateway has no use for them."""
    session, _ = gateway.join()
    gateway.say(session, '451-/notifications,["subscribe",{"_placeholder":true,"num":0}]')

    assert session.reason == "parse error"


def test_a_disconnected_client_leaves_its_session_open(gateway: Gateway) -> None:
    """Its handler runs before `disconnect` returns; the session may join again."""
    session, client = gateway.join()
    gateway.face.disconnect(NAMESPACE, client)

    assert gateway.named("disconnect") == [("disconnect", client, "server disconnect")]
    assert [frame.packet for frame in session.take_frames()] == [b"41/notifications,"]
    assert not session.closed


def test_an_ended_session_leaves_its_namespaces_and_is_over_last(gateway: Gateway) -> None:
    session, client = gateway.join()
    session.end("transport close", abort=True)
    turn()

    assert gateway.calls[-2:] == [("disconnect", client, "transport close"), ("over", "session")]
    assert gateway.face.environ_of("session") == {}
    with pytest.raises(KeyError):
        gateway.face.session_of(NAMESPACE, client)
    assert gateway.engine.sessions == {}


def test_a_session_joins_a_namespace_once(gateway: Gateway) -> None:
    """A second CONNECT is refused, and the first client stays; after a goodbye it may come again."""
    session, client = gateway.join()

    assert gateway.say(session, "40/notifications,") == [b'44/notifications,"Unable to connect"']
    assert gateway.face.session_of(NAMESPACE, client) is session
    gateway.say(session, "41/notifications,")
    gateway.say(session, "41/notifications,")
    assert gateway.named("disconnect") == [("disconnect", client, "client disconnect")]
    gateway.say(session, "40/notifications,")
    assert gateway.client != client


def test_a_connect_handler_that_fails_leaves_no_client(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged, and the session goes on."""
    session = gateway.open()
    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(gateway, "calls", None)
        assert gateway.say(session, "40/notifications,") == []

    assert [line["event"] for line in logs] == ["event handler failed"]
    assert len(gateway.say(session, "40/notifications,")) == 2


def test_a_handler_that_waits_holds_the_session_until_it_is_done(monkeypatch: pytest.MonkeyPatch, gateway: Gateway) -> None:
    """The gateway disconnects a client, and its session ends while the disconnect handler still runs."""
    session, gate = gateway.open(), Event()
    gateway.say(session, "40/notifications,")
    client = gateway.client
    monkeypatch.setattr(gateway.face._namespaces["/notifications"], "disconnect", lambda *_: gate.wait())
    leaving = gevent.spawn(gateway.face.disconnect, NAMESPACE, client)
    turn()
    gateway.face.disconnect(NAMESPACE, client)  # once is enough
    assert gateway.say(session, '42/notifications,1["subscribe"]')[1:] == []
    session.end("transport close", abort=True)
    turn()
    assert gateway.named("over") == []
    assert gateway.face.session_of(NAMESPACE, client) is session
    gate.set()
    turn()
    assert gateway.named("over") == [("over", "session")]
    leaving.get()


def test_a_session_that_is_one_too_many_is_refused_before_it_opens(gateway: Gateway) -> None:
    """The engine gets the answer of `opening`, and answers 429."""
    gateway.full = True

    assert gateway.face.opening("s", {}) == FULL
    assert gateway.face.environ_of("s") == {}


@pytest.mark.parametrize("name", ["connect", "disconnect", "*", "strange"])
def test_an_event_of_a_reserved_name_is_answered_like_any_other_that_is_no_request(gateway: Gateway, name: str) -> None:
    """It runs no handler of something else, and the client stays."""
    session, _ = gateway.join()
    gateway.calls.clear()

    assert gateway.say(session, f'42/{NAMESPACE},7["{name}",1]') == [f'43/{NAMESPACE},7[{{"unknown":"{name}"}}]'.encode()]
    assert gateway.calls == []


def test_an_environ_is_trimmed_to_the_names_that_are_wanted(gateway: Gateway) -> None:
    """And not made for a session without one."""
    gateway.open("a", {"REMOTE_ADDR": "::1", "PATH_INFO": "/socket.io/"})
    gateway.face.trim_environ("a", ["REMOTE_ADDR", "HTTP_ORIGIN"])
    gateway.face.trim_environ("nobody", ["REMOTE_ADDR"])

    assert gateway.face.environ_of("a") == {"REMOTE_ADDR": "::1"}
    assert gateway.face.environ_of("nobody") == {}


def test_closing_ends_every_session(gateway: Gateway) -> None:
    sessions = [gateway.open(sid) for sid in ("a", "b")]
    gateway.face.engine.end_all()
    gateway.face.engine.end_all()
    turn()

    assert [session.reason for session in sessions] == ["server disconnect"] * 2
    assert gateway.named("over") == [("over", "a"), ("over", "b")]


def test_a_server_in_a_process_without_cooperative_sockets_is_refused() -> None:
    """It would block on the first request."""
    face = "SocketIOFace(namespaces=[], limits=TransportLimits(), is_allowed=bool)"
    imports = "from headgate.transport.socketio_face import SocketIOFace, TransportLimits; "
    for program in ("from headgate.socketio import Server; Server()", imports + face):
        outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

        assert "monkey.patch_all()" in outcome.stderr
