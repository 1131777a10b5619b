"""Webhooks and Apprise from the log to the receiver: a stepped worker, real Redis, real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from headgate.consumers.webhook.consumer import Webhook
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.redis.client import Client
from headgate.services.publisher import Publisher
from tests.support.http_receiver import Receiver, reset, status
from tests.support.stepped_worker import MakeWorker, SteppedWorker
from tests.support.webhooks import SECRET, read_webhook


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def hook(make_worker: MakeWorker, receiver: Receiver) -> SteppedWorker:
    """A webhook that posts to `receiver`."""
    options = read_webhook({"url": receiver.url(), "allow_private": ["127.0.0.1"], "timeout_s": 30})
    return make_worker(Webhook, options, name="hook")


def test_events_arrive_in_log_order_over_one_connection(hook: SteppedWorker, publisher: Publisher, receiver: Receiver) -> None:
    """Each once, each verified."""
    publisher.publish_many([("orders.1.failed", {"n": number}) for number in range(20)])

    hook.work()

    bodies = [Verifier(SECRET).verify(request.body, request.headers) for request in receiver.requests]
    assert [body["data"]["n"] for body in bodies] == list(range(20))
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 20
    assert receiver.connections == 1


def test_an_outage_loses_nothing(hook: SteppedWorker, publisher: Publisher, receiver: Receiver, redis_client: Client) -> None:
    """It resets, then answers 503, then is well, and every event comes, under the id that its failed attempts had."""
    publisher.publish_many([("orders.1.failed", {"n": number}) for number in range(5)])
    for answer in (reset, status(503)):
        receiver.answer, before = answer, len(receiver.requests)
        while len(receiver.requests) == before:
            hook.make_due()
            hook.work()
    receiver.answer = status(204)
    hook.finish()

    ids = [request.headers["webhook-id"] for request in receiver.requests]
    assert sorted(ids[-5:]) == sorted(set(ids))
    assert len(ids) >= 7
    assert (hook.waiting(), DeadLetters(redis_client, DEFAULT_NAMESPACE, "hook").count()) == (0, 0)
