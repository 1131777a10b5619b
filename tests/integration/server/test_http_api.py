"""The HTTP API: access, and the answer, page by page. In this process over a real log, and once over a real connection."""

import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate import Publisher
from headgate.auth.tokens import Tokens
from headgate.settings.settings import Settings
from headgate_server.api.v1 import dispatch, publishing
from headgate_server.app import create_app
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.unstarted_gateway import UnstartedGateway

SECRET = "a secret of the tests that is long enough to be one"
DEADLINE_S = 30.0

Serve = Callable[..., "Api"]


def token(user: str, subscribe: str = "", publish: str = "") -> str:
    tokens = Tokens.configured(Settings(token_secret=SECRET))
    assert tokens is not None
    return tokens.mint(user, [subscribe] * bool(subscribe), [publish] * bool(publish), 3600)


class Api:
    """The ready-made server over a real log, asked without a connection."""

    def __init__(self, client: FlaskClient) -> None:
        self._client = client

    def ask(self, path: str, bearer: str, body: Any = None) -> tuple[int, Any]:
        """Return (status, JSON) of a request, which is a POST if it has a body."""
        headers = {"Authorization": f"Bearer {bearer}"}
        answer = self._client.get(path, headers=headers) if body is None else self._client.post(path, json=body, headers=headers)
        return answer.status_code, answer.get_json()

    def publish(self, bearer: str, topic: str, data: Any, **more: Any) -> tuple[int, Any]:
        return self.ask("/api/v1/events", bearer, {"topic": topic, "data": data, **more})

    def events(self, bearer: str, **query: object) -> tuple[int, Any]:
        named = {name.rstrip("_"): str(value) for name, value in query.items()}
        return self.ask("/api/v1/events?" + urllib.parse.urlencode(named), bearer)


@pytest.fixture
def serve(unstarted_gateway: UnstartedGateway, redis_url: str) -> Serve:
    """Make the ready-made server with settings: `serve(read_per_s=3)`."""

    def make(**options: Any) -> Api:
        settings = Settings(redis_url=redis_url, token_secret=SECRET, **options)
        return Api(create_app(settings, gate=unstarted_gateway(settings)).test_client())

    return make


@pytest.fixture
def api(serve: Serve) -> Api:
    return serve()


class Clock:
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which the routes count how fast a caller goes."""
    clock = Clock()
    for module in (dispatch, publishing):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


# Publishing ----------------------------------------------------------------------------------------------------------------


def test_an_id_that_a_user_took_first_swallows_nobody_elses_event(api: Api, publisher: Publisher) -> None:
    """Ids count for the topic and the user; a service's own event of that id is published, and so is another user's."""
    mallory, ana = (token(user, publish="orders.#") for user in ("mallory", "ana"))

    first = api.publish(mallory, "orders.42.shipped", "mallory's", id="order-42-shipped")[1]
    again = api.publish(mallory, "orders.42.shipped", "mallory's", id="order-42-shipped")[1]
    others = api.publish(ana, "orders.42.shipped", "ana's", id="order-42-shipped")[1]
    receipt = publisher.publish("orders.42.shipped", "the shop's", id="order-42-shipped")

    assert (again["offset"], again["duplicate"]) == (first["offset"], True)
    assert [others["duplicate"], receipt.duplicate] == [False, False]
    assert len({first["offset"], others["offset"], receipt.offset}) == 3


# Reading -------------------------------------------------------------------------------------------------------------------


def test_the_log_is_read_page_by_page_and_filtered(api: Api, publisher: Publisher) -> None:
    """250 events, every fifth wanted: 50 come, in order, each once, over pages that say where to go on."""
    events_ = [(f"orders.{n}.{'shipped' if n % 5 == 0 else 'updated'}", {"n": n}) for n in range(250)]
    first = publisher.publish_many(events_)[0].offset
    reader = token("ana", subscribe="orders.#")
    seen, from_, pages = [], first, 0
    while from_ is not None:
        status, page = api.events(reader, pattern="orders.*.shipped", from_=from_)
        assert status == 200, page
        seen += page["events"]
        from_, pages = page["next"], pages + 1
    assert [event["data"]["n"] for event in seen] == list(range(0, 250, 5))
    assert [event["offset"] for event in seen] == sorted(event["offset"] for event in seen)
    assert seen[0].keys() == {"topic", "data", "id", "time", "offset"}
    assert pages == 3


def test_a_page_of_large_events_is_bounded(api: Api, publisher: Publisher) -> None:
    """Ten events of 30 KB are not one answer of 300 KB."""
    first = publisher.publish_many([("orders.1.noted", "x" * 30_000)] * 10)[0].offset
    _, page = api.events(token("ana", subscribe="orders.#"), pattern="orders.#", from_=first)
    assert 1 <= len(page["events"]) <= 3
    assert page["next"] == page["events"][-1]["offset"] + 1


def test_a_user_who_reads_too_fast_is_told_to_wait_and_others_are_not(serve: Serve, clock: Clock) -> None:
    """429 with Retry-After, per user, and per address for those without a token."""
    api = serve(anonymous_subscribe=("news.#",), proxies=1, read_per_s=0.75)
    ana, bob = (token(user, subscribe="orders.#") for user in ("ana", "bob"))
    *passed, (status, answer) = [api.events(ana, pattern="orders.#") for _ in range(4)]
    assert ([status for status, _ in passed], status) == ([200] * 3, 429)
    error = answer
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "read_per_s", 0.75)
    assert (error["retry"], error["retry_after_s"]) == (True, 2)
    assert api.events(bob, pattern="orders.#")[0] == 200

    def anonymous(address: str) -> tuple[int, str | None]:
        answer = api._client.get("/api/v1/events?pattern=news.%23", headers={"X-Forwarded-For": address})
        return answer.status_code, answer.headers.get("Retry-After")

    assert [anonymous("203.0.113.7") for _ in range(4)] == [(200, None)] * 3 + [(429, "2")]
    assert anonymous("203.0.113.8") == (200, None)
    clock.now_s += 2
    assert anonymous("203.0.113.7") == (200, None)


# Over a connection ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """One that waits for a body for half a second."""
    return start_module_gateway({"HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_WRITE_DEADLINE_S": "0.5"})


def exchange(gateway: GatewayProcess, head: str, *pieces: bytes) -> tuple[http.client.HTTPResponse, Any]:
    """Send a request for /api/v1/events, perhaps not all of it; return the answer and its JSON."""
    host, port = gateway.url.rpartition("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as wire:
        line = f"POST /api/v1/events HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        wire.sendall(f"{line}{head}\r\n\r\n".encode())
        for piece in pieces:
            wire.sendall(piece)
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        return answer, json.load(answer)


def test_the_api_answers_over_a_connection_before_a_body_that_it_refuses_has_come(gateway: GatewayProcess) -> None:
    """201 and the event; 401 for a stranger and 413 for a large body, while most of the body is still to come.

    408 for one that does not come.
    """
    bearer = f"Authorization: Bearer {token('shop', publish='orders.#', subscribe='orders.#')}"
    event = b'{"topic":"orders.7.shipped","data":{"carrier":"UPS"}}'

    answer, receipt = exchange(gateway, f"{bearer}\r\nContent-Length: {len(event)}", event)
    assert answer.status == 201
    asked = urllib.request.Request(f"{gateway.url}/api/v1/events?pattern=orders.%23", headers=dict([bearer.split(": ", 1)]))
    with urllib.request.urlopen(asked, timeout=DEADLINE_S) as page:
        (found,) = json.load(page)["events"]
    assert (found["offset"], found["data"]) == (receipt["offset"], {"carrier": "UPS"})

    answer, told = exchange(gateway, "Content-Length: 60000")
    assert (answer.status, told["code"]) == (401, "unauthorized")
    answer, told = exchange(gateway, f"{bearer}\r\nContent-Length: 10000000")
    assert (answer.status, told["code"], answer.headers["Connection"]) == (413, "payload_too_large", "close")
    answer, told = exchange(gateway, f"{bearer}\r\nTransfer-Encoding: chunked", *[b"400\r\n" + b" " * 1024 + b"\r\n"] * 81)
    assert (answer.status, told["code"]) == (413, "payload_too_large")
    answer, told = exchange(gateway, f"{bearer}\r\nContent-Length: 60000", b"{")
    assert (answer.status, told["code"], answer.headers["Connection"]) == (408, "request_timeout", "close")


def test_a_connection_publishes_one_after_the_other(gateway: GatewayProcess) -> None:
    """Events and batches, of which two come together, each answered in its turn; every event is in the log where it says."""
    host, port = gateway.url.rpartition("/")[2].split(":")
    head = f"Host: {host}\r\nContent-Type: application/json\r\nAuthorization: Bearer {token('shop', publish='orders.#')}\r\n"

    def request(path: str, body: bytes) -> bytes:
        return f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    one = b'{"topic":"orders.7.shipped","data":%d}'
    batch = b'{"events":[' + b",".join(one % number for number in range(100)) + b"]}"
    offsets: list[int] = []
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as wire:
        for sent in ([("", one % 1)], [("", one % 2), ("/batch", batch)], [("/batch", batch), ("", one % 3)]):
            wire.sendall(b"".join(request(f"/api/v1/events{path}", body) for path, body in sent))
            with wire.makefile("rb") as stream:
                for path, _ in sent:
                    assert stream.readline() == b"HTTP/1.1 201 CREATED\r\n"
                    headers = http.client.parse_headers(stream)
                    told = json.loads(stream.read(int(headers["Content-Length"])))
                    offsets += [receipt["offset"] for receipt in (told["receipts"] if path else [told])]
    assert offsets == list(range(offsets[0], offsets[0] + 203))
