"""Subscriptions in Redis that follow the clients of a gateway: real commands, real copies, real rights, two real gateways.

The listener runs in a process of its own (tests/support/bus_process.py), on a real Redis; so do the gateways further down.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from headgate.publisher import Publisher
from headgate.redis.client import Client, call, open_client
from headgate.redis.functions import SOURCE, VERSION
from headgate.redis.keys import channel
from headgate.topic import matches
from tests.fault.checker import History, Subscribed, assert_kept
from tests.fault.many_clients import Swarm
from tests.fault.redis_process import RedisProcess
from tests.support.bus_process import BusProcess
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.redis_server import wait_until

StartBus = Callable[..., BusProcess]
N = "notifications"
TOPICS = ["orders.1", "orders.2", "orders.1.paid", "bills.1", "bills.1.paid", "users.7", "users.7.mail", "users.8.mail.new"]


@pytest.fixture
def start_bus(redis_url: str) -> Iterator[StartBus]:
    """Start a listener that is up: `start_bus("orders.*", linger_s=5)`. A pattern that is released goes at the next fence."""
    with ExitStack() as started:

        def start(*patterns: str, url: str = redis_url, **options: Any) -> BusProcess:
            # A log that is never trimmed: how far a stopped listener falls behind a storm is not what is tested here.
            settings = {"linger_s": 0.0, "fence_interval_s": 0.1, "log_max_events": 10_000_000, **options}
            bus = BusProcess(url, patterns, **settings)
            started.callback(bus.close)
            bus.wait_until_up()
            return bus

        yield start


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher on the Redis of this test run."""
    with closing(Publisher(redis_url)) as publisher:
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


def test_subscriptions_follow_the_patterns_and_go_back_to_nothing(start_bus: StartBus, redis_client: Client) -> None:
    """A channel for a topic, a glob for a wildcard, none for a topic inside a glob; each while a client has the pattern."""
    bus = start_bus()
    assert listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 0, "globs": 0}
    bus.acquire("orders.1")
    bus.acquire("bills.1")
    assert listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 1, "bills.1": 1, "globs": 0}
    bus.acquire("orders.*")
    bus.acquire("orders.*")
    wait_until(
        lambda: listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 1, "globs": 1}, "the glob alone"
    )
    bus.release("orders.*")
    bus.wait_for_fences(3)
    assert listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 1, "globs": 1}
    bus.release("orders.*")
    wait_until(
        lambda: listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 1, "bills.1": 1, "globs": 0}, "the topics"
    )
    bus.release("orders.1")
    bus.release("bills.1")
    wait_until(lambda: listened_to(redis_client, "orders.1", "bills.1") == {"orders.1": 0, "bills.1": 0, "globs": 0}, "nothing")


# Twice -------------------------------------------------------------------------------------------------------------------


def test_a_plain_publish_through_overlapping_subscriptions_comes_once_and_the_next_alike_too(
    start_bus: StartBus, redis_client: Client, publisher: Publisher
) -> None:
    """Three globs and a channel: four copies from Redis, back to back. The same text published again is another event."""
    bus = start_bus("orders.*", "*.paid", "#.1.#")
    for _ in range(3):
        call(redis_client, "PUBLISH", channel(N, "orders.1.paid"), '"plain"')
    call(redis_client, "PUBLISH", channel(N, "orders.9"), '"one copy"')
    publisher.publish("orders.1.paid", "logged")

    bus.wait_for(lambda: bus.offsets == [None, None, None, None, 1], "each once")
    bus.wait_for_fences(2)

    assert bus.offsets == [None, None, None, None, 1]
    assert call(redis_client, "PUBSUB", "NUMPAT") == 3


# Users -------------------------------------------------------------------------------------------------------------------


def test_a_user_costs_no_glob_and_gets_everything_below_the_name(
    start_bus: StartBus, redis_client: Client, publisher: Publisher
) -> None:
    """Over one channel, with the topic of each event, beside a subscription to one of the topics."""
    bus = start_bus("users.7.#", "users.7.mail")
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
    assert bus.quarantined() == {}


def older_library(client: Client) -> None:
    """Load a library as it was before it knew of users' channels."""
    source = SOURCE.replace(f"local VERSION = {VERSION}\n", "local VERSION = 1\n").replace(
        "if user then redis.call", "if nil then redis.call"
    )
    assert source.count("if nil") == 1
    call(client, "FUNCTION", "LOAD", "REPLACE", source)


def test_an_older_library_is_replaced_before_users_are_listened_to(
    start_bus: StartBus, redis_client: Client, publisher: Publisher
) -> None:
    """It would publish nothing on their channels."""
    older_library(redis_client)
    bus = start_bus("users.7.#")
    publisher.publish("mail", "mine", user="7")

    bus.wait_for(lambda: bus.offsets == [1], "the event")

    assert call(redis_client, "FCALL_RO", "headgate_version", 0) == VERSION


# Rights ------------------------------------------------------------------------------------------------------------------


def test_a_redis_that_allows_only_the_whole_feed_gives_that(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Rights to globs are compared letter by letter."""
    call(redis_client, "ACL", "SETUSER", "gate", "on", ">pass", "allkeys", "+@all", "resetchannels", f"&{channel(N, '*')}")
    bus = start_bus("orders.*", "users.7.#", url=redis_url.replace("unix://", "unix://gate:pass@"))
    publisher.publish("orders.1", 1)
    publisher.publish("mail", "mine", user="7")

    bus.wait_for(lambda: bus.offsets == [1, 2], "both events")

    # The connection on which narrow ones were refused ends when Redis comes to see that.
    wait_until(lambda: call(redis_client, "PUBSUB", "NUMPAT") == 1, "one glob")


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
    """Publish one last event on every topic, wait until all who want it have it, check every promise."""
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


def test_many_users_cost_redis_no_glob_and_leave_nothing_behind(two_gateways: TwoGateways) -> None:
    """A channel each, and none when they have gone."""
    redis = two_gateways.redis

    def channels() -> int:
        return len(redis.call("PUBSUB", "CHANNELS", "hg:{notifications}/users.*"))

    swarm = Swarm(two_gateways.urls, 200, lambda index: [f"users.u{index}.#"])
    with closing(swarm):
        swarm.open(at_once=200)
        # Not at once: clients of other tests leave globs behind for some seconds, and a gateway may just be connecting anew.
        wait_until(lambda: (channels(), redis.call("PUBSUB", "NUMPAT")) == (200, 0), "a channel for each, and no glob")
    wait_until(lambda: channels() == 0, "their channels to be given up")


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


def test_a_client_resumes_at_a_gateway_that_listened_to_nothing_of_it(two_gateways: TwoGateways) -> None:
    """Its position is behind the log, and ahead of the other gateway's feed; all that it missed comes, in order."""
    history = History()
    swarm = Swarm(two_gateways.urls[:1], 1, lambda index: ["crates.*"])
    with closing(swarm), Publisher(two_gateways.redis.url) as publisher:
        client = swarm.open().clients[0]

        def publish(count: int) -> int:
            for _ in range(count):
                event_id = uuid.uuid4().hex
                receipt = publisher.publish("crates.1", {"id": event_id}, id=event_id)
                history.published(receipt.epoch, receipt.offset, "crates.1", event_id)
            return receipt.offset

        first = publish(5)
        swarm.wait(lambda: client.offset == first, "five events")
        swarm.leave()
        swarm.wait(lambda: client._transport is None, "it to be gone")
        publish(5)
        port = int(two_gateways.urls[1].rpartition(":")[2])
        client.address = (client.address[0], port)
        swarm.open()
        last = publish(5)
        swarm.wait(lambda: client.offset == last, "all events")
        assert [seen.offset for seen in client.record.seen()] == [event.offset for event in history.log(client.epoch or "")]


def test_the_subscriptions_of_a_handshake_are_one_command(start_gateway: StartGateway) -> None:
    """And not a wait for each."""
    # One that nobody else uses, and that takes no late fence for a dead connection: both would subscribe to something else.
    gateway = start_gateway({"HEADGATE_FENCE_INTERVAL_S": "60"}, "--dev")
    with (
        closing(open_client(f"unix://{gateway.folder}/data/redis.sock")) as redis,
        closing(Swarm([gateway.url], 1, lambda index: [f"handshake.{number}" for number in range(30)])) as swarm,
    ):
        call(redis, "CONFIG", "RESETSTAT")
        swarm.open()
        assert call(redis, "INFO", "commandstats")["cmdstat_subscribe"]["calls"] == 1


def test_a_subscription_waits_while_redis_is_stopped_and_misses_nothing(two_gateways: TwoGateways, tmp_path: Path) -> None:
    """It is acknowledged when the connection is known to be dead, or Redis has confirmed; either way all behind it comes."""
    history = History()
    swarm = Swarm(two_gateways.urls, 2, lambda index: ["orders.1"])
    with closing(swarm), Publisher(two_gateways.redis.url) as publisher:
        swarm.open()
        two_gateways.redis.pause()
        try:
            swarm.each(lambda client: client.subscribe("bills.*"))
            began_s = time.monotonic()
            swarm.wait(
                lambda: all(_told(client, "bills.*") for client in swarm.clients) or time.monotonic() - began_s > 3, "a while"
            )
        finally:
            two_gateways.redis.go_on()
        swarm.wait(lambda: all(_told(client, "bills.*") for client in swarm.clients), "the acknowledgements")
        for number in range(20):
            receipt = publisher.publish("bills.1", {"id": f"b{number}"}, id=f"b{number}")
            history.published(receipt.epoch, receipt.offset, "bills.1", f"b{number}")
        swarm.wait(lambda: all(client.offset == receipt.offset for client in swarm.clients), "the events")
        assert_kept(history, swarm.records, (receipt.epoch, receipt.offset))


def _told(client: Any, pattern: str) -> bool:
    return any(isinstance(entry, Subscribed) and entry.pattern == pattern for entry in client.record.entries)
