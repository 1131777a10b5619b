"""Web Push from an inbox to a push service by TLS: a stepped worker, real Redis, a service that checks and decrypts."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from headgate.consumers.base import Context, Delivery, Reject, Retry
from headgate.consumers.webhook.addresses import Allowed
from headgate.consumers.webpush.consumer import WebPush, WebPushOptions
from headgate.consumers.webpush.encryption import new_keys
from headgate.events.topic import user_of
from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from headgate.settings.options import read_options
from tests.support.certificates import Authority
from tests.support.http_receiver import Receiver, status
from tests.support.push_service import PushBrowser
from tests.support.stepped_worker import MakeWorker

PRIVATE, PUBLIC = new_keys()
# The data of these tests' application, by user.
kept: dict[str, list[PushBrowser]] = {}


def subscriptions(delivery: Delivery) -> list[Any]:
    """Stand for an application's own function."""
    return [each.subscription for each in kept.get(user_of(delivery.topic) or "", [])]


def forget(endpoint: str) -> None:
    """Stand for an application's own function."""
    for browsers in kept.values():
        browsers[:] = [each for each in browsers if each.endpoint != endpoint]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def service(authority: Authority) -> Iterator[Receiver]:
    """A push service on this machine."""
    kept.clear()
    with Receiver(authority.server_context("127.0.0.1")) as receiver:
        receiver.answer = status(201)
        yield receiver


def read(authority: Authority) -> WebPushOptions:
    options, faults = read_options(
        WebPushOptions,
        {
            "private_key": PRIVATE,
            "contact": "mailto:ops@example.com",
            "subscriptions_function": f"{__name__}:subscriptions",
            "gone_function": f"{__name__}:forget",
            "allow_private": ["127.0.0.1"],
            "ca_file": authority.ca_file,
        },
    )
    assert options is not None, faults
    return options


def test_an_item_reaches_each_browser_of_its_user_alone(
    make_worker: MakeWorker, authority: Authority, service: Receiver, publisher: Publisher
) -> None:
    """Whatever the user's name, two browsers decrypt it, over one connection, and another user's gets nothing."""
    worker = make_worker(WebPush, read(authority), name="push", patterns=("users.*.inbox.*.#",))
    kept["ana@example.org"] = [PushBrowser(service.url("/a")), PushBrowser(service.url("/b"))]
    kept["ana"] = [PushBrowser(service.url("/other"))]

    Inbox(publisher).send("ana@example.org", "orders.failed", {"title": "Order 42", "why": "no stock"}, "42")
    worker.work()

    shown = {"title": "Order 42", "body": "why: no stock", "topic": "users.ana__40example__2eorg.inbox.orders.failed"}
    assert [
        browser.receive(request.headers, request.body, PUBLIC, service.url(""))
        for browser, request in zip(kept["ana@example.org"], sorted(service.requests, key=lambda each: each.path), strict=True)
    ] == [shown | {"item": "orders.failed/42"}] * 2
    assert service.connections == 1


def test_an_endpoint_at_a_private_address_gets_no_request(
    make_worker: MakeWorker, authority: Authority, service: Receiver, publisher: Publisher
) -> None:
    """A browser can name any endpoint, and one inside the operator's network is not connected to."""
    options = replace(read(authority), allow_private=Allowed())
    worker = make_worker(WebPush, options, name="push", patterns=("users.*.inbox.*.#",))
    kept["ana"] = [PushBrowser(service.url("/a"))]

    Inbox(publisher).send("ana", "orders.failed", {"order": 42})
    worker.work()

    assert (service.connections, worker.waiting()) == (0, 1)


def test_a_pause_that_one_service_asks_for_holds_up_no_other(authority: Authority, service: Receiver) -> None:
    """Until it is over nothing is sent to that service. An answer about one browser holds up nothing, whatever it asks for."""
    with Receiver(authority.server_context("127.0.0.1")) as other:
        kept["ana"] = [PushBrowser(each.url(f"/{n}")) for each in (service, other) for n in range(4)]
        push = WebPush(read(authority), Context("push", "shop", cast(Any, None), cast(Any, None)))
        event = Delivery("users.ana.inbox.news", b"1", "1", 0, "e" * 16, 1)
        gone, unknown, large, late, *others = (structs.replace(event, key=key) for key in push.keys(event))
        for each, code, error in ((gone, 410, None), (unknown, 404, None), (large, 413, Reject), (late, 429, Retry)):
            service.answer = status(code, {"Retry-After": "30"})
            with pytest.raises(error) if error else nullcontext():
                push.handle(each)
        with pytest.raises(Retry, match="asked for a pause"):
            push.handle(late)
        push.handle(others[0])
        push.close()

    assert (len(service.requests), len(other.requests)) == (4, 1)
