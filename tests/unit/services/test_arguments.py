"""Wrong arguments from applications: one error that names the argument, before Redis is asked."""

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from headgate import (
    AsyncPublisher,
    BusUnavailable,
    Clients,
    Headgate,
    HeadgateError,
    Identity,
    Inbox,
    Publisher,
    PublisherClosed,
    Receipt,
    Subscriber,
    own_topics,
    pattern,
    read_change,
    user_word,
)
from headgate.services.publisher import Prepared

NOWHERE = "unix:///nonexistent/no.sock"
WRONG = [None, True, "5", float("nan"), -1, b"x", 10**30, "\ud800", "", [], {}, 1.5, object(), [None], ["\ud800"], "a\nb", {1: 2}]
TEXTS = ("5", "\ud800", "", "a\nb")
EMPTY: tuple[Any, ...] = ("", [], {}, None)
EPOCH = "0123456789abcdef"

publisher, clients = Publisher(NOWHERE), Clients(NOWHERE)
inbox, gate = Inbox(publisher), Headgate()


def batch(**given: Any) -> object:
    return asyncio.run(AsyncPublisher(NOWHERE).publish_many(**given))


def opened(**given: Any) -> object:
    return asyncio.run(AsyncPublisher(**given).__aenter__())


# What is called, with arguments that are right → each argument to try, with the values of WRONG that are right too.
CALLS: list[tuple[Callable[..., Any], dict[str, Any], dict[str, tuple[Any, ...]]]] = [
    (Publisher, {"redis_url": NOWHERE}, {"redis_url": EMPTY, "namespace": ("5",), "max_payload_bytes": ()}),
    (Publisher, {"redis_url": NOWHERE}, {"timeout_s": (1.5,), "durable": (None,), "show_by": ("5", [])}),
    (Publisher, {"redis_url": NOWHERE}, {"schemas": EMPTY, "schema_check": (None,), "on_schema_violation": (None,)}),
    (Publisher, {"redis_url": NOWHERE}, {"strict_namespace": (True,)}),
    (opened, {"redis_url": NOWHERE}, {"strict_namespace": (True,), "namespace": ("5",), "timeout_s": (1.5,), "durable": (None,)}),
    (publisher.publish, {"topic": "a", "data": 1}, {"topic": ("5",), "namespace": (None, "5"), "durable": (None,)}),
    (publisher.publish, {"topic": "a", "data": 1}, {"id": (None, "5"), "user": (None, "5"), "by": (None, "5", "", "a\nb")}),
    (publisher.publish, {"topic": "a", "data": 1, "id": "b"}, {"id_for_s": (None,)}),
    (publisher.publish_ephemeral, {"topic": "a", "data": 1}, {"topic": ("5",), "id": (None, "5"), "user": (None, "5")}),
    (publisher.publish_many, {}, {"events": ([],)}),
    (batch, {}, {"events": ([],)}),
    (publisher.prepare, {"topic": "a", "data": 1}, {"check_schemas": (True,)}),
    (publisher.prepare_each, {}, {"events": ([], [None], ["\ud800"])}),
    (publisher.prepare_each, {"events": []}, {"check_schemas": (True,)}),
    (publisher.publish_prepared, {}, {"events": ("", [], {})}),
    (publisher.check, {}, {"receipt": ()}),
    (publisher.presence, {"topic": "a"}, {"topic": ("5",), "namespace": (None, "5")}),
    (publisher.presence_page, {"topic": "a"}, {"after": (None, "5"), "limit": ()}),
    (publisher.revoke, {"user": "ana"}, {"user": ("5",), "for_s": ()}),
    (publisher.revoke, {}, {"token_id": ("5",)}),
    (Inbox, {}, {"publisher": ()}),
    (inbox.send, {"users": "ana", "kind": "a", "data": 1}, {"users": ("5",), "kind": ("5",), "id": (None, "5")}),
    (inbox.page, {"user": "ana", "offset": 1, "epoch": EPOCH}, {"user": ("5",), "before": (None,), "limit": ()}),
    (inbox.page, {"user": "ana", "offset": 1, "epoch": EPOCH}, {"epoch": ("",), "offset": (), "archived": (True,)}),
    (publisher.inbox_page, {"user": "ana"}, {"archived": (True,)}),
    (inbox.mark_read, {"user": "ana", "ids": ["a/b"]}, {"user": ("5",), "ids": ([], [None])}),
    (inbox.archive, {"user": "ana", "ids": ["a/b"]}, {"ids": ([], [None])}),
    (inbox.mute, {"user": "ana", "pattern": "a"}, {"channels": ([], [None])}),
    (read_change, {"topic": "users.ana.inbox", "data": b"{}"}, {"topic": ("5",), "data": ()}),
    (lambda patterns: Subscriber(NOWHERE, patterns), {}, {"patterns": ("5",)}),
    (lambda redis_url: Subscriber(redis_url, "a"), {}, {"redis_url": EMPTY}),
    (Clients, {"redis_url": NOWHERE}, {"redis_url": EMPTY, "within_s": (1.5,)}),
    (clients.page, {}, {"namespace": (None, "5"), "user": (None, "5"), "sort": (), "limit": (), "after": (None,)}),
    (clients.page, {}, {"within": (None, [])}),
    (clients.client, {}, {"session": ("5",)}),
    (clients.disconnect, {"user": "ana"}, {"user": ("5",), "reason": ("5",), "by": TEXTS}),
    (clients.send, {"session": "s", "topic": "a", "data": 1}, {"session": ("5",), "topic": ("5",), "id": (None, "5")}),
    (clients.regrant, {"user": "ana"}, {"user": ("5",), "subscribe": (None, []), "publish": (None, []), "by": TEXTS}),
    (clients.regrant, {"user": "ana", "subscribe": []}, {"for_s": ()}),
    (pattern, {}, {"template": ("5",)}),
    (lambda name: pattern("a.{name}", name=name), {}, {"name": ("5", -1, 10**30)}),
    (user_word, {}, {"name": ("5",)}),
    (own_topics, {}, {"user": ("5",)}),
    (Identity, {"user": "ana"}, {"subscribe": ([],), "expires_at": (None, -1, 10**30, 1.5), "token_id": (None, *TEXTS)}),
    (Identity, {"user": "ana"}, {"namespaces": (None, []), "admin": (None,)}),
    (Headgate, {}, {"app": (None,), "authenticator": (None,)}),
    (gate.publish_each, {"events": []}, {"all_or_none": (True,)}),
    (gate.authenticate, {}, {"authenticator": ()}),
    (gate.authorize, {}, {"authorizer": ()}),
    (lambda topic: gate.on_request(topic), {}, {"topic": ("5",)}),
    (gate.on_request("a"), {}, {"function": ()}),
]
# The word of an argument in errors, where it is another.
WORDS = {"redis_url": "URL", "show_by": "pattern", "patterns": "pattern", "template": "pattern", "kind": "topic"}
WORDS |= {"publish": "pattern", "within": "namespace", "token_id": "token id", "name": "user"}
WORDS |= {"users": "user", "subscribe": "pattern", "schemas": "schema", "function": "on_request", "authenticator": "function"}


@pytest.mark.parametrize(
    ("call", "right", "name", "allowed"),
    [
        pytest.param(call, right, name, allowed, id=f"{getattr(call, '__qualname__', call)}-{name}")
        for call, right, names in CALLS
        for name, allowed in names.items()
    ],
)
def test_a_wrong_argument_is_named(call: Callable[..., Any], right: dict[str, Any], name: str, allowed: tuple[Any, ...]) -> None:
    """Whatever it is, the error is none from inside, and it comes before Redis is asked."""
    for value in WRONG:
        if any(type(value) is type(each) and value == each for each in allowed):
            continue
        with pytest.raises((HeadgateError, TypeError, ValueError)) as caught:
            call(**{**right, name: value})
        assert not isinstance(caught.value, BusUnavailable), value
        text = str(caught.value)
        assert any(word in text for word in (name, name.removesuffix("s"), WORDS.get(name, name))), (value, text)
        assert any(word in text for word in ("expected", "invalid", "needs", "is not", "cannot", "no argument", "takes")), (
            value,
            text,
        )


@pytest.mark.parametrize(
    "receipt", [Receipt("", 1, False, "a"), Receipt(EPOCH, -1, False, "a"), Receipt(EPOCH, True, False, "a"), ("a", 1)]
)
def test_a_receipt_that_was_put_together_wrongly_is_refused(receipt: Any) -> None:
    """An application may keep its parts in another table."""
    with pytest.raises(HeadgateError, match=r"receipt.*expected"):
        publisher.check(receipt)


def test_a_batch_names_the_events_that_are_none() -> None:
    prepared = publisher.prepare_each([("a", 1, None), None, ("a", 1)])  # type: ignore[list-item]
    assert [type(each) is Prepared for each in prepared] == [True, False, True]


@pytest.mark.parametrize("owner", [publisher, AsyncPublisher(NOWHERE), Subscriber(NOWHERE, "a"), clients, gate, inbox])
def test_connections_are_not_pickled(owner: object) -> None:
    """As when RQ is given `publisher.publish`, or a spawned process the publisher; the error says what to pass instead."""
    with pytest.raises(TypeError, match="pass a function of a module"):
        pickle.dumps(owner)


def test_an_asyncio_publisher_without_asyncio_names_the_other_publisher() -> None:
    """As under trio."""
    with pytest.raises(PublisherClosed, match=r"no event loop of asyncio .* use Publisher"):
        AsyncPublisher(NOWHERE).publish("a", 1).send(None)


def test_an_application_that_is_one_is_taken() -> None:
    app = Flask("a")
    app.config["HEADGATE_REDIS_URL"] = NOWHERE
    assert Headgate(app).settings.redis_url == NOWHERE
