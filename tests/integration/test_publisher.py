"""The publisher against a real Redis: receipts, and honest errors with a stopped, killed, full or forbidding Redis."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate import BusRefused, HeadgateError, InvalidRequest, PayloadTooLarge, Publisher
from headgate.cli.main import main
from headgate.redis.client import Client, call
from headgate.redis.keys import log_key
from headgate.services.publisher import Receipt
from tests.support.raw_log import read_log
from tests.support.redis_process import Server
from tests.support.redis_server import record_private_redis, wait_until

KEY = log_key("notifications")


def connections_since(client: Client, own: int) -> int:
    """How many connections of Redis are younger than the one with this id, without those that other tests leave to it.

    The client itself opens another one if the question where its address leads is not answered in time.
    """
    asking = call(client, "CLIENT", "ID")
    numbers = map(int, re.findall(rb"^id=(\d+)", call(client, "CLIENT", "LIST"), re.MULTILINE))
    return sum(own < number != asking for number in numbers)


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
    """One round trip, with receipts in order, with the ids of their users; an error where Redis refused one."""
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
    assert read_log(redis_client)[2][3] == b'{"n":3}'
    assert publisher.publish_prepared([]) == []


def test_events_of_two_namespaces_are_not_published_together(publisher: Publisher) -> None:
    """All of them would go to the namespace of the first."""
    events = [publisher.prepare("a", 1, namespace=name) for name in ("one", "two")]
    with pytest.raises(InvalidRequest, match="one namespace"):
        publisher.publish_prepared(events)
    assert publisher.position("one") is None


def test_what_cannot_be_published_is_not_prepared(publisher: Publisher) -> None:
    """The errors of `publish`, before anything is sent."""
    for topic, data, event_id in (("a..b", 1, None), ("a", object(), None), ("a", 1, "no id"), ("a", "x" * 65536, None)):
        with pytest.raises(HeadgateError):
            publisher.prepare(topic, data, event_id)


def test_a_remembered_id_counts_for_every_publish(publisher: Publisher, redis_client: Client, redis_url: str) -> None:
    """One event, a batch, a prepared one, and the command line. Each finds it after the ids of 300 s are gone."""
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
    assert len(read_log(redis_client)) == 1


@pytest.mark.parametrize("wrong", [0, 86401, True, "60", 1.5])
def test_a_time_for_an_id_that_is_none_is_refused_before_anything_is_sent(publisher: Publisher, wrong: Any) -> None:
    """With the allowed values; and an unknown id needs no time."""
    for publish in (
        lambda: publisher.publish("a", 1, id="x", id_for_s=wrong),
        lambda: publisher.publish_many([("a", 1, "x")], id_for_s=wrong),
        lambda: publisher.prepare("a", 1, "x", id_for_s=wrong),
    ):
        with pytest.raises(InvalidRequest, match="seconds from 1 to 86400"):
            publish()
    with pytest.raises(InvalidRequest, match="id_for_s needs an id"):
        publisher.publish("a", 1, id_for_s=60)


def test_threads_share_a_publisher(publisher: Publisher, redis_client: Client) -> None:
    """More threads than connections, with each event once, and each receipt its own."""
    own = call(redis_client, "CLIENT", "ID")
    with ThreadPoolExecutor(24) as pool:
        receipts = list(pool.map(lambda number: publisher.publish("a", number), range(600)))

    data = {offset: int(payload) for offset, _, _, payload in read_log(redis_client)}
    assert sorted(data) == list(range(1, 601))
    assert [data[receipt.offset] for receipt in receipts] == list(range(600))
    # All are kept open. Of one that was replaced after a slow reply, Redis has perhaps not yet read the end.
    wait_until(lambda: 1 <= connections_since(redis_client, own) <= 16, "the connections are at most those of the pool")


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


@pytest.mark.parametrize("hidden", ["FCALL", "TIME", "PUBLISH"])
def test_a_server_that_hides_a_command_is_refused_with_its_name(tmp_path: Path, hidden: str) -> None:
    """A command of the publisher, of its functions, or of one of their steps."""
    refusal = pytest.raises(BusRefused, match=f"does not know the command {hidden}, or hides it")
    with Server(tmp_path, f'rename-command {hidden} ""') as server, Publisher(server.url) as publisher, refusal as refused:
        publisher.publish("a", 1)
    assert "rename-command" in refused.value.lines()[1]


def test_a_server_that_hides_a_command_which_saves_work_takes_events(tmp_path: Path) -> None:
    """As from a user who may not run it."""
    with Server(tmp_path, 'rename-command HGET ""') as server, Publisher(server.url) as publisher:
        assert [publisher.publish("a", number).offset for number in range(3)] == [1, 2, 3]


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
    """In a patched process each command has a separate connection."""
    command = [sys.executable, "-c", GREENLETS, redis_url]

    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    assert said == "True\n"


FORKS = """
import os, redis, sys
from headgate import Publisher

publisher, admin = Publisher(sys.argv[1]), redis.Redis.from_url(sys.argv[1])
publisher.publish("a", "before")
before = len(admin.client_list())
if os.fork() == 0:
    publisher.publish("a", "child")
    print(len(admin.client_list()) - before, flush=True)
    os._exit(0)
print(os.wait()[1], publisher.publish("a", "after").offset)
"""


def test_a_forked_worker_has_connections_of_its_own(redis_url: str) -> None:
    """A publisher from before a fork of a web server or Celery; the child's connections are those of `publisher` and `admin`."""
    command = [sys.executable, "-c", FORKS, redis_url]

    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    assert said == "2\n0 3\n"


def test_without_a_url_the_folders_server_is_found(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script beside a running gateway needs no configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    monkeypatch.delenv("HEADGATE_DATA_DIR", raising=False)
    record_private_redis(tmp_path / ".headgate", redis_url)
    with Publisher() as publisher:
        assert publisher.publish("a", 1).offset == 1
