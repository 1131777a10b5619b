"""Subscriptions in Redis that follow the clients of a gateway: real commands, real copies, real rights, two real gateways.

The listener runs in the test's own process (tests/support/bus_here.py); the gateways further down are processes. tests/unit/bus
has the listener on a model of Redis, and tests/unit/node a gateway on it.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from headgate.events.topic import matches
from headgate.redis.client import Client, call
from headgate.redis.functions import SOURCE, VERSION
from headgate.redis.keys import channel, user_channel
from headgate.services.publisher import Publisher
from tests.fault.checker import History, Subscribed, assert_kept
from tests.fault.many_clients import Swarm
from tests.fault.redis_process import RedisProcess
from tests.support.bus_here import StartRedisBus
from tests.support.gateway_process import GatewayProcess
from tests.support.model_redis import NAMESPACE
from tests.support.redis_server import wait_until

N = NAMESPACE
TOPICS = ["orders.1", "orders.2", "orders.1.paid", "bills.1", "bills.1.paid", "users.7", "users.7.mail", "users.8.mail.new"]


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher on the Redis of this test run."""
    with closing(Publisher(redis_url, namespace=N)) as publisher:
        yield publisher


def listened_to(client: Client, *topics: str) -> dict[str, int]:
    """How many connections listen to the channels of these topics, and to globs."""
    counts = call(client, "PUBSUB", "NUMSUB", *(channel(N, topic) for topic in topics))[1::2]
    return {**dict(zip(topics, counts, strict=True)), "globs": call(client, "PUBSUB", "NUMPAT")}


class Storm:
    """A thread that publishes to every topic in random order, as fast as Redis takes it, until the block ends."""

    def __init__(self, url: str, topics: list[str], seed: int, pause_s: float = 0.0) -> None:
        self._url, self._topics, self._random, self._pause_s = url, topics, random.Random(seed), pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.history = History()

    def __enter__(self) -> Storm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Publisher(self._url) as publisher:
            while not self._stop.wait(self._pause_s):
                topic, event_id = self._random.choice(self._topics), uuid.uuid4().hex
                receipt = publisher.publish(topic, {"id": event_id}, id=event_id)
                self.history.published(receipt.epoch, receipt.offset, topic, event_id)


# Active ------------------------------------------------------------------------------------------------------------------


def test_subscriptions_follow_the_patterns_and_go_back_to_nothing(redis_bus: StartRedisBus, redis_client: Client) -> None:
    """A channel for a topic, a glob for a wildcard, none for a topic inside a glob; each while a client has the pattern."""
    bus = redis_bus()
    assert listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 0, "globs": 0}
    bus.bus.acquire("orders.1")
    bus.bus.acquire("bills.1")
    bus.wait_for(
        lambda: listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 1, "bills.1": 1, "globs": 0}, "the topics"
    )
    bus.bus.acquire("orders.*")
    bus.bus.acquire("orders.*")
    bus.wait_for(
        lambda: listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 1, "globs": 1}, "the glob alone"
    )
    bus.bus.release("orders.*")
    bus.wait_for_fences(3)
    assert listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 1, "globs": 1}
    bus.bus.release("orders.*")
    bus.wait_for(
        lambda: listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 1, "bills.1": 1, "globs": 0}, "the topics"
    )
    bus.bus.release("orders.1")
    bus.bus.release("bills.1")
    bus.wait_for(lambda: listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 0, "globs": 0}, "nothing")


# Twice -------------------------------------------------------------------------------------------------------------------


def test_a_plain_publish_through_overlapping_subscriptions_comes_once_and_the_next_alike_too(
    redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher
) -> None:
    """Three globs and a channel, so four copies from Redis, back to back. The same text published again is another event."""
    bus = redis_bus("orders.*", "*.paid", "#.1.#")
    for _ in range(3):
        call(redis_client, "PUBLISH", channel(N, "orders.1.paid"), '"plain"')
    call(redis_client, "PUBLISH", channel(N, "orders.9"), '"one copy"')
    publisher.publish("orders.1.paid", "logged")

    bus.wait_for(lambda: bus.offsets == [None, None, None, None, 1], "each once")
    bus.wait_for_fences(2)

    assert bus.offsets == [None, None, None, None, 1]
    assert call(redis_client, "PUBSUB", "NUMPAT") == 4  # and that of users, as `#.1.#` may match their topics


# Users -------------------------------------------------------------------------------------------------------------------


def test_a_user_costs_no_glob_and_gets_all_below(redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher) -> None:
    """Over one channel, with the topic of each event, beside a subscription to one of the topics."""
    bus = redis_bus("users.7.#", "users.7.mail")
    publisher.publish("mail", "mine", user="7")
    publisher.publish("mail", "another's", user="8")
    publisher.publish("users.7", "myself")
    publisher.publish("a.b.c", "deep", user="7")
    publisher.publish("users.77.mail", "a longer name")
    call(redis_client, "PUBLISH", channel(N, "users.7.mail"), '"plain"')

    bus.wait_for(lambda: len(bus.events) == 4, "four events")
    bus.wait_for_fences(2)

    assert bus.events == [
        ["users.7.mail", 1, '"mine"'],
        ["users.7", 3, '"myself"'],
        ["users.7.a.b.c", 4, '"deep"'],
        ["users.7.mail", None, '"plain"'],
    ]
    assert call(redis_client, "PUBSUB", "NUMPAT") == 0


def older_library(client: Client) -> None:
    """Load a library as it was before it knew of users' channels."""
    source = SOURCE.replace(f"local VERSION = {VERSION}\n", "local VERSION = 1\n").replace(
        "if user then call(command, head.users", "if nil then call(command, head.users"
    )
    assert source.count("if nil") == 1
    call(client, "FUNCTION", "LOAD", "REPLACE", source)


def test_an_older_library_is_replaced_before_users_are_listened_to(
    redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher
) -> None:
    """It would publish nothing on their channels."""
    older_library(redis_client)
    bus = redis_bus("users.7.#")
    publisher.publish("mail", "mine", user="7")

    bus.wait_for(lambda: bus.offsets == [1], "the event")

    assert call(redis_client, "FCALL_RO", "headgate_version", 0) == VERSION


# Rights ------------------------------------------------------------------------------------------------------------------


def test_a_redis_that_allows_only_the_whole_feed_gives_that(
    redis_bus: StartRedisBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Rights to globs are compared letter by letter."""
    whole = [f"&{channel(N, '*')}", f"&{user_channel(N, '*')}"]
    call(redis_client, "ACL", "SETUSER", "gate", "on", ">pass", "allkeys", "+@all", "resetchannels", *whole)
    bus = redis_bus("orders.*", "users.7.#", url=redis_url.replace("unix://", "unix://gate:pass@"))
    publisher.publish("orders.1", 1)
    publisher.publish("mail", "mine", user="7")

    bus.wait_for(lambda: bus.offsets == [1, 2], "both events")

    # The connection on which narrow ones were refused ends when Redis comes to see that.
    bus.wait_for(lambda: call(redis_client, "PUBSUB", "NUMPAT") == 2, "two globs")


# Two gateways ------------------------------------------------------------------------------------------------------------


class TwoGateways:
    """A Redis and two gateways on it."""

    def __init__(self, redis: RedisProcess, gateways: list[GatewayProcess]) -> None:
        self.redis, self.urls = redis, [gateway.url for gateway in gateways]


@pytest.fixture(scope="module")
def two_gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoGateways]:
    folder = tmp_path_factory.mktemp("two")
    with ExitStack() as stack:
        redis = stack.enter_context(RedisProcess(folder / "redis"))
        settings = {"HEADGATE_REDIS_URL": redis.url, "HEADGATE_FENCE_INTERVAL_S": "0.25"}
        gateways = [stack.enter_context(GatewayProcess(folder / f"gateway-{n}", settings, ("--dev",))) for n in range(2)]
        yield TwoGateways(redis, gateways)


def come_to_rest(two: TwoGateways, swarm: Swarm, history: History) -> None:
    """Publish one last event on every topic, wait until all its clients have it, check every promise."""
    last: dict[str, int] = {}
    with Publisher(two.redis.url) as publisher:
        for topic in TOPICS:
            event_id = uuid.uuid4().hex
            receipt = publisher.publish(topic, {"id": event_id}, id=event_id)
            history.published(receipt.epoch, receipt.offset, topic, event_id)
            last[topic] = receipt.offset
    swarm.wait(
        lambda: all(
            client.up
            and client.offset
            >= max((at for topic, at in last.items() if any(matches(p, topic) for p in client.patterns)), default=0)
            for client in swarm.clients
        ),
        "every client to have its last event",
    )
    assert_kept(history, swarm.records, (receipt.epoch, receipt.offset))


def test_clients_of_two_gateways_miss_nothing_behind_their_acknowledgements(two_gateways: TwoGateways) -> None:
    """They subscribe, unsubscribe, leave and come back at the other gateway, in a storm of publishes."""
    seed = 8
    steps = random.Random(seed)
    narrow = [
        *("orders.1", "orders.*", "orders.#", "*.1", "#.paid", "orders.1.paid", "bills.1", "bills.#.paid"),
        *("users.7.#", "users.7.mail", "users.8.mail.*", "users.*.mail.#", "users.7"),
    ]
    swarm = Swarm(two_gateways.urls, 12, lambda index: [narrow[index % len(narrow)]])
    with closing(swarm):
        swarm.open()
        with Storm(two_gateways.redis.url, TOPICS, seed, pause_s=0.002) as storm:
            for _ in range(120):
                client = steps.choice(swarm.clients)
                if steps.random() < 0.15:
                    client.leave()
                    swarm.wait(lambda client=client: client._transport is None, "a client to be gone")  # type: ignore[misc]
                    client.address = steps.choice(swarm.clients).address
                    swarm.run(client.open())
                    swarm.wait(lambda client=client: client.up, "a client to be welcomed")  # type: ignore[misc]
                elif client.patterns and steps.random() < 0.5:
                    swarm.each(lambda one: one.unsubscribe(steps.choice(sorted(one.patterns))), [client])
                else:
                    before = sum(isinstance(entry, Subscribed) for entry in client.record.entries)
                    pattern = steps.choice(narrow)
                    swarm.each(lambda one, pattern=pattern: one.subscribe(pattern), [client])  # type: ignore[misc]
                    swarm.wait(
                        lambda client=client, before=before: (
                            sum(isinstance(e, Subscribed) for e in client.record.entries) > before
                        ),  # type: ignore[misc]
                        "a subscription to be acknowledged",
                    )
            wait_until(lambda: len(storm.history.events) > 100, "100 events")
        come_to_rest(two_gateways, swarm, storm.history)
