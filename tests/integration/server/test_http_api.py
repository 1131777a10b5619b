"""The HTTP API over a real gateway: who may, what comes back, page by page."""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway

SECRET = "a secret of the tests that is long enough to be one"
DEADLINE_S = 30.0


@functools.cache
def token(*arguments: str) -> str:
    """Mint a token as a developer does: the command line."""
    command = [str(Path(sys.executable).with_name("headgate")), "token", *arguments]
    environment = {"HEADGATE_TOKEN_SECRET": SECRET, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return done.stdout.strip()


def ask(gateway: GatewayProcess, path: str, bearer: str | None = None, body: Any = None) -> tuple[int, Any]:
    """Return (status, JSON) of a request."""
    request = urllib.request.Request(gateway.url.rstrip("/") + path, data=json.dumps(body).encode() if body is not None else None)
    request.add_header("Content-Type", "application/json")
    if bearer is not None:
        request.add_header("Authorization", f"Bearer {bearer}")
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def events(gateway: GatewayProcess, bearer: str | None = None, **query: object) -> tuple[int, Any]:
    """Ask for a page of the log; `from_` stands for `from`."""
    named = {name.rstrip("_"): str(value) for name, value in query.items()}
    return ask(gateway, "/api/events?" + urllib.parse.urlencode(named), bearer)


def asked_until_refused(ask: Callable[[], tuple[int, Any]], burst: int, per_s: float) -> list[tuple[int, Any]]:
    """Ask until told to wait; return every answer. As many pass as may at once, and while a slow machine asks, some more may."""
    began_s = time.monotonic()
    answers = [ask()]
    while answers[-1][0] != 429:
        assert len(answers) <= burst + (time.monotonic() - began_s) * per_s, answers
        answers.append(ask())
    assert len(answers) > burst, answers
    return answers


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    return start_module_gateway({"HEADGATE_TOKEN_SECRET": SECRET})


@pytest.fixture
def publisher(gateway: GatewayProcess) -> Publisher:
    return Publisher(f"unix://{gateway.folder}/data/redis.sock")


def test_an_id_that_a_user_took_first_swallows_nobody_elses_event(gateway: GatewayProcess, publisher: Publisher) -> None:
    """Ids count for the topic and the user; a service's own event of that id is published, and so is another user's."""
    body = {"topic": "orders.42.shipped", "data": "mallory's", "id": "order-42-shipped"}
    mallory, ana = (token("--user", user, "--publish", "orders.#") for user in ("mallory", "ana"))

    first = ask(gateway, "/api/publish", mallory, body)[1]
    again = ask(gateway, "/api/publish", mallory, body)[1]
    others = ask(gateway, "/api/publish", ana, {**body, "data": "ana's"})[1]
    receipt = publisher.publish("orders.42.shipped", "the shop's", id="order-42-shipped")

    assert (again["offset"], again["duplicate"]) == (first["offset"], True)
    assert [others["duplicate"], receipt.duplicate] == [False, False]
    assert len({first["offset"], others["offset"], receipt.offset}) == 3


def test_the_log_is_read_page_by_page_and_filtered(gateway: GatewayProcess, publisher: Publisher) -> None:
    """250 events, every fifth wanted: 50 come, in order, each once, over pages that say where to go on."""
    events_ = [(f"orders.{n}.{'shipped' if n % 5 == 0 else 'updated'}", {"n": n}) for n in range(250)]
    first = publisher.publish_many(events_)[0].offset
    reader = token("--user", "ana", "--subscribe", "orders.#")
    seen, from_, pages = [], first, 0
    while from_ is not None:
        status, page = events(gateway, reader, pattern="orders.*.shipped", from_=from_)
        assert status == 200, page
        seen += page["events"]
        from_, pages = page["next"], pages + 1
    assert [event["data"]["n"] for event in seen] == list(range(0, 250, 5))
    assert [event["offset"] for event in seen] == sorted(event["offset"] for event in seen)
    assert seen[0].keys() == {"topic", "data", "id", "time", "offset"}
    assert pages == 3


def test_a_page_of_large_events_is_bounded(gateway: GatewayProcess, publisher: Publisher) -> None:
    """Ten events of 30 KB are not one answer of 300 KB."""
    first = publisher.publish_many([("orders.1.noted", "x" * 30_000)] * 10)[0].offset
    reader = token("--user", "ana", "--subscribe", "orders.#")
    _, page = events(gateway, reader, pattern="orders.#", from_=first)
    assert 1 <= len(page["events"]) <= 3
    assert page["next"] == page["events"][-1]["offset"] + 1


def test_reading_needs_a_grant_that_contains_the_pattern(gateway: GatewayProcess) -> None:
    """No token 401, a token for something else 403, a bad one 401: each with its code."""
    assert events(gateway)[0] == 401
    assert events(gateway, "not.a.token")[0] == 401
    status, answer = events(gateway, token("--user", "ana", "--subscribe", "orders.*.shipped"), pattern="orders.#")
    assert (status, answer["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize("query", [{"pattern": "a..b"}, {"from_": 0}, {"from_": "x"}, {"to": "-1"}, {"form": 1}])
def test_a_bad_question_is_answered_with_what_is_wrong(gateway: GatewayProcess, query: dict[str, object]) -> None:
    """400 with a code of the tree."""
    status, answer = events(gateway, token("--user", "ana", "--subscribe", "#"), **query)
    assert status == 400
    assert answer["error"]["code"] in ("invalid_pattern", "invalid_request")


def test_an_unknown_namespace_is_named(gateway: GatewayProcess) -> None:
    """404 or 400 with the namespaces that there are."""
    status, answer = events(gateway, token("--user", "ana", "--subscribe", "#"), namespace="elsewhere")
    assert status in (400, 404)
    assert answer["error"]["known"] == ["notifications"]


def test_publishing_with_a_token_that_grants_it(gateway: GatewayProcess) -> None:
    """A receipt where the topic is granted; 403 where it is not; 401 without a token."""
    writer = token("--user", "shop", "--publish", "orders.#", "--subscribe", "orders.#")
    status, receipt = ask(gateway, "/api/publish", writer, {"topic": "orders.7.shipped", "data": {"carrier": "UPS"}})
    assert status == 201
    assert events(gateway, writer, pattern="orders.#", from_=receipt["offset"])[1]["events"][0]["data"] == {"carrier": "UPS"}
    assert ask(gateway, "/api/publish", writer, {"topic": "users.7.hello", "data": 1})[0] == 403
    assert ask(gateway, "/api/publish", None, {"topic": "orders.7.shipped", "data": 1})[0] == 401


def test_who_reads_too_fast_is_told_to_wait_and_others_are_not(start_gateway: StartGateway) -> None:
    """429 with Retry-After, per user, and per address for those without a token; what is forbidden costs nothing."""
    gateway = start_gateway(
        {
            "HEADGATE_TOKEN_SECRET": SECRET,
            "HEADGATE_ANONYMOUS_SUBSCRIBE": "news.#",
            "HEADGATE_PROXIES": "1",
            "HEADGATE_READ_PER_S": "0.1",
            "HEADGATE_READ_BURST": "3",
        }
    )
    ana, bob = (token("--user", user, "--subscribe", "orders.#") for user in ("ana", "bob"))
    assert [events(gateway, ana, pattern="#")[0] for _ in range(5)] == [403] * 5
    *passed, (status, answer) = asked_until_refused(lambda: events(gateway, ana, pattern="orders.#"), burst=3, per_s=0.1)
    assert ({status for status, _ in passed}, status) == ({200}, 429)
    error = answer["error"]
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "read_per_s", 0.1)
    assert error["retry"]
    assert 1 <= error["retry_after_s"] <= 10
    assert events(gateway, bob, pattern="orders.#")[0] == 200

    def anonymous(address: str) -> tuple[int, str | None]:
        asked = urllib.request.Request(f"{gateway.url}/api/events?pattern=news.%23", headers={"X-Forwarded-For": address})
        try:
            with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
                return answer.status, None
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Retry-After"]

    *anyone, refused = asked_until_refused(lambda: anonymous("203.0.113.7"), burst=3, per_s=0.1)
    assert (set(anyone), refused[0]) == ({(200, None)}, 429)
    assert 1 <= int(refused[1] or 0) <= 10, "of one page in ten seconds"
    assert anonymous("203.0.113.8") == (200, None)


def test_who_publishes_too_fast_is_told_to_wait_and_others_are_not(start_gateway: StartGateway) -> None:
    """429 with Retry-After, and nothing published; what was answered with 201 is in the log."""
    gateway = start_gateway({"HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_PUBLISH_PER_S": "0.1", "HEADGATE_PUBLISH_BURST": "3"})
    ana, bob = (token("--user", user, "--publish", "orders.#", "--subscribe", "orders.#") for user in ("ana", "bob"))
    numbers = itertools.count()

    def publish() -> tuple[int, Any]:
        return ask(gateway, "/api/publish", ana, {"topic": "orders.1.paid", "data": next(numbers)})

    *passed, (status, answer) = asked_until_refused(publish, burst=3, per_s=0.1)
    assert ({status for status, _ in passed}, status) == ({201}, 429)
    error = answer["error"]
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "publish_per_s", 0.1)
    assert error["retry"]
    assert 1 <= error["retry_after_s"] <= 10
    assert ask(gateway, "/api/publish", bob, {"topic": "orders.1.paid", "data": "bob's"})[0] == 201
    _, page = events(gateway, ana, pattern="orders.#")
    assert [event["data"] for event in page["events"]] == [*range(len(passed)), "bob's"]


def test_a_stranger_is_refused_before_the_body_is_read(gateway: GatewayProcess) -> None:
    """401 while the body is still to come."""
    host, port = gateway.url.rpartition("/")[2].split(":")
    for authorization in ("", "Authorization: Bearer x.y.z\r\n"):
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as wire:
            head = f"POST /api/publish HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{authorization}"
            wire.sendall(f"{head}Content-Length: 60000\r\n\r\n".encode())
            answer = http.client.HTTPResponse(wire)
            answer.begin()
            assert answer.status == 401
            assert json.load(answer)["error"]["code"] == "unauthorized"


@pytest.mark.parametrize("framing", ["Content-Length: 10000000", "Transfer-Encoding: chunked"])
def test_a_body_that_is_too_large_is_refused_from_its_size_or_as_it_is_counted(gateway: GatewayProcess, framing: str) -> None:
    """413 with both numbers; of a chunked one no more is read than may come."""
    writer = token("--user", "shop", "--publish", "orders.#", "--subscribe", "orders.#")
    host, port = gateway.url.rpartition("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as wire:
        head = (
            f"POST /api/publish HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAuthorization: Bearer {writer}\r\n"
        )
        wire.sendall(f"{head}{framing}\r\n\r\n".encode())
        if "chunked" in framing:
            wire.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
            for _ in range(80):
                wire.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        assert answer.status == 413
        assert "chunked" in framing or answer.headers["Connection"] == "close"
        assert json.load(answer)["error"]["code"] == "payload_too_large"


def test_a_body_that_does_not_come_is_told(start_gateway: StartGateway) -> None:
    """408, in words of the API."""
    gateway = start_gateway({"HEADGATE_BODY_DEADLINE_S": "0.5"}, "--dev")
    host, port = gateway.url.rpartition("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as wire:
        wire.sendall(f"POST /api/publish HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n".encode())
        wire.sendall(b"Content-Length: 60000\r\n\r\n{")
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        assert (answer.status, answer.headers["Connection"]) == (408, "close")
        assert json.load(answer)["error"]["code"] == "request_timeout"
