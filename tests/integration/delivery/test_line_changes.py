"""A real Redis loses the end of its log, or is another process: the reports to connected and to returning clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from headgate.redis import keys
from headgate.services.publisher import Fate
from tests.support.log_clients import Grounds, LogGround
from tests.support.raw_client import RawClient


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """A gateway with a namespace for each test."""
    with Grounds(tmp_path_factory.mktemp("grounds"), 6) as grounds:
        yield grounds


@pytest.fixture
def ground(grounds: Grounds) -> Iterator[LogGround]:
    """A namespace with five events."""
    with grounds.fresh() as ground:
        ground.publish(5)
        yield ground


def join(ground: LogGround, resume: Any = None) -> RawClient:
    """Connect a client that wants everything."""
    auth = {"subscriptions": [{"pattern": "#"}], **({"resume": resume} if resume else {})}
    client = RawClient(ground.gateway.url, auth, ground.namespace)
    assert client.welcome["subscriptions"] == [{"pattern": "#", "ok": True}]
    return client


def remember(ground: LogGround) -> Callable[[], None]:
    """Copy the log with its ids; the answer puts it back, like a server without the later writes."""

    def present() -> list[str | bytes]:
        ids: list[bytes] = ground.redis.call("KEYS", f"hg:{{{ground.namespace}}}:id:*")
        return [ground.log, ground.head, keys.epochs_key(ground.namespace), *ids]

    copies = [(key, ground.redis.call("DUMP", key)) for key in present()]

    def put_back() -> None:
        ground.redis.call("DEL", *present())
        for key, copy in copies:
            ground.redis.call("RESTORE", key, 0, copy)

    return put_back


def told(client: RawClient) -> list[tuple[Any, ...]]:
    """Everything about the log that was reported to a client, in order, but for cursors in the epoch of its welcome."""
    short: list[tuple[Any, ...]] = []
    for name, *rest in client.received:
        if name == "event":
            short.append(("event", rest[2]["offset"]))
        elif name == "gap":
            short.append((rest[0]["reason"], rest[0]["from"], rest[0]["to"]))
        elif name == "cursor" and rest[0]["epoch"] != client.welcome["epoch"]:
            short.append(("cursor", rest[0]["offset"]))
    return short


def test_a_client_that_resumes_is_not_told_of_lost_events_that_it_never_had(ground: LogGround) -> None:
    """Another one had them and is notified; this one was disconnected. Its position is on the line, so it has Redis' log."""
    with closing(join(ground)) as witness:
        epoch = witness.welcome["epoch"]
        put_back = remember(ground)
        ground.publish(3)
        witness.wait_for_events(3)
        put_back()
        ground.publish(1)
        witness.wait_for_events(4)
        assert ("rolled_back", 6, 8) in told(witness)
    with closing(join(ground, {"epoch": epoch, "offset": 5})) as client:
        client.wait_for_events(1)
        assert client.welcome["resumed"] is True
        assert told(client) == [("event", 6)]


def test_an_event_that_is_published_again_under_its_id_comes_again_after_a_rollback(ground: LogGround) -> None:
    """The receipt says that it is lost, and its id is free again. A handler sees it twice, the page is notified in between."""
    with closing(join(ground)) as client:
        put_back = remember(ground)
        receipt = ground.publisher.publish("orders.1", "paid", id="payment-1")
        client.wait_for_events(1)
        put_back()
        ground.publish(1)
        client.wait_for_events(2)
        assert ground.publisher.check(receipt) is Fate.ROLLED_BACK
        again = ground.publisher.publish("orders.1", "paid", id="payment-1")
        client.wait_for_events(3)
        assert (receipt.offset, again.offset, again.duplicate) == (6, 7, False)
        assert [entry for entry in told(client) if entry[0] != "cursor"] == [
            *(("event", 6), ("rolled_back", 6, 6)),
            *(("event", 6), ("event", 7)),
        ]
        assert [meta["id"] for _, _, meta in client.events].count("payment-1") == 2
