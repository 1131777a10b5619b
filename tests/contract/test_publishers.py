"""One contract for both publishers: the same receipts, errors, ids and promises, from threads and from an event loop."""

import asyncio
import math
import os
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvloop

from headgate import (
    BusRefused,
    BusUnavailable,
    InvalidEvent,
    InvalidRequest,
    InvalidTopic,
    LimitReached,
    NotSerializable,
    PayloadTooLarge,
    Publisher,
    SettingsError,
    UnknownNamespace,
)
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import head_key, log_key
from headgate.services.publisher import MAX_BATCH_EVENTS, PublishManyError, Receipt
from tests.support.publisher_on_loop import PublisherOnLoop
from tests.support.raw_log import read_log
from tests.support.redis_server import DEADLINE_S, full_memory, wait_until, write_at_once

KEY = log_key("notifications")
Publishes: TypeAlias = Publisher | PublisherOnLoop
Opens: TypeAlias = Callable[..., Publishes]
KINDS: dict[str, Opens] = {
    "threads": Publisher,
    "asyncio": partial(PublisherOnLoop, asyncio.new_event_loop),
    "uvloop": partial(PublisherOnLoop, uvloop.new_event_loop),
}


@pytest.fixture(params=KINDS)
def open_publisher(request: pytest.FixtureRequest) -> Opens:
    return KINDS[request.param]


@pytest.fixture
def publisher(open_publisher: Opens, redis_url: str) -> Iterator[Publishes]:
    """A publisher into an empty Redis, without the library."""
    with open_publisher(redis_url, timeout_s=DEADLINE_S) as publisher:
        yield publisher


@pytest.fixture
def nowhere(open_publisher: Opens, tmp_path: Path) -> Iterator[Publishes]:
    """A publisher without a Redis: a call that raises something else than BusUnavailable has sent nothing."""
    with open_publisher(f"unix://{tmp_path}/no.sock") as publisher:
        yield publisher


def test_the_position_is_that_of_the_newest_event_of_the_namespace(publisher: Publishes) -> None:
    """It is JSON as `load` reads it, and None while a namespace has no event."""
    assert publisher.position() is None
    publisher.publish("orders.1", 0)
    receipt = publisher.publish("orders.1", 1)

    assert publisher.position() == {"epoch": receipt.epoch, "offset": receipt.offset}
    assert publisher.position("others") is None


def test_the_payload_limit_is_exact(open_publisher: Opens, tmp_path: Path) -> None:
    """In bytes of UTF-8; at the limit it would be sent (and here finds no Redis), one byte more is refused at the publisher."""
    with open_publisher(f"unix://{tmp_path}/no.sock", max_payload_bytes=10) as publisher:
        with pytest.raises(BusUnavailable):
            publisher.publish("a", "éé1234")

        with pytest.raises(PayloadTooLarge) as caught:
            publisher.publish("a", "éé12345")

    assert caught.value.parts == {"size": 11, "limit": 10, "where": "publisher"}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        *(({"topic": topic}, InvalidTopic, None) for topic in ("a..b", "orders.*")),
        *(({"id": event_id}, InvalidEvent, None) for event_id in ("a b", "")),
        ({"namespace": "a b"}, UnknownNamespace, None),
        ({"data": math.nan}, NotSerializable, None),
        *(({"user": user}, InvalidRequest, "user: ") for user in ("", "a\nb", "\ud800", "x" * 250, 42)),
        *(({"by": by}, InvalidRequest, "by: expected") for by in ("\ud800", 42, b"ana", ["ana"])),
        ({}, BusUnavailable, None),
    ],
)
def test_an_argument_is_checked_before_anything_is_sent(
    nowhere: Publishes, given: Any, error: type[Exception], words: str | None
) -> None:
    """Each wrong one has its own error, although there is no Redis at all, whether the event is for the log or not."""
    for publish in (nowhere.publish, nowhere.publish_ephemeral):
        with pytest.raises(error, match=words):
            publish(**{"topic": "a", "data": 1, **given})


def test_a_batch_is_checked_whole_before_anything_is_sent(nowhere: Publishes) -> None:
    """The error of the item, with its number, instead of BusUnavailable."""
    with pytest.raises(InvalidTopic) as caught:
        nowhere.publish_many([("a", 1), ("b", 2, "id"), ("no no", 3)])

    assert caught.value.__notes__ == ["event number 2 of the batch"]
    with pytest.raises(NotSerializable) as refused:
        nowhere.publish_many([("a", 1), ("b", {"lines": [1, {2}, object()]})])
    assert (refused.value.path, refused.value.__notes__) == ("$.lines[2]", ["event number 1 of the batch"])


@pytest.mark.parametrize(
    "event", [{"topic": "a", "data": 1}, {"topic": "a", "data": 1, "id": "x"}, "ab", ("a",), ("a", 1, None, 2), None]
)
def test_an_event_of_a_batch_is_a_pair_or_a_triple(nowhere: Publishes, event: Any) -> None:
    """The keys of a dict, as the HTTP API takes them, would be published as topic, data and id."""
    with pytest.raises(InvalidRequest, match=r"expected \(topic, data\)") as caught:
        nowhere.publish_many([("a", 1), event])

    assert caught.value.__notes__ == ["event number 1 of the batch"]


@pytest.mark.parametrize(("after", "limit"), [(None, 0), (None, -1), (None, True), (None, "5"), ("", 5), (7, 5)])
def test_a_page_of_members_that_is_none_is_refused(nowhere: Publishes, after: Any, limit: Any) -> None:
    """An empty page without `after` would end a loop over the pages before its first member."""
    with pytest.raises(InvalidRequest):
        nowhere.presence_page("a", after, limit)


def test_a_batch_is_bounded(nowhere: Publishes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless iterable ends in an error, not in memory."""
    with pytest.raises(LimitReached) as caught:
        nowhere.publish_many(("a", 1) for _ in iter(int, 1))
    assert caught.value.parts == {"name": "batch_events", "limit": MAX_BATCH_EVENTS}

    monkeypatch.setattr("headgate.services.publisher.MAX_BATCH_BYTES", 100)
    with pytest.raises(LimitReached, match="batch_bytes"):
        nowhere.publish_many([("a", "x" * 60), ("a", "x" * 60)])


def test_an_empty_batch_needs_no_redis(nowhere: Publishes) -> None:
    """Nothing to publish, nothing to fail."""
    assert nowhere.publish_many([]) == []


@pytest.mark.parametrize("limit", [0, -1, 1024 * 1024 + 1])
def test_the_payload_limit_has_limits(open_publisher: Opens, limit: int) -> None:
    """No publisher can raise the hard limit."""
    with pytest.raises(SettingsError):
        open_publisher("redis://127.0.0.1", max_payload_bytes=limit)


def test_a_receipt_is_the_position_in_the_log(publisher: Publishes, redis_client: Client) -> None:
    receipts = [publisher.publish("orders.1", {"n": n}) for n in range(3)]

    assert [receipt.offset for receipt in receipts] == [1, 2, 3]
    assert {receipt.epoch.encode() for receipt in receipts} == {call(redis_client, "HGET", head_key("notifications"), "epoch")}
    assert read_log(redis_client) == [(n + 1, receipts[n].id.encode(), b"orders.1", b'{"n":%d}' % n) for n in range(3)]
    assert not any(receipt.duplicate for receipt in receipts)


def test_an_id_is_published_once(publisher: Publishes, redis_client: Client) -> None:
    first = publisher.publish("a", 1, id="once")

    again = publisher.publish("a", 1, id="once")

    assert again == Receipt(first.epoch, first.offset, True, "once")
    assert len(read_log(redis_client)) == 1


def test_ids_of_users_never_meet_those_of_others(publisher: Publishes, redis_client: Client) -> None:
    """For any name, of any length, each user's second publish is a duplicate of the own first."""
    publishers = [None, "ana", "Ana", "an:a", "ana/", "é" * 255]

    firsts = [publisher.publish("a", name, id="same", by=name) for name in publishers]

    assert [receipt.offset for receipt in firsts] == [1, 2, 3, 4, 5, 6]
    again = [publisher.publish("a", name, id="same", by=name) for name in publishers]
    assert [(receipt.offset, receipt.duplicate) for receipt in again] == [(offset, True) for offset in range(1, 7)]


def test_each_namespace_is_a_log_of_its_own(publisher: Publishes, redis_client: Client) -> None:
    """With or without Socket.IO's slash."""
    publisher.publish("a", 1)

    assert publisher.publish("a", 2, namespace="/other").offset == 1
    assert [data for *_, data in read_log(redis_client, log_key("other"))] == [b"2"]


def test_a_batch_is_published_in_order(publisher: Publishes, redis_client: Client) -> None:
    publisher.publish("a", 0, id="known")

    receipts = publisher.publish_many([("a", 1), ("b", 2, "new"), ("c", 3, None), ("a", 4, "known")])

    assert [(receipt.offset, receipt.duplicate) for receipt in receipts] == [(2, False), (3, False), (4, False), (1, True)]
    assert [receipt.id for receipt in receipts][1::2] == ["new", "known"]
    assert [topic for _, _, topic, _ in read_log(redis_client)] == [b"a", b"a", b"b", b"c"]


def test_a_batch_that_is_refused_in_part_says_which(publisher: Publishes, redis_client: Client) -> None:
    """The namespace's limit is lower than the publisher's, so there are receipts for logged events, errors for the rest."""
    publisher.publish("a", 0)
    call(redis_client, "FCALL", "headgate_configure", 1, KEY, 100, 60000, 10)

    with pytest.raises(PublishManyError) as caught:
        publisher.publish_many([("a", 1), ("a", "x" * 9), ("a", 2)])

    first, second, third = caught.value.outcomes
    assert isinstance(first, Receipt)
    assert isinstance(second, PayloadTooLarge)
    assert isinstance(third, Receipt)
    assert second.parts == {"size": 11, "limit": 10, "where": "bus"}
    assert [data for *_, data in read_log(redis_client)] == [b"0", b"1", b"2"]


def test_a_full_batch_is_one_round_trip(publisher: Publishes, redis_client: Client) -> None:
    receipts = publisher.publish_many(("a", n) for n in range(10_000))

    assert [receipt.offset for receipt in receipts] == list(range(1, 10_001))


def test_lost_functions_are_loaded_again(publisher: Publishes, redis_client: Client) -> None:
    """With an empty Redis after a restart, say, neither way of publishing notices."""
    publisher.publish("a", 1)
    call(redis_client, "FUNCTION", "FLUSH")
    assert publisher.publish("a", 2).offset == 2
    call(redis_client, "FUNCTION", "FLUSH")

    assert [receipt.offset for receipt in publisher.publish_many([("a", 3), ("a", 4)])] == [3, 4]


def test_a_killed_connection_costs_nothing(publisher: Publishes, redis_client: Client) -> None:
    """One retry on a fresh connection, and the event is there once."""
    for number in range(5):
        publisher.publish("a", number)
        call(redis_client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert [receipt.offset for receipt in publisher.publish_many([("a", 5), ("a", 6)])] == [6, 7]


def test_a_publish_whose_connection_breaks_before_the_answer_is_sent_once_more(
    open_publisher: Opens, redis_url: str, redis_client: Client
) -> None:
    """Under the same id, so that the log has it once, whether the first attempt arrived or not."""

    def waiting() -> list[bytes]:
        return re.findall(rb"^id=(\d+) .* cmd=fcall ", call(redis_client, "CLIENT", "LIST"), re.MULTILINE)

    with open_publisher(redis_url, timeout_s=DEADLINE_S) as publisher, ThreadPoolExecutor(1) as pool:
        publisher.publish("a", 0)
        call(redis_client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        call(redis_client, "CLIENT", "PAUSE", 600_000, "WRITE")
        try:
            sent = pool.submit(publisher.publish, "a", 1)
            (first,) = wait_until(waiting, "the publish waits at Redis")
            call(redis_client, "CLIENT", "KILL", "ID", first)
        finally:
            call(redis_client, "CLIENT", "UNPAUSE")
        assert sent.result(DEADLINE_S).offset == 2
    assert [data for *_, data in read_log(redis_client)] == [b"0", b"1"]


def test_publishing_goes_on_after_a_restart(open_publisher: Opens, start_redis: Callable[..., EmbeddedRedis]) -> None:
    """While Redis is unreachable every publish raises; the log, its epoch and the idempotency keys survive."""
    server = start_redis("restarted")
    with closing(open_client(server.url)) as client:
        write_at_once(client)
    publisher = open_publisher(server.url, timeout_s=DEADLINE_S)
    first = publisher.publish("a", 1, id="before")
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.is_running, "the server is gone")
    with pytest.raises(BusUnavailable):
        publisher.publish("a", 2)
    with pytest.raises(BusUnavailable):
        publisher.publish_many([("a", 2)])
    server.close()

    start_redis("restarted")

    assert publisher.publish("a", 1, id="before") == Receipt(first.epoch, 1, True, "before")
    assert publisher.publish("a", 3).offset == 2
    publisher.close()


def test_a_stopped_redis_raises_and_the_same_id_is_not_doubled(
    open_publisher: Opens, redis_server: EmbeddedRedis, redis_url: str
) -> None:
    """Two attempts lie in the stopped server's socket; a third one by the caller finds the event of theirs."""
    hasty, patient = open_publisher(redis_url, timeout_s=0.2), open_publisher(redis_url, timeout_s=DEADLINE_S)

    def is_connected() -> bool:
        try:
            return hasty.publish("a", 0, id="first").offset == 1
        except BusUnavailable:
            return False  # that time is not long on a busy machine

    wait_until(is_connected, "a first event")
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BusUnavailable, match="did not answer in time"):
            hasty.publish("a", 1, id="same")
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)

    receipt = patient.publish("a", 1, id="same")

    client = open_client(redis_url)
    assert receipt.offset == 2
    assert [entry[:2] for entry in read_log(client)][1:] == [(2, b"same")]
    for opened in (hasty, patient, client):
        opened.close()


def test_a_full_redis_refuses_and_nothing_is_claimed(publisher: Publishes, redis_client: Client) -> None:
    """maxmemory: an error for one and for a batch, no receipt, no event; afterwards it goes on."""
    publisher.publish("a", 1)
    with full_memory(redis_client):
        with pytest.raises(BusRefused, match="out of memory"):
            publisher.publish("a", 2)
        with pytest.raises(PublishManyError, match="2 of 2 events were refused"):
            publisher.publish_many([("a", 3), ("a", 4)])

    assert publisher.publish("a", 5).offset == 2


def test_the_traceback_of_a_refused_connection_is_ours_alone(open_publisher: Opens) -> None:
    """Reported once, with the remedy at its end, without redis-py's own hundred lines; and without the password."""
    with open_publisher("redis://:hunter2@127.0.0.1:1/0") as publisher, pytest.raises(BusUnavailable) as caught:
        publisher.publish("a", 1)

    told = "".join(traceback.format_exception(caught.value))
    assert told.count("Traceback") == 1
    assert not re.search(r"site-packages.redis\b", told)
    error, advice = told.splitlines()[-2:]
    assert error.endswith("the bus is unavailable: 127.0.0.1:1: connection refused")
    assert advice.startswith("start Redis there")
    assert "hunter2" not in error + advice


RIGHTS = "-@all +fcall_ro +time +hmget +hset +hsetnx +unlink +xadd +xinfo +xrange +publish +zcard +zrange"


@pytest.mark.parametrize("many", [False, True], ids=["one", "batch"])
def test_a_user_who_may_not_append_unchecked_publishes_by_the_strict_function(
    open_publisher: Opens, redis_client: Client, redis_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture, many: bool
) -> None:
    """The events get their receipts, in order, and the log says so in one sentence, once."""
    ensure_loaded(redis_client)
    call(redis_client, "ACL", "SETUSER", "shop", "on", ">pass", "~hg:*", "&hg:*", *RIGHTS.split(), "+fcall|headgate_publish")
    with open_publisher(f"unix://shop:pass@{redis_server.url.removeprefix('unix://')}") as publisher:
        for number in range(3):
            if many:
                publisher.publish_many([("a", number), ("b", number)])
            else:
                publisher.publish("a", number)
                publisher.publish("b", number)

    assert [(topic, data) for *_, topic, data in read_log(redis_client)] == [
        (topic, b"%d" % number) for number in range(3) for topic in (b"a", b"b")
    ]
    said = [record.getMessage() for record in caplog.records if "headgate_append" in record.getMessage()]
    assert len(said) == 1
    assert "allow +fcall|headgate_append" in said[0]


def test_a_user_who_may_publish_nothing_is_told_what_redis_said(
    open_publisher: Opens, redis_client: Client, redis_server: EmbeddedRedis
) -> None:
    """A right that both functions need is no reason to try the other one again and again."""
    ensure_loaded(redis_client)
    call(redis_client, "ACL", "SETUSER", "shop", "on", ">pass", "~hg:*", "&hg:*", *RIGHTS.split(), "+fcall", "-xadd")
    with open_publisher(f"unix://shop:pass@{redis_server.url.removeprefix('unix://')}") as publisher:
        with pytest.raises(BusRefused, match="no permission"):
            publisher.publish("a", 1)
        with pytest.raises(PublishManyError):
            publisher.publish_many([("a", 1), ("a", 2)])
        call(redis_client, "ACL", "SETUSER", "shop", "+xadd")
        publisher.publish("a", 3)

    assert [data for *_, data in read_log(redis_client)] == [b"3"]
