"""Webhooks and Apprise from the log to the receiver: real runner, real Redis, real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from headgate.consumers.apprise import Apprise
from headgate.consumers.webhook.consumer import Webhook
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.publisher import Publisher
from headgate.redis.client import Client
from headgate.topic import DEFAULT_NAMESPACE
from tests.integration.consumers.conftest import RunConsumer
from tests.support.http_receiver import Receiver, reset, status
from tests.support.redis_server import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def table(receiver: Receiver) -> dict[str, Any]:
    return {"url": receiver.url(), "secret": SECRET, "allow_private": ["127.0.0.1"], "timeout_s": 30}


def test_events_arrive_in_log_order_over_one_connection(
    run_consumer: RunConsumer, publisher: Publisher, receiver: Receiver
) -> None:
    """Each once, each verified."""
    run_consumer("hook", Webhook, table(receiver))
    publisher.publish_many([("orders.1.failed", {"n": number}) for number in range(20)])
    wait_until(lambda: len(receiver.requests) >= 20, "all of them")

    bodies = [Verifier(SECRET).verify(request.body, request.headers) for request in receiver.requests]
    assert [body["data"]["n"] for body in bodies] == list(range(20))
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 20
    assert receiver.connections == 1


def test_an_outage_of_the_receiver_loses_nothing(
    run_consumer: RunConsumer, publisher: Publisher, receiver: Receiver, redis_client: Client
) -> None:
    """It resets, then answers 503, then is well: everything comes, under the ids that the failed attempts had."""
    receiver.answer = reset
    run_consumer("hook", Webhook, table(receiver))
    publisher.publish_many([("orders.1.failed", {"n": number}) for number in range(5)])
    wait_until(lambda: len(receiver.requests) >= 5, "attempts")
    receiver.answer = status(503)
    tried = len(receiver.requests)
    wait_until(lambda: len(receiver.requests) >= tried + 5, "more attempts")
    done: list[str] = []

    def take(request: Any, closing: Any) -> None:
        done.append(request.headers["webhook-id"])
        status(204)(request, closing)

    receiver.answer = take
    wait_until(lambda: len(done) >= 5, "all of them")

    assert len(set(done)) == len(done) == 5
    assert {request.headers["webhook-id"] for request in receiver.requests} == set(done)
    assert DeadLetters(redis_client, DEFAULT_NAMESPACE, "hook").count() == 0


def test_a_receiver_that_is_gone_gets_no_second_attempt(
    run_consumer: RunConsumer, publisher: Publisher, receiver: Receiver, redis_client: Client
) -> None:
    """The event is a dead letter, and the reason says whose answer it was."""
    receiver.answer = status(410)
    run_consumer("hook", Webhook, table(receiver))
    publisher.publish("orders.1.failed", {})
    letters = DeadLetters(redis_client, DEFAULT_NAMESPACE, "hook")
    wait_until(lambda: letters.count() == 1, "a dead letter")

    (letter,) = letters.page()
    assert (letter.why, letter.reason) == ("rejected", f"http://127.0.0.1:{receiver.port} answered 410: it wants no more events")
    assert len(receiver.requests) == 1


def test_one_failing_service_doubles_nothing_at_the_others(
    run_consumer: RunConsumer, publisher: Publisher, receiver: Receiver
) -> None:
    """Of Apprise: each URL is tried by itself."""
    with Receiver() as failing:
        failing.answer = status(500)
        run_consumer(
            "chat", Apprise, {"urls": [f"json://127.0.0.1:{port}/?cto=30&rto=30" for port in (failing.port, receiver.port)]}
        )
        publisher.publish("orders.1.failed", {"title": "Order 1"})
        wait_until(lambda: len(failing.requests) >= 2, "a second attempt where it failed")
        taken = threading.Event()

        def take(request: Any, closing: Any) -> None:
            taken.set()
            status(200)(request, closing)

        failing.answer = take
        wait_until(taken.is_set, "one that is taken")
        publisher.publish("orders.2.failed", {"title": "Order 2"})
        wait_until(lambda: len(receiver.requests) >= 2, "the next event")

    assert [json.loads(request.body)["message"] for request in receiver.requests] == ["Order 1", "Order 2"]
