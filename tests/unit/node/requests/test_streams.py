"""Streams over HTTP: requests in, events and notices out, with a cursor from which any gateway goes on.

In the test's own process, on a model of Redis (tests/support/gateway_here.py); tests/integration/node/test_streams.py has real
processes and sockets.
"""

import io
import json
import time
from typing import Any
from urllib.parse import urlencode

import gevent
import pytest

from headgate.auth.api_keys import ApiKeys, new_key
from headgate.auth.identity import Handshake, Identity
from headgate.errors import BusUnavailable, Unauthorized, UnauthorizedReason
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import PRESENCE, notice_packet
from headgate.node.requests.stream_request import MAX_WAIT_S
from headgate.node.requests.streams import GATHER_S, HEARTBEAT_S, PATH, REQUEST_PATH
from headgate.redis.api_keys import StoredKey
from headgate.transport.limits import TransportLimits
from headgate.transport.stream import Stream
from tests.support.gateway_here import ENVIRON, GatewayOnModel, StartGatewayOnModel
from tests.support.stream_reader import StreamReader


class Reading:
    """One request for a stream, in a separate greenlet, as a server runs it; `room` is how many parts its socket takes."""

    def __init__(self, gateway: GatewayOnModel, since: str | None = None, *, room: float = float("inf"), **environ: Any) -> None:
        self.reader, self.status, self.body = StreamReader(since), "", b""
        self.headers: dict[str, str] = {}
        self._gateway, self.room = gateway, room
        self._room = gevent.event.Event()
        query = environ.pop("query", "pattern=orders.%23")
        self._environ: Any = {**ENVIRON, "REQUEST_METHOD": "GET", "PATH_INFO": PATH, "QUERY_STRING": query, **environ}
        if since is not None:
            self._environ["HTTP_LAST_EVENT_ID"] = since
        self._greenlet = gevent.spawn(self._run)
        gevent.idle(-2)

    def _run(self) -> None:
        def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
            self.status, self.headers = status, dict(headers)

        parts: Any = self._gateway.gateway.wsgi_app(lambda *_: pytest.fail("not the application's"))(
            self._environ, start_response
        )
        try:
            for part in parts:
                while self.room < 1:
                    self._room.clear()
                    self._room.wait()
                self.room -= 1
                self.body += part
                self.reader.feed(part)
        finally:
            if hasattr(parts, "close"):
                parts.close()

    def read(self) -> StreamReader:
        """Let everything happen that needs no time; return the output."""
        for _ in range(20):
            gevent.idle(-2)
        return self.reader

    def make_room(self) -> None:
        """Take everything from now on."""
        self.room = float("inf")
        self._room.set()

    @property
    def over(self) -> bool:
        """Whether the answer has ended."""
        self.read()
        return bool(self._greenlet.dead)

    def cut(self) -> None:
        """The client is gone."""
        self._greenlet.kill()
        gevent.idle(-2)

    @property
    def error(self) -> dict[str, Any]:
        """The refusal."""
        self.read()
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


def offsets(reading: Reading) -> list[int]:
    """Return the offsets of the events that came."""
    return [each["offset"] for each in reading.read().events]


def poll(gateway: GatewayOnModel, query: str, since: str | None = None) -> Any:
    """Return the answer to a long-poll."""
    reading = Reading(gateway, since, query=query, HTTP_ACCEPT="application/json")
    gateway.wait_until(lambda: reading.over, "the answer to a long-poll")
    return json.loads(reading.body)


# Events ------------------------------------------------------------------------------------------------------------------


def test_a_stream_brings_a_welcome_and_then_every_matching_event(gateway: GatewayOnModel) -> None:
    """In order, with a cursor after each."""
    gateway.publish(3)
    stream = Reading(gateway)
    sent = gateway.publish(2)
    gateway.publish(1, "stock.1")

    reader = stream.read()
    assert (stream.status, stream.headers["Content-Type"]) == ("200 OK", "text/event-stream")
    assert reader.order == ["welcome", *sent]
    assert reader.cursor == f"{gateway.redis.epoch}:{sent[-1]}"
    assert [(each["topic"], each["data"]) for each in reader.events] == [("orders.1", 1)] * 2


def test_a_number_is_an_offset_in_the_log_there_is(gateway: GatewayOnModel) -> None:
    """`since=0` begins with all that the log holds."""
    sent = gateway.publish(3)
    assert offsets(Reading(gateway, query="pattern=orders.%23&since=0")) == sent


def test_a_number_that_has_brought_nothing_is_a_position_all_the_same(gateway: GatewayOnModel) -> None:
    """The welcome names it with its epoch, because in another log the same number would pass over events."""
    gateway.publish(2)
    stream = Reading(gateway, query="pattern=orders.%23&since=2")
    cursor = stream.read().cursor
    assert cursor == f"{gateway.redis.epoch}:2"
    stream.cut()
    gateway.redis.flush()
    gateway.wait(3)
    gateway.publish(4)
    again = Reading(gateway, cursor)
    gateway.wait_until(lambda: again.read().named("gap"), "the gap")
    assert [each["reason"] for each in again.reader.named("gap")] == ["log_lost"]


def test_several_patterns_share_a_stream(gateway: GatewayOnModel) -> None:
    """An event comes once."""
    stream = Reading(gateway, query=urlencode([("pattern", "orders.#"), ("pattern", "orders.1"), ("pattern", "stock.*")]))
    sent = [*gateway.publish(1), *gateway.publish(1, "stock.1")]
    assert offsets(stream) == sent


def test_a_stream_is_a_client_until_it_is_over(gateway: GatewayOnModel) -> None:
    """It counts, also for the balance with other gateways, is listed, and leaves no trace."""
    load = gateway.gateway.population._rebalancing._row
    stream = Reading(gateway)
    assert load().sessions == 1
    [client] = gateway.namespace.clients.values()
    assert gateway.gateway.population.clients._row(client, None).transport == "stream"
    stream.cut()
    assert gateway.namespace.clients == {}
    assert gateway.namespace.subscriptions.count == 0
    assert load().sessions == 0


def test_a_silent_stream_has_heartbeats(gateway: GatewayOnModel) -> None:
    """Comments, which move nothing."""
    stream = Reading(gateway)
    gateway.wait(2 * HEARTBEAT_S)
    stream.read()
    assert stream.body.count(b": \n\n") == 2
    assert stream.reader.order == ["welcome"]
    assert HEARTBEAT_S < 30


# Losses ------------------------------------------------------------------------------------------------------------------


def test_a_reader_that_stops_is_bounded_and_gets_everything_from_the_log(gateway: GatewayOnModel) -> None:
    """Its queue fills, and the log brings the rest."""
    stream = Reading(gateway, room=2)
    sent = [offset for _ in range(20) for offset in gateway.publish(40)]
    stream.read()
    [client] = gateway.namespace.clients.values()
    assert client.connection.queue.frames <= gateway.gateway.settings.queue_frames
    stream.make_room()
    gateway.wait_until(lambda: offsets(stream)[-1:] == sent[-1:], "the last event")
    assert offsets(stream) == sent


def test_with_drop_a_reader_that_stops_is_told_what_it_missed(gateway: GatewayOnModel) -> None:
    """Counted exactly."""
    stream = Reading(gateway, room=2, query="pattern=orders.%23&overflow=drop")
    sent = [offset for _ in range(20) for offset in gateway.publish(40)]
    stream.make_room()
    reader = stream.read()
    gaps = reader.named("gap")
    assert sum(each["count"] for each in gaps) + len(reader.events) == len(sent)
    assert {each["reason"] for each in gaps} == {"overflow"}


# Long-polls --------------------------------------------------------------------------------------------------------------


def test_a_poll_answers_at_the_first_events(gateway: GatewayOnModel) -> None:
    """Whole, with the cursor to ask with next, and a client no longer."""
    reading = Reading(gateway, query="pattern=orders.%23&wait=60", HTTP_ACCEPT="application/json")
    assert not reading.over
    sent = gateway.publish(2)
    assert reading.over
    body = json.loads(reading.body)
    assert [each["offset"] for each in body["events"]] == sent
    assert body["cursor"] == f"{gateway.redis.epoch}:{sent[-1]}"
    assert [each["type"] for each in body["notices"]] == ["welcome"]
    assert gateway.namespace.clients == {}


def test_a_poll_without_events_answers_after_its_time_with_a_cursor(gateway: GatewayOnModel) -> None:
    """From which the next one goes on."""
    gateway.publish(3)
    body = poll(gateway, "pattern=orders.%23&wait=0")
    assert (body["cursor"], body["events"]) == (f"{gateway.redis.epoch}:3", [])


def test_a_poll_without_time_answers_what_its_requests_have_asked(gateway: GatewayOnModel) -> None:
    """One with time waits for events, because a page shows its presence with each poll, and would ask without a pause."""
    body = {"subscriptions": [{"pattern": "orders.#"}], "requests": [["presence", {"topic": "a..b"}]]}
    at_once, waiting = (posted(gateway, body, query=f"wait={wait}", HTTP_ACCEPT="application/json") for wait in (0, 60))
    gateway.wait_until(lambda: at_once.over, "the answer")
    assert not waiting.over
    gateway.publish(1)
    assert waiting.over
    for reading in (at_once, waiting):
        assert [each["type"] for each in json.loads(reading.body)["notices"]] == ["welcome", "answers"]


def test_a_poll_gathers_presence_for_a_second(gateway: GatewayOnModel) -> None:
    """It would pile up until the first event; at once, two pages that poll would wake each other without end."""
    reading = Reading(gateway, query="pattern=orders.%23&wait=60", HTTP_ACCEPT="application/json")
    [client] = gateway.namespace.clients.values()
    for _ in range(2):
        gateway.wait(GATHER_S / 2 - 0.1)
        assert not reading.over
        notice = notice_packet(gateway.namespace.name, PRESENCE, {"topic": "a", "reset": True})
        client.connection.offer_control(message_frame(notice))
    gateway.wait(GATHER_S / 2 + 0.2)
    assert reading.over
    assert [each["type"] for each in json.loads(reading.body)["notices"]] == ["welcome", "presence", "presence"]


# Posted ------------------------------------------------------------------------------------------------------------------


def posted(gateway: GatewayOnModel, body: Any, path: str = PATH, **environ: Any) -> Reading:
    """Send a POST with a body of JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(data)), "wsgi.input": io.BytesIO(data), **environ}
    return Reading(gateway, query=more.pop("query", ""), REQUEST_METHOD="POST", PATH_INFO=path, **more)


def test_a_posted_stream_takes_the_object_of_a_connect(gateway_on_model: StartGatewayOnModel) -> None:
    """A refused subscription refuses no other, and a past can be asked for."""
    gateway = gateway_on_model(guard)
    sent = gateway.publish(3)
    wanted = [{"pattern": "orders.1", "since": {"last": 2}}, {"pattern": "stock.1"}]
    stream = posted(gateway, {"token": "ann", "subscriptions": wanted})
    gateway.wait_until(lambda: len(offsets(stream)) == 2, "the past")
    assert [each["ok"] for each in stream.reader.named("welcome")[0]["subscriptions"]] == [True, False]
    assert offsets(stream) == sent[1:]


def test_a_posted_stream_resumes_as_a_connect_does(gateway: GatewayOnModel) -> None:
    """From an epoch and an offset."""
    sent = gateway.publish(3)
    point = {"epoch": gateway.redis.epoch, "offset": sent[0]}
    assert offsets(posted(gateway, {"subscriptions": [{"pattern": "orders.#"}], "resume": point})) == sent[1:]


def test_the_requests_of_a_stream_are_answered_behind_its_welcome(gateway: GatewayOnModel) -> None:
    """Each in its place."""
    body = {
        "subscriptions": [],
        "requests": [["presence", {"topic": "orders.1", "act": "leave"}], ["presence", {"topic": "a..b"}]],
    }
    stream = posted(gateway, body)
    gateway.wait_until(lambda: stream.read().named("answers"), "the answers")
    [answers] = stream.reader.named("answers")
    left, refused = answers["answers"]
    assert (left["ok"], refused["error"]["code"]) == (True, "invalid_request")
    assert stream.reader.order[:2] == ["welcome", "answers"]


def test_a_stream_whose_requests_meet_a_fault_leaves_no_client(gateway: GatewayOnModel) -> None:
    """It would count as one, and get events, for ever."""
    gateway.gateway.requests.streams._handlers[gateway.namespace.name]["presence"] = lambda *_: pytest.fail("a fault")
    stream = posted(gateway, {"subscriptions": [{"pattern": "orders.#"}], "requests": [["presence", {"topic": "orders.1"}]]})
    assert (stream.over, gateway.namespace.clients) == (True, {})


def test_a_request_is_answered_without_a_stream(gateway_on_model: StartGatewayOnModel) -> None:
    """By any gateway; a handler's refusal is an acknowledgement, and a caller without access is refused by status."""
    gateway = gateway_on_model(guard)
    gateway.publish(2)
    replay = {"token": "ann", "name": "replay", "body": {"pattern": "orders.#", "from": 1, "to": 2}}
    answer = posted(gateway, replay, REQUEST_PATH)
    gateway.wait_until(lambda: answer.over, "the answer")
    assert [meta["offset"] for _, _, meta in json.loads(answer.body)["events"]] == [1, 2]
    publish = {"token": "ann", "name": "publish", "body": {"topic": "orders.1", "data": 1}}
    assert posted(gateway, publish, REQUEST_PATH).error["code"] == "forbidden"
    stranger = posted(gateway, {**replay, "token": ""}, REQUEST_PATH)
    assert stranger.error["code"] == "unauthorized"
    assert stranger.headers["WWW-Authenticate"] == 'Bearer realm="headgate"'  # RFC 9110 section 15.5.2
    assert gateway.namespace.clients == {}


@pytest.mark.parametrize(
    ("body", "environ", "words"),
    [
        (b"{", {}, "not JSON"),
        (b"[]", {}, "expected an object"),
        (b"{}", {"CONTENT_TYPE": "text/plain"}, "expected Content-Type: application/json"),
        (b"{}", {"CONTENT_LENGTH": "9" * 18}, "above the limit of"),
        (b"{}", {"CONTENT_LENGTH": "0" * 18 + "9" * 12}, "at most 18 digits"),
        (b"{}", {"CONTENT_LENGTH": "0" * 5000 + "2"}, "at most 18 digits"),
        ({"subscriptions": {}}, {}, "subscriptions: expected a list"),
        ({"requests": [["publish", {}]]}, {}, "with a name of presence"),
        ({"requests": [["presence", {}]] * 65}, {}, "at most 64"),
        ({"resume": 7}, {}, "{epoch, offset}"),
        ({}, {"query": "pattern=a"}, "unknown parameter 'pattern'; known: namespace, wait"),
        ({"name": "subscribe", "body": {}}, {"PATH_INFO": REQUEST_PATH}, "publish, replay, seen, inbox"),
        ({"name": "publish", "body": 7}, {"PATH_INFO": REQUEST_PATH}, "expected {name, body}"),
    ],
)
def test_a_bad_post_is_one_clear_error(gateway: GatewayOnModel, body: Any, environ: dict[str, Any], words: str) -> None:
    """With the fault and the allowed values; no client is left of it."""
    more = dict(environ)
    refused = posted(gateway, body, more.pop("PATH_INFO", PATH), **more)
    assert words in refused.error["message"]
    assert refused.status[:1] == "4"
    assert gateway.namespace.clients == {}


@pytest.mark.parametrize("path", [PATH, REQUEST_PATH])
def test_a_post_without_a_length_gets_the_answer_of_a_poll(gateway: GatewayOnModel, path: str) -> None:
    """411, as for a chunked body."""
    refused = posted(gateway, {}, path, CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked")
    assert (refused.status, refused.error["message"]) == ("411 Length Required", "Content-Length is required")


@pytest.mark.parametrize("path", [PATH, REQUEST_PATH])
def test_a_post_whose_body_is_late_may_be_tried_again(gateway: GatewayOnModel, path: str) -> None:
    """A page on a poor network would give up after an error that a repetition cannot help."""

    class LateBody:
        def read(self, size: int) -> bytes:
            raise TimeoutError("the body took too long")

    refused = posted(gateway, {}, path, **{"wsgi.input": LateBody()})
    assert refused.status == "408 Request Timeout"
    assert (refused.error["code"], refused.error["retry"]) == ("request_timeout", True)
    assert refused.headers["Retry-After"] == "1"


# Ends --------------------------------------------------------------------------------------------------------------------


def guard(handshake: Handshake) -> Identity | None:
    """The token is the user's name; a cookie names one as well."""
    name = handshake.token or str(handshake.environ.get("HTTP_COOKIE", "")).removeprefix("user=")
    return Identity(name, subscribe=("orders.#",)) if name else None


def test_a_stream_needs_the_grants_of_a_subscription(gateway_on_model: StartGatewayOnModel) -> None:
    """By a bearer's token, or by the application's own sign-in."""
    gateway = gateway_on_model(guard)
    assert Reading(gateway).error["code"] == "unauthorized"
    assert Reading(gateway, HTTP_COOKIE="user=ann").read().order == ["welcome"]
    forbidden = Reading(gateway, HTTP_AUTHORIZATION="Bearer ann", query="pattern=stock.%23")
    assert (forbidden.error["code"], forbidden.status) == ("forbidden", "403 Forbidden")
    assert len(gateway.namespace.clients) == 1


def test_an_authenticator_sees_the_whole_request_of_a_stream(gateway_on_model: StartGatewayOnModel) -> None:
    """As for a WebSocket, so that both decide alike, such as Flask-Login about a session of another browser."""
    gateway = gateway_on_model(lambda handshake: Identity(handshake.environ["HTTP_USER_AGENT"], subscribe=("orders.#",)))
    (welcome,) = Reading(gateway, HTTP_USER_AGENT="a-browser").read().named("welcome")
    assert welcome["user"] == "a-browser"


def test_a_stream_of_which_the_application_cannot_say_whether_it_may_be_is_worth_another_try(gateway: GatewayOnModel) -> None:
    """A POST gets the others, as a CONNECT does."""

    def fail(identity: Identity, pattern: str, action: str) -> bool:
        if pattern == "orders.#":
            raise RuntimeError
        return True

    gateway.gateway.set_authorizer(fail)
    refused = Reading(gateway)
    assert (refused.error["code"], refused.status) == ("authorize_failed", "503 Service Unavailable")
    assert refused.headers["Retry-After"] == "1"
    (welcome,) = posted(gateway, {"subscriptions": [{"pattern": "orders.#"}, {"pattern": "stock.#"}]}).read().named("welcome")
    assert [each["ok"] for each in welcome["subscriptions"]] == [False, True]


def test_whose_rights_end_is_told_and_gets_nothing_more(gateway_on_model: StartGatewayOnModel) -> None:
    """Not even the waiting events."""
    gateway = gateway_on_model(guard)
    stream = Reading(gateway, HTTP_AUTHORIZATION="Bearer ann", room=2)
    sent = gateway.publish(1)
    clients = list(gateway.namespace.clients.values())
    gateway.publish(5)
    gateway.gateway.population.evictions.refused(clients, Unauthorized(UnauthorizedReason.REVOKED))
    stream.make_room()
    assert stream.over
    assert offsets(stream) == sent
    assert stream.reader.order[-1] == "status"
    assert gateway.namespace.clients == {}


def test_a_stream_of_an_expired_token_ends(gateway_on_model: StartGatewayOnModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it gets everything; then its last words are the reason, and the same token opens no other stream."""
    until_s = time.time() + 60
    ends_s = [until_s, 1.0]
    gateway = gateway_on_model(lambda handshake: Identity("ann", subscribe=("orders.#",), expires_at=ends_s.pop(0)))
    stream = Reading(gateway)
    sent = gateway.publish(2)
    assert offsets(stream) == sent
    monkeypatch.setattr(gateway.gateway.access.expiry, "_now_s", lambda: until_s + 10)
    gateway.gateway.access.expiry.tick()
    gateway.publish(1)
    assert offsets(stream) == sent
    assert stream.over
    assert stream.reader.order[-1] == "status"
    assert gateway.namespace.clients == {}
    assert Reading(gateway).error["reason"] == "expired"


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
def test_a_stream_ends_within_two_seconds_after_its_key_was_revoked(gateway_on_model: StartGatewayOnModel, accept: str) -> None:
    """It is given the reason, and gets nothing more. While Redis does not say, it goes on."""
    gateway, key = gateway_on_model(guard), new_key("shop", ["read:orders.#"])
    stored: dict[str, StoredKey] = {key.stored.id: key.stored}
    is_up = True

    def find(key_id: str) -> StoredKey | None:
        if not is_up:
            raise BusUnavailable("gone")
        return stored.get(key_id)

    gateway.gateway.access.logins._api_keys = ApiKeys(find, now_s=gateway.clock.time)
    stream = Reading(gateway, HTTP_AUTHORIZATION=f"Bearer {key.text}", HTTP_ACCEPT=accept)
    gateway.wait(5)
    is_up = False
    gateway.wait(5)
    assert not stream.over
    stored.clear()
    is_up = True
    gateway.wait(2)
    gateway.publish(1)
    assert stream.over
    assert b"unauthorized" in stream.body
    assert b"orders.1" not in stream.body


def test_a_gateway_that_stops_ends_its_streams(gateway: GatewayOnModel) -> None:
    """And takes no new ones in that time."""
    stream = Reading(gateway)
    gateway.gateway.population.drain.begun = True
    refused = Reading(gateway)
    assert (refused.error["code"], refused.status[:3]) == ("bus_unavailable", "503")
    gateway.gateway.close()
    assert stream.over


def test_a_stream_that_is_still_joining_ends_with_its_gateway(gateway: GatewayOnModel) -> None:
    """Redis has not confirmed its pattern yet."""
    gateway.server.stop()
    stream = Reading(gateway, query="pattern=stock.%23")
    assert len(gateway.namespace.clients) == 1
    gateway.gateway.requests.streams.close()
    gateway.server.go_on()
    gateway.wait_until(lambda: stream.over, "the end")
    assert gateway.namespace.clients == {}


def test_a_user_has_so_many_streams(gateway_on_model: StartGatewayOnModel) -> None:
    """They count as clients."""
    gateway = gateway_on_model(guard, max_clients_per_user=2)
    for _ in range(2):
        Reading(gateway, HTTP_AUTHORIZATION="Bearer ann")
    refused = Reading(gateway, HTTP_AUTHORIZATION="Bearer ann")
    assert refused.error["code"] == "limit_reached"


@pytest.mark.parametrize(
    "asked",
    [
        {"query": "pattern=orders.1&wait=0", "HTTP_ACCEPT": "application/json"},
        {
            "query": "",
            "REQUEST_METHOD": "POST",
            "PATH_INFO": REQUEST_PATH,
            "body": {"token": "ann", "name": "cancel", "body": {"id": 1}},
        },
    ],
    ids=["a long-poll", "a request without a stream"],
)
def test_what_joins_for_one_answer_is_charged_as_a_read(gateway_on_model: StartGatewayOnModel, asked: dict[str, Any]) -> None:
    """Each of them is the work of a join."""
    gateway = gateway_on_model(guard, read_per_s=0.5)
    asked = dict(asked)
    body = json.dumps(asked.pop("body", None)).encode()
    for refused in (False, False, True):
        sent: dict[str, Any] = {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        answer = Reading(gateway, HTTP_AUTHORIZATION="Bearer ann", CONTENT_TYPE="application/json", **asked, **sent)
        gateway.wait_until(lambda answer=answer: answer.over, "the answer")  # type: ignore[misc]
        assert answer.status.startswith("429" if refused else "200")
    assert answer.error["name"] == "read_per_s"
    assert "Retry-After" in answer.headers


# Bad input ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"query": ""}, "pattern: expected at least one"),
        ({"query": "pattern=a..b"}, "invalid pattern 'a..b'"),
        ({"query": "pattern=a&wait=5"}, "wait: only with Accept: application/json"),
        ({"query": "pattern=a&wait=61", "HTTP_ACCEPT": "application/json"}, f"from 0 to {MAX_WAIT_S:g}"),
        ({"query": "pattern=a&wait=-1", "HTTP_ACCEPT": "application/json"}, "wait: expected"),
        ({"query": "pattern=a&since=yesterday"}, "cursor: expected <epoch>:<offset>"),
        ({"query": "pattern=a", "HTTP_LAST_EVENT_ID": "zz:1"}, "resume.epoch"),
        ({"query": "pattern=a&overflow=never"}, "overflow: expected one of catch_up, latest, drop"),
        ({"query": "pattern=a&patern=b"}, "unknown parameter 'patern'; known: namespace, overflow, pattern, since, wait"),
        ({"query": "pattern=a&since=1&since=2"}, "the parameter 'since' is there more than once"),
        ({"query": "pattern=%FF"}, "in UTF-8"),
        ({"query": "&".join(["pattern=a"] * 300)}, "at most 256 fields"),
        ({"query": urlencode([("pattern", f"a.{number}") for number in range(129)])}, "subscriptions (at most 128)"),
        ({"query": "pattern=a&namespace=nowhere"}, "nowhere"),
        ({"REQUEST_METHOD": "PUT"}, "expected GET or POST"),
        ({"REQUEST_METHOD": "GET", "PATH_INFO": REQUEST_PATH}, "expected POST"),
    ],
)
def test_a_bad_request_is_one_clear_error(gateway: GatewayOnModel, environ: dict[str, Any], words: str) -> None:
    """With the fault and the allowed values; no client is left of it."""
    refused = Reading(gateway, **environ)
    assert words in refused.error["message"]
    assert refused.status[:1] == "4"
    assert gateway.namespace.clients == {}


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"HTTP_ORIGIN": "https://elsewhere.example"}, "403 Forbidden"),
        ({"HTTP_SEC_FETCH_SITE": "cross-site"}, "403 Forbidden"),
        ({"HTTP_HOST": "rebound.example"}, "421 Misdirected Request"),
        ({"HTTP_HOST": "rebound.example", "PATH_INFO": "/"}, "421 Misdirected Request"),
    ],
)
def test_a_page_of_another_site_reads_nothing(gateway: GatewayOnModel, environ: dict[str, Any], status: str) -> None:
    """Nor does it cause work, in a stream or in the application."""
    assert Reading(gateway, **environ).status == status


def test_a_page_of_an_allowed_origin_may_ask_and_read(gateway_on_model: StartGatewayOnModel) -> None:
    """With its token, and its cursor."""
    gateway = gateway_on_model(guard, allowed_origins=("https://shop.example",))
    asked = Reading(gateway, HTTP_ORIGIN="https://shop.example", REQUEST_METHOD="OPTIONS")
    assert asked.read().order == []
    assert asked.headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type, Last-Event-ID"
    stream = Reading(gateway, HTTP_ORIGIN="https://shop.example", HTTP_AUTHORIZATION="Bearer ann")
    assert stream.read().order == ["welcome"]
    assert stream.headers["Access-Control-Allow-Origin"] == "https://shop.example"


def test_a_stream_that_is_over_takes_nothing_and_owes_nothing() -> None:
    """Its end is reported once."""
    stream = Stream("sid", {}, TransportLimits())
    stream.end("one")
    stream.end("two")
    assert (stream.reason, stream.take(0), stream.idle) == ("one", None, False)
