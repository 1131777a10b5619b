"""The publisher against a real Redis: receipts, and honest errors when Redis is stopped, killed, full or forbidding."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate import BusRefused, BusUnavailable, HeadgateError, InvalidRequest, PayloadTooLarge, Publisher
from headgate.cli.main import main
from headgate.publisher import PublishManyError, Receipt
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import head_key, log_key
from tests.support.redis_server import DEADLINE_S, record_private_redis, wait_until, write_at_once

KEY = log_key("notifications")


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher into an empty Redis, without the library."""
    with Publisher(redis_url) as publisher:
        yield publisher


def log(client: Client, key: str = KEY) -> list[tuple[int, bytes, bytes, bytes]]:
    return [
        (int(entry.partition(b"-")[0]), fields[b"id"], fields[b"topic"], fields[b"data"])
        for entry, fields in call(client, "XRANGE", key, "-", "+")
    ]


def connections_since(client: Client, own: int) -> int:
    """How many connections Redis has that are younger than the one with this id: none of those that other tests leave to it."""
    return sum(int(number) > own for number in re.findall(rb"^id=(\d+)", call(client, "CLIENT", "LIST"), re.MULTILINE))


def test_a_receipt_is_the_position_in_the_log(publisher: Publisher, redis_client: Client) -> None:
    """Redis holds the event where the receipt says."""
    receipts = [publisher.publish("orders.1", {"n": n}) for n in range(3)]

    assert [receipt.offset for receipt in receipts] == [1, 2, 3]
    assert {receipt.epoch.encode() for receipt in receipts} == {call(redis_client, "HGET", head_key("notifications"), "epoch")}
    assert log(redis_client) == [(n + 1, receipts[n].id.encode(), b"orders.1", b'{"n":%d}' % n) for n in range(3)]
    assert not any(receipt.duplicate for receipt in receipts)


def test_an_event_carries_its_trace_and_the_name_of_its_user(publisher: Publisher, redis_client: Client) -> None:
    """However it is published. Neither counts for an id, and a malformed trace is dropped."""
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    publisher.publish("a", 0, by="Ana \xe9", traceparent=parent)
    publisher.publish("a", 1, id="x", traceparent=parent.upper())
    assert publisher.publish("a", 1, id="x", traceparent=parent).duplicate
    publisher.publish_many([("a", 2), ("a", 3)], traceparent=parent)
    publisher.publish_prepared(
        [publisher.prepare("a", 4, by="Bob"), publisher.prepare("a", 5, traceparent=parent), publisher.prepare("a", 6)]
    )
    found = [(fields.get(b"traceparent"), fields.get(b"publisher")) for _, fields in call(redis_client, "XRANGE", KEY, "-", "+")]
    traced = (parent.encode(), None)
    assert found == [(parent.encode(), b"Ana%20%C3%A9"), (None, None), traced, traced, (None, b"Bob"), traced, (None, None)]


def test_prepared_events_stand_each_for_itself(publisher: Publisher, redis_client: Client) -> None:
    """One round trip: receipts in order, with the ids of their users; an error where Redis refused one."""
    publisher.publish("a", 0, id="known", by="ana")
    call(redis_client, "FCALL", "headgate_configure", 1, KEY, 100, 60000, 10)
    events = [
        publisher.prepare("a", 1, "known", by="ana"),
        publisher.prepare("a", "x" * 9),
        publisher.prepare("a", 2, "known", by="bob"),
        publisher.prepare("b", {"n": 3}),
    ]
    first, refused, second, third = publisher.publish_prepared(events)
    assert isinstance(refused, PayloadTooLarge)
    assert isinstance(first, Receipt)
    assert (first.offset, first.duplicate, first.id) == (1, True, "known")
    assert isinstance(second, Receipt)
    assert (second.offset, second.duplicate) == (2, False)
    assert isinstance(third, Receipt)
    assert (third.offset, third.id, events[3].size_bytes) == (3, events[3].id, len(b'{"n":3}'))
    assert log(redis_client)[2][3] == b'{"n":3}'
    assert publisher.publish_prepared([]) == []


def test_what_cannot_be_published_is_not_prepared(publisher: Publisher) -> None:
    """The errors of `publish`, before anything is sent."""
    for topic, data, event_id in (("a..b", 1, None), ("a", object(), None), ("a", 1, "no id"), ("a", "x" * 65536, None)):
        with pytest.raises(HeadgateError):
            publisher.prepare(topic, data, event_id)


def test_an_id_is_published_once(publisher: Publisher, redis_client: Client) -> None:
    """The second receipt points to the first event."""
    first = publisher.publish("a", 1, id="once")

    again = publisher.publish("a", 1, id="once")

    assert again == Receipt(first.epoch, first.offset, True, "once")
    assert len(log(redis_client)) == 1


def test_ids_of_users_never_meet_those_of_others(publisher: Publisher, redis_client: Client) -> None:
    """Any name, of any length: each user's second publish is a duplicate of the own first."""
    publishers = [None, "ana", "Ana", "an:a", "ana/", "é" * 255]

    firsts = [publisher.publish("a", name, id="same", by=name) for name in publishers]

    assert [receipt.offset for receipt in firsts] == [1, 2, 3, 4, 5, 6]
    again = [publisher.publish("a", name, id="same", by=name) for name in publishers]
    assert [(receipt.offset, receipt.duplicate) for receipt in again] == [(offset, True) for offset in range(1, 7)]


def test_each_namespace_is_a_log_of_its_own(publisher: Publisher, redis_client: Client) -> None:
    """With or without Socket.IO's slash."""
    publisher.publish("a", 1)

    assert publisher.publish("a", 2, namespace="/other").offset == 1
    assert [data for *_, data in log(redis_client, log_key("other"))] == [b"2"]


def test_a_batch_is_published_in_order(publisher: Publisher, redis_client: Client) -> None:
    """Items with and without id, a receipt for each."""
    publisher.publish("a", 0, id="known")

    receipts = publisher.publish_many([("a", 1), ("b", 2, "new"), ("c", 3, None), ("a", 4, "known")])

    assert [(receipt.offset, receipt.duplicate) for receipt in receipts] == [(2, False), (3, False), (4, False), (1, True)]
    assert [receipt.id for receipt in receipts][1::2] == ["new", "known"]
    assert [topic for _, _, topic, _ in log(redis_client)] == [b"a", b"a", b"b", b"c"]


def test_a_batch_that_is_refused_in_part_says_which(publisher: Publisher, redis_client: Client) -> None:
    """The namespace's limit is lower than the publisher's: receipts for what is in the log, errors for the rest."""
    publisher.publish("a", 0)
    call(redis_client, "FCALL", "headgate_configure", 1, KEY, 100, 60000, 10)

    with pytest.raises(PublishManyError) as caught:
        publisher.publish_many([("a", 1), ("a", "x" * 9), ("a", 2)])

    first, second, third = caught.value.outcomes
    assert isinstance(first, Receipt)
    assert isinstance(second, PayloadTooLarge)
    assert isinstance(third, Receipt)
    assert second.parts == {"size": 11, "limit": 10, "where": "bus"}
    assert [data for *_, data in log(redis_client)] == [b"0", b"1", b"2"]


def test_a_full_batch_is_one_round_trip(publisher: Publisher, redis_client: Client) -> None:
    """Ten thousand events, contiguous."""
    receipts = publisher.publish_many(("a", n) for n in range(10_000))

    assert [receipt.offset for receipt in receipts] == list(range(1, 10_001))


def test_lost_functions_are_loaded_again(publisher: Publisher, redis_client: Client) -> None:
    """An empty Redis after a restart, say: neither way of publishing notices."""
    publisher.publish("a", 1)
    call(redis_client, "FUNCTION", "FLUSH")
    assert publisher.publish("a", 2).offset == 2
    call(redis_client, "FUNCTION", "FLUSH")

    assert [receipt.offset for receipt in publisher.publish_many([("a", 3), ("a", 4)])] == [3, 4]


def test_a_killed_connection_costs_nothing(publisher: Publisher, redis_client: Client) -> None:
    """One retry on a fresh connection, and the event is there once."""
    for number in range(5):
        publisher.publish("a", number)
        call(redis_client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert [receipt.offset for receipt in publisher.publish_many([("a", 5), ("a", 6)])] == [6, 7]


def test_a_publish_whose_connection_breaks_before_the_answer_is_sent_once_more(redis_url: str, redis_client: Client) -> None:
    """Under the same id, so that the log has it once, whether the first attempt arrived or not."""

    def waiting() -> list[bytes]:
        return re.findall(rb"^id=(\d+) .* cmd=fcall ", call(redis_client, "CLIENT", "LIST"), re.MULTILINE)

    with Publisher(redis_url, timeout_s=DEADLINE_S) as publisher, ThreadPoolExecutor(1) as pool:
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
    assert [data for *_, data in log(redis_client)] == [b"0", b"1"]


def test_publishing_goes_on_after_a_restart(start_redis: Callable[..., EmbeddedRedis]) -> None:
    """While Redis is away every publish raises; the log, its epoch and the idempotency keys survive."""
    server = start_redis("restarted")
    with closing(open_client(server.url)) as client:
        write_at_once(client)
    publisher = Publisher(server.url, timeout_s=DEADLINE_S)
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


def test_a_stopped_redis_raises_and_the_same_id_is_not_doubled(redis_server: EmbeddedRedis, redis_url: str) -> None:
    """Two attempts lie in the stopped server's socket; a third one by the caller finds the event of theirs."""
    hasty, patient = Publisher(redis_url, timeout_s=0.2), Publisher(redis_url, timeout_s=DEADLINE_S)

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
    assert [entry[:2] for entry in log(client)][1:] == [(2, b"same")]
    for opened in (hasty, patient, client):
        opened.close()


def test_a_full_redis_refuses_and_nothing_is_claimed(publisher: Publisher, redis_client: Client) -> None:
    """maxmemory: an error for one and for a batch, no receipt, no event; afterwards it goes on."""
    publisher.publish("a", 1)
    call(redis_client, "CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(BusRefused, match="out of memory"):
            publisher.publish("a", 2)
        with pytest.raises(PublishManyError, match="2 of 2 events were refused"):
            publisher.publish_many([("a", 3), ("a", 4)])
    finally:
        call(redis_client, "CONFIG", "SET", "maxmemory", "1gb")

    assert publisher.publish("a", 5).offset == 2


def test_the_traceback_of_a_refused_connection_is_ours_alone() -> None:
    """Told once, at its end what to do, without redis-py's own hundred lines; and without the password."""
    with Publisher("redis://:hunter2@127.0.0.1:1/0") as publisher, pytest.raises(BusUnavailable) as caught:
        publisher.publish("a", 1)

    told = "".join(traceback.format_exception(caught.value))
    assert told.count("Traceback") == 1
    assert "site-packages" not in told
    error, advice = told.splitlines()[-2:]
    assert error.endswith("the bus is unavailable: 127.0.0.1:1: connection refused")
    assert advice.startswith("start Redis there")
    assert "hunter2" not in error + advice


RIGHTS = "-@all +fcall_ro +time +hmget +hset +hsetnx +unlink +xadd +xinfo +xrange +publish +zcard +zrange"


@pytest.mark.parametrize("many", [False, True], ids=["one", "batch"])
def test_a_user_who_may_not_append_unchecked_publishes_by_the_strict_function(
    redis_client: Client, redis_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture, many: bool
) -> None:
    """The events get their receipts, in order, and the log says so in one sentence, once."""
    ensure_loaded(redis_client)
    call(redis_client, "ACL", "SETUSER", "shop", "on", ">pass", "~hg:*", "&hg:*", *RIGHTS.split(), "+fcall|headgate_publish")
    with Publisher(f"unix://shop:pass@{redis_server.url.removeprefix('unix://')}") as publisher:
        for number in range(3):
            if many:
                publisher.publish_many([("a", number), ("b", number)])
            else:
                publisher.publish("a", number)
                publisher.publish("b", number)

    assert [(topic, data) for *_, topic, data in log(redis_client)] == [
        (topic, b"%d" % number) for number in range(3) for topic in (b"a", b"b")
    ]
    said = [record.getMessage() for record in caplog.records if "headgate_append" in record.getMessage()]
    assert len(said) == 1
    assert "allow +fcall|headgate_append" in said[0]


def test_an_id_that_is_to_be_remembered_counts_for_every_kind_of_publish(
    publisher: Publisher, redis_client: Client, redis_url: str
) -> None:
    """One event, a batch, a prepared one, and the command line: each finds it when the ids of 300 s are gone."""
    first = publisher.publish("orders.1", 1, id="row-1", id_for_s=86400)
    call(redis_client, "UNLINK", *call(redis_client, "KEYS", "hg:*:id:[0-9]*"))
    again = [
        publisher.publish("orders.1", 1, id="row-1", id_for_s=86400),
        *publisher.publish_many([("orders.1", 1, "row-1"), ("orders.1", 1, "row-1")], id_for_s=3600),
        *publisher.publish_prepared([publisher.prepare("orders.1", 1, "row-1", id_for_s=60)]),
    ]
    assert [(each.offset, each.duplicate) for each in again if isinstance(each, Receipt)] == [(first.offset, True)] * 4
    words = ["publish", "orders.1", "1", "--id", "row-1", "--id-for", "60", "--redis", redis_url, "--json"]
    assert '"duplicate":true' in CliRunner().invoke(main, words, catch_exceptions=False).output
    assert len(log(redis_client)) == 1


@pytest.mark.parametrize("wrong", [0, 86401, True, "60", 1.5])
def test_a_time_for_an_id_that_is_none_is_refused_before_anything_is_sent(publisher: Publisher, wrong: Any) -> None:
    """With what is allowed; and an id that nobody knows needs no time."""
    for publish in (
        lambda: publisher.publish("a", 1, id="x", id_for_s=wrong),
        lambda: publisher.publish_many([("a", 1, "x")], id_for_s=wrong),
        lambda: publisher.prepare("a", 1, "x", id_for_s=wrong),
    ):
        with pytest.raises(InvalidRequest, match="seconds from 1 to 86400"):
            publish()
    with pytest.raises(InvalidRequest, match="goes with an id"):
        publisher.publish("a", 1, id_for_s=60)


def test_a_user_who_may_publish_nothing_is_told_what_redis_said(redis_client: Client, redis_server: EmbeddedRedis) -> None:
    """A right that both functions need is no reason to try the other one again and again."""
    ensure_loaded(redis_client)
    call(redis_client, "ACL", "SETUSER", "shop", "on", ">pass", "~hg:*", "&hg:*", *RIGHTS.split(), "+fcall", "-xadd")
    with Publisher(f"unix://shop:pass@{redis_server.url.removeprefix('unix://')}") as publisher:
        with pytest.raises(BusRefused, match="no permission"):
            publisher.publish("a", 1)
        with pytest.raises(PublishManyError):
            publisher.publish_many([("a", 1), ("a", 2)])
        call(redis_client, "ACL", "SETUSER", "shop", "+xadd")
        publisher.publish("a", 3)

    assert [data for *_, data in log(redis_client)] == [b"3"]


def test_threads_share_a_publisher(publisher: Publisher, redis_client: Client) -> None:
    """More threads than connections: each event once, each receipt its own."""
    own = call(redis_client, "CLIENT", "ID")
    with ThreadPoolExecutor(24) as pool:
        receipts = list(pool.map(lambda number: publisher.publish("a", number), range(600)))

    data = {offset: int(payload) for offset, _, _, payload in log(redis_client)}
    assert sorted(data) == list(range(1, 601))
    assert [data[receipt.offset] for receipt in receipts] == list(range(600))
    assert 1 <= connections_since(redis_client, own) <= 16


def test_close_gives_the_connections_back(redis_url: str, redis_client: Client) -> None:
    """None is left at Redis; publishing again after it opens new ones."""
    own = call(redis_client, "CLIENT", "ID")
    publisher = Publisher(redis_url)
    publisher.publish("a", 1)
    assert connections_since(redis_client, own) == 1
    publisher.close()
    publisher.close()

    wait_until(lambda: not connections_since(redis_client, own), "the connections are closed")

    assert publisher.publish("a", 2).offset == 2
    publisher.close()


GREENLETS = """
from gevent import monkey
monkey.patch_all()
import gevent, sys
from headgate import Publisher

publisher = Publisher(sys.argv[1], timeout_s=30)
jobs = [gevent.spawn(publisher.publish, "a", number) for number in range(200)]
gevent.joinall(jobs, timeout=30, raise_error=True)
print(sorted(job.value.offset for job in jobs) == list(range(1, 201)))
"""


def test_greenlets_share_a_publisher(redis_url: str) -> None:
    """In a patched process each command has a connection of its own."""
    command = [sys.executable, "-c", GREENLETS, redis_url]

    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    assert said == "True\n"


FORKS = """
import os, sys
from headgate import Publisher

publisher = Publisher(sys.argv[1])
publisher.publish("a", "before")
child = os.fork()
for number in range(50):
    publisher.publish("child" if child == 0 else "parent", number)
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1], publisher.publish("a", "after").offset)
"""


def test_a_forked_worker_has_connections_of_its_own(redis_url: str) -> None:
    """A publisher made before a web server or Celery forks: parent and child do not read each other's answers."""
    command = [sys.executable, "-c", FORKS, redis_url]

    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    assert said == "0 102\n"


def test_without_a_url_the_private_server_of_the_folder_is_found(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script beside a running gateway needs no configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    monkeypatch.delenv("HEADGATE_DATA_DIR", raising=False)
    record_private_redis(tmp_path / ".headgate", redis_url)
    with Publisher() as publisher:
        assert publisher.publish("a", 1).offset == 1
