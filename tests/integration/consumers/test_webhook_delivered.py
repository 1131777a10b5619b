"""Webhooks and Apprise from the log to the receiver: a stepped worker, real Redis, real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from headgate.consumers.webhook.consumer import Webhook
from headgate.services.publisher import Publisher
from tests.support.http_receiver import Receiver
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
