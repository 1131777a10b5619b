"""A client of the doctor's: packets in, the welcome and arrivals out; why it is not connected."""

import json
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest
from websockets.sync.server import ServerConnection, serve

from headgate.diagnosis.browser import Browser, NotConnected, PollingBrowser, WebSocketBrowser, reason_of, refusal_of
from headgate.diagnosis.public_url import PublicUrl
from headgate.runtime.check_result import Verdict
from tests.support.http_receiver import Receiver, say

# Longer than a test may take, so a wait without an answer hangs, and is reported.
PATIENT_S = 600.0


class Scripted(Browser):
    """A client with packets that a test writes: `answers` are the replies to its packets, by the beginning of those."""

    def __init__(self, answers: dict[str, list[str]], timeout_s: float = PATIENT_S) -> None:
        super().__init__("http://h", "n", "http://h", timeout_s)
        self.sent: list[str] = []
        self.arriving: queue.Queue[str | None] = queue.Queue()
        self._answers_of = answers

    def _open(self) -> None:
        """There is nothing to open."""

    def _send(self, packet: str) -> None:
        self.sent.append(packet)
        for beginning, answers in self._answers_of.items():
            if packet.startswith(beginning):
                for answer in answers:
                    self.arriving.put(answer)

    def _collect(self) -> None:
        while (packet := self.arriving.get()) is not None:
            self._receive(packet)
        raise ConnectionResetError(104, "Connection reset by peer")

    def _hang_up(self) -> None:
        self.arriving.put(None)


def test_a_proxy_may_send_early_hints_before_its_answer() -> None:
    """They are no answer; the path of the URL stays, and its host has one spelling."""
    with Receiver() as receiver:
        body = b'0{"sid":"s","pingInterval":25000}'
        receiver.answer = say(
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nSet-Cookie: node=a; Path=/\r\n"
            b"Date: Tue, 01 Jan 2030 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        browser = PollingBrowser(receiver.url("/app/", host="LOCALHOST."), "n", "http://h", PATIENT_S)
        browser._open()
        browser._send("1")
    first, second = receiver.requests
    assert (first.path, first.headers["host"]) == ("/app/socket.io/?EIO=4&transport=polling", f"localhost:{receiver.port}")
    assert (second.path, second.headers["cookie"], second.body) == (f"{first.path}&sid=s", "node=a", b"1")
    assert browser.date == "Tue, 01 Jan 2030 00:00:00 GMT"


def end_before_the_session(server: ServerConnection) -> None:
    server.close(1013, "later")


def end_before_the_welcome(server: ServerConnection) -> None:
    server.send('0{"sid":"s"}')
    server.close(1013, "later")


def say_nothing(server: ServerConnection) -> None:
    server.recv()


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (end_before_the_session, "closed (1013 later)"),
        (end_before_the_welcome, "closed (1013 later)"),
        (say_nothing, "no answer in time"),
    ],
)
def test_a_websocket_of_no_gateway_is_not_connected(behave: Callable[[ServerConnection], None], reason: str) -> None:
    """The doctor reports it, and checks the rest."""
    with serve(behave, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        browser = WebSocketBrowser(url, "n", url, PATIENT_S if reason.startswith("closed") else 0.2)
        with pytest.raises(NotConnected) as caught:
            browser.join({})
        browser.close()
        server.shutdown()
    thread.join()
    assert str(caught.value) == reason


def test_an_answer_that_does_not_end_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """What the library logs of it is not the user's."""

    def begin(handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        with suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not closing.is_set():
                handler.wfile.write(b"x" * 65536)

    with Receiver() as receiver:
        receiver.answer = begin
        with pytest.raises(NotConnected):
            WebSocketBrowser(receiver.url("/"), "n", "http://h", 0.2).join({})
    assert not caplog.records


WELCOME = ['40/n,{"sid":"s"}', '42/n,["welcome",{"user":"ana"}]']


def event(event_id: str) -> str:
    return "42/n," + json.dumps(["event", "orders.1", {"sum": 1}, {"id": event_id, "time": 5}])


def test_a_client_joins_subscribes_answers_pings_and_tells_what_came() -> None:
    """An event is found by its id, with the time at which it came; others are passed over."""
    client = Scripted({"40/n,": WELCOME, "42/n,1": ['43/n,1[{"ok":true,"pattern":"orders.#"}]']})
    assert client.join({"token": "t"}) == {"user": "ana"}
    client.subscribe("orders.#")
    began_s = time.monotonic()
    for packet in ("2", event("first"), event("second")):
        client.arriving.put(packet)
    came_s = client.wait_for("second", PATIENT_S)
    assert came_s is not None
    assert began_s <= came_s <= time.monotonic()
    assert client.sent == ['40/n,{"token": "t"}', '42/n,1["subscribe", {"pattern": "orders.#"}]', "3"]
    client.close()
    client.close()
    assert client.ended is None


@pytest.mark.parametrize(("reason", "verdict"), [("no_authenticator", Verdict.FAULT), ("no_token", Verdict.UNKNOWN)])
def test_a_gateway_that_lets_nobody_in_is_a_fault(reason: str, verdict: Verdict) -> None:
    """One that wants a token may let in others than the doctor."""
    said = json.dumps({"message": "no", "data": {"code": "unauthorized", "reason": reason}})
    found = PublicUrl("http://h", "n", {}, idle_s=0, timeout_s=1)._join("WebSocket", Scripted({"40/n,": [f"44/n,{said}"]}))
    assert found.verdict is verdict


class Lost(Scripted):
    """A client whose packets reach another gateway, once it `has_joined`."""

    has_joined = False

    def _send(self, packet: str) -> None:
        if "subscribe" in packet or not self.has_joined:
            raise refusal_of(400, b'{"error": {"code": "unknown_session", "message": "Session ID unknown"}}')
        super()._send(packet)


@pytest.mark.parametrize("has_joined", [False, True])
def test_a_lost_session_of_a_long_poll_is_a_warning(has_joined: bool) -> None:
    """Several gateways without sticky sessions are as documented, and serve every client but stock ones that poll."""
    lost, url = Lost({"40/n,": WELCOME}), PublicUrl("http://h", "n", {}, idle_s=0, timeout_s=1)
    lost.has_joined = has_joined
    result = url._join("long poll", lost)
    if has_joined:
        [result] = url.subscribe("orders.#")
    assert result.verdict is Verdict.WARNING
    assert "sticky sessions" in (result.fix or "")


def test_a_refusal_has_its_code() -> None:
    refused = Scripted({"40/n,": ['44/n,{"message":"no token","data":{"code":"unauthorized","message":"no token"}}']})
    with pytest.raises(NotConnected, match="no token") as raised:
        refused.join({})
    assert raised.value.code == "unauthorized"
    client = Scripted({"40/n,": WELCOME, "42/n,1": ['43/n,1[{"ok":false,"error":{"code":"forbidden","message":"no"}}]']})
    client.join({})
    with pytest.raises(NotConnected) as raised:
        client.subscribe("#")
    assert raised.value.code == "forbidden"
    for each in (refused, client):
        each.close()


@pytest.mark.parametrize(("packet", "why"), [(None, "it closed the connection"), ("1", "the gateway closed the session")])
def test_an_end_is_told_with_its_reason(packet: str | None, why: str) -> None:
    """To a caller that waits for the welcome, and to one that waits for an event."""
    early = Scripted({})
    early.arriving.put(packet)
    with pytest.raises(NotConnected, match=why):
        early.join({})
    client = Scripted({"40/n,": WELCOME})
    client.join({})
    client.arriving.put(packet)
    assert client.wait_for("never", PATIENT_S) is None
    assert client.ended == why


def test_who_says_nothing_is_not_waited_for() -> None:
    """Neither for the welcome nor for an event."""
    silent = Scripted({}, timeout_s=0.01)
    with pytest.raises(NotConnected, match=r"no welcome within 0\.01 s"):
        silent.join({})
    assert silent.wait_for("never", 0.01) is None
    silent.close()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError(), "no answer in time"),
        (socket.gaierror(-2, "Name or service not known"), "no such host"),
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (ConnectionResetError("the head of the answer broke off"), "it closed the connection"),
        (EOFError(), "EOFError"),
        (ValueError("odd"), "odd"),
    ],
)
def test_a_broken_connection_is_told_in_a_few_words(error: Exception, why: str) -> None:
    assert reason_of(error) == why
