"""F33 and F34: another server is the primary, and the old one lives on, while publishers, consumers and gateways follow.

Nothing breaks a connection. The old primary answers all of them, and takes events that no client will see, after a failover
that an operator asked the Sentinels for, or where an address (a virtual IP, a name, a proxy) leads elsewhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest

from headgate.consumers import Delivery
from headgate.diagnosis.live_events import LiveEvents
from headgate.errors import BusUnavailable, HeadgateError, NotDurable
from headgate.redis.client import open_client
from headgate.redis.keys import log_key
from headgate.redis.lineage import Fate
from headgate.services.publisher import Durable, Publisher, Receipt
from tests.fault.consuming import consuming
from tests.fault.figures import Figures
from tests.fault.grounds import role
from tests.fault.pair import Pair
from tests.fault.site import NAMESPACE, Load, wait_for
from tests.fault.until_stopped import UntilStopped
from tests.support.gateway_process import GatewayFailed, GatewayProcess
from tests.support.raw_client import RawClient
from tests.support.raw_log import read_log
from tests.support.redis_process import RedisProcess, Server
from tests.support.sentinels import PRIMARY, start_sentinels

ROUNDS = {"short": 1, "full": 20}
SECRET = "a-secret-of-forty-characters-27182818284"
TOPIC = "rooms.7"
PER_S = 400
DEADLINE_S = 60.0
TORN = "leads to two Redis primaries by turns"


class Publishing(UntilStopped):
    """A thread that publishes numbers until the end of the block, one after the other, and never twice.

    Attributes:
        acknowledged: each receipt, and when it came (monotonic, s). No receipt: no answer, or less durability than wished.
    """

    def __init__(self, url: str, durable: Durable = None) -> None:
        super().__init__()
        self.acknowledged: list[tuple[float, Receipt]] = []
        self._publisher = Publisher(url, durable=durable)

    def end(self) -> None:
        super().end()
        self._publisher.close()

    def epoch(self) -> str:
        """The epoch of the last receipt."""
        return self.acknowledged[-1][1].epoch if self.acknowledged else ""

    def _work(self) -> None:
        number = 0
        while not self._stopped.wait(1 / PER_S):
            try:
                receipt = self._publisher.publish(TOPIC, number)
            except (BusUnavailable, NotDurable):
                continue
            finally:
                number += 1
            self.acknowledged.append((time.monotonic(), receipt))


class Consuming(ExitStack):
    """A consumer of everything in this process. `done`: the events that it has done, by epoch and offset."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.done: set[tuple[str | None, int | None]] = set()

        def note(delivery: Delivery) -> None:
            self.done.add((delivery.epoch, delivery.offset))

        self._runner = self.enter_context(consuming(url, "writing", note, start="oldest", lease_s=2.0))

    @property
    def trouble(self) -> str | None:
        """The trouble of its workers."""
        return self._runner.status()[1]

    def is_at(self, epoch: str) -> bool:
        """Whether it has done an event of an epoch."""
        return any(each == epoch for each, _ in list(self.done))


def times(conditions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Wait until each of these is true; return when that was seen (monotonic, s)."""
    seen: dict[str, float] = {}

    def look() -> bool:
        now_s = time.monotonic()
        seen.update({name: now_s for name, condition in conditions.items() if name not in seen and condition()})
        return len(seen) == len(conditions)

    wait_for(look, f"all of {', '.join(conditions)} at the new primary", DEADLINE_S)
    return seen


def logged(url: str) -> set[tuple[str, int]]:
    """Return the ids and offsets of all events in the log of a server."""
    with open_client(url, timeout_s=DEADLINE_S) as client:
        return {(event_id.decode(), offset) for offset, event_id, *_ in read_log(client)}


def assert_accounted(publishing: Publishing, url: str, server_url: str, from_s: float, until_s: float) -> int:
    """Every receipt is in the log, or `check` says that it was rolled back; return how many were.

    These were given between `from_s`, when the new primary still had everything, and `until_s`, when the publisher was there.
    """
    log = logged(server_url)
    lost = [(at_s, receipt) for at_s, receipt in publishing.acknowledged if (receipt.id, receipt.offset) not in log]
    others = [(at_s - from_s, at_s - until_s, receipt) for at_s, receipt in lost if not from_s <= at_s <= until_s]
    assert not others, "lost events that were acknowledged before, or afterwards"
    with Publisher(url) as publisher:
        for at_s, receipt in [*lost[:3], *lost[-3:]]:
            assert publisher.check(receipt) is Fate.ROLLED_BACK, f"acknowledged at {at_s}"
        for _, receipt in [publishing.acknowledged[0], publishing.acknowledged[-1]]:
            assert publisher.check(receipt) is Fate.IN_LOG
    return len(lost)


def when_in_step(primary: Server, *replicas: Server) -> float:
    """Wait until the replicas have the present data of their primary; return when that was (monotonic, s)."""
    now_s = time.monotonic()
    written = primary.call("INFO", "replication")["master_repl_offset"]

    def has_it(replica: Server) -> bool:
        return bool(replica.call("INFO", "replication")["slave_repl_offset"] >= written)

    wait_for(lambda: all(map(has_it, replicas)), "the replicas to have it", DEADLINE_S)
    return now_s


@contextmanager
def watching(folder: Path, url: str) -> Iterator[RawClient]:
    """Start a gateway, and yield a client of it that gets the events."""
    settings = {"HEADGATE_REDIS_URL": url, "HEADGATE_TOKEN_SECRET": SECRET}
    token = jwt.encode({"sub": "ana", "exp": 2**31, "aud": "headgate", "subscribe": ["#"]}, SECRET)
    with (
        GatewayProcess(folder, settings) as process,
        closing(RawClient(process.url, {"token": token, "subscriptions": [{"pattern": TOPIC}]})) as client,
    ):
        client.wait_for(partial(client.named, "welcome"), "the welcome")
        yield client


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_planned_failover_is_followed_at_once(tmp_path: Path, load: Load, figures: Figures, replicas: int) -> None:
    """The old primary takes events until the Sentinels make it a replica, which may be ten seconds later."""
    rounds = [fail_over(tmp_path / str(number), replicas) for number in range(ROUNDS[load.name])]
    what = f"planned failover with {replicas} replica{'s' * (replicas > 1)}"
    slowest_s, lost = max(took_s for took_s, _ in rounds), max(lost for _, lost in rounds)
    figures("F33", f"{what}: publisher, gateway and consumer at the new primary, after its promotion", slowest_s, "s", "≤ 1.5 s")
    figures("F33", f"{what}: receipts for events that were lost, each of them reported", lost, "", "those of that time")
    figures("F33", f'{what}: the same with durable="all"', 0, "", "0 (checked)")


def fail_over(folder: Path, replicas: int) -> tuple[float, int]:
    """Ask for a failover under load; return how long after the promotion all were there (s), and how many receipts were lost."""
    with ExitStack() as ended:
        site = ended.enter_context(start_sentinels(folder / "redis", replicas=replicas))
        wait_for(site.is_known, "the Sentinels to know all", DEADLINE_S)
        client = ended.enter_context(watching(folder / "gateway", site.url))
        consuming = ended.enter_context(Consuming(site.url))
        publishing = ended.enter_context(Publishing(site.url))
        durably = ended.enter_context(Publishing(site.url, "all"))
        wait_for(lambda: min(len(publishing.acknowledged), len(durably.acknowledged)) > 50, "receipts", DEADLINE_S)
        before = publishing.epoch()
        wait_for(lambda: consuming.is_at(before), "the consumer to begin", DEADLINE_S)

        in_step_s = from_s = when_in_step(*site.servers)
        site.sentinels[1].call("SENTINEL", "FAILOVER", PRIMARY)

        def promoted() -> list[Server]:
            nonlocal from_s
            looked_s = time.monotonic()
            found = [server for server in site.servers[1:] if role(server) == "master"]
            from_s = from_s if found else looked_s
            return found

        wait_for(promoted, "a replica to be promoted", DEADLINE_S)
        [new] = promoted()
        wait_for(lambda: publishing.epoch() != before, "a receipt of the new primary", DEADLINE_S)
        publisher_s, first = next((at_s, receipt) for at_s, receipt in publishing.acknowledged if receipt.epoch != before)
        assert role(site.servers[0]) == "master", "the publisher moved when the old primary refused it, and not before"

        def of_new() -> list[Receipt]:
            return [receipt for _, receipt in publishing.acknowledged if receipt.epoch == first.epoch]

        at_s = times(
            {
                "gateway": lambda: {meta["id"] for _, _, meta in client.events[-50:]} & {receipt.id for receipt in of_new()},
                "consumer": lambda: consuming.is_at(first.epoch),
                "durable publisher": lambda: durably.epoch() == first.epoch,
            }
        )
        publishing.end()
        durably.end()
        lost = assert_accounted(publishing, site.url, new.url, in_step_s, publisher_s)
        assert assert_accounted(durably, site.url, new.url, in_step_s, 0.0) == 0
        places = {(receipt.epoch, receipt.offset) for receipt in of_new()}
        wait_for(lambda: places <= consuming.done, "the consumer to do every event of the new primary", DEADLINE_S)
        return max(publisher_s, at_s["gateway"], at_s["consumer"]) - from_s, lost


@pytest.mark.parametrize("planned", [False, True], ids=["old primary lives on", "FAILOVER"])
def test_an_address_that_leads_elsewhere_is_followed(pair: Pair, figures: Figures, planned: bool) -> None:
    """The relay leads new connections to the new primary; open ones stay, and nothing breaks them.

    Redis' own FAILOVER pauses writes until the replica has everything, and makes the old primary a replica, so nothing is lost.
    """
    with ExitStack() as ended:
        pair.begin_to_follow()
        old, new, url = pair.primary, pair.replica, pair.url
        consuming = ended.enter_context(Consuming(url))
        publishing = ended.enter_context(Publishing(url))
        wait_for(lambda: len(publishing.acknowledged) > 50, "receipts", DEADLINE_S)
        before = publishing.epoch()
        wait_for(lambda: consuming.is_at(before), "the consumer to begin", DEADLINE_S)

        in_step_s = when_in_step(old, new)
        from_s = time.monotonic()
        if planned:
            old.call("FAILOVER", "TO", "127.0.0.1", new.port, "TIMEOUT", 10000)
            wait_for(lambda: (role(old), role(new)) == ("slave", "master"), "the failover", DEADLINE_S)
        else:
            new.call("REPLICAOF", "NO", "ONE")
        pair.redirect(new)
        wait_for(lambda: publishing.epoch() != before, "a receipt of the new primary", DEADLINE_S)
        publisher_s, first = next((at_s, receipt) for at_s, receipt in publishing.acknowledged if receipt.epoch != before)
        at_s = times({"consumer": lambda: consuming.is_at(first.epoch)})
        publishing.end()
        lost = assert_accounted(publishing, url, new.url, in_step_s, publisher_s)
        of_new = {(receipt.epoch, receipt.offset) for _, receipt in publishing.acknowledged if receipt.epoch == first.epoch}
        wait_for(lambda: of_new <= consuming.done, "the consumer to do every event of the new primary", DEADLINE_S)
    slowest_s = max(publisher_s, at_s["consumer"]) - from_s
    if planned:
        assert lost == 0
    what = "an address leads elsewhere after FAILOVER" if planned else "an address leads elsewhere, the old primary lives on"
    figures("F34", f"{what}: publisher and consumer are there", slowest_s, "s", "≤ 5 s")
    figures(
        "F34",
        f"{what}: receipts for events that were lost, each of them reported",
        lost,
        "",
        "0" if planned else "those of that time",
    )


@pytest.mark.parametrize("planned", [False, True], ids=["the end is lost", "FAILOVER"])
def test_a_batch_whose_primary_is_demoted_half_way_arrives_whole(pair: Pair, planned: bool) -> None:
    """The events on the old primary are found by their ids or published again, and the rest follows, each once, in order."""
    count = 4000
    with ExitStack() as ended:
        pair.begin_to_follow()
        old, new, relay = pair.primary, pair.replica, pair.relay
        publisher = ended.enter_context(Publisher(pair.url, timeout_s=DEADLINE_S))
        publisher.publish(TOPIC, -1)
        relay.throttle(300_000)
        batch = [(TOPIC, {"number": number, "filling": "x" * 500}) for number in range(count)]
        with ThreadPoolExecutor() as pool:
            receipts = pool.submit(publisher.publish_many, batch)
            wait_for(lambda: old.call("XLEN", log_key(NAMESPACE)) > count // 10, "a part of the batch to be there", DEADLINE_S)
            if planned:
                old.call("FAILOVER", "TO", "127.0.0.1", new.port, "TIMEOUT", 10000)
                wait_for(lambda: (role(old), role(new)) == ("slave", "master"), "the failover", DEADLINE_S)
            else:
                new.call("REPLICAOF", "NO", "ONE")
                old.call("REPLICAOF", "127.0.0.1", new.port)
            taken = new.call("XLEN", log_key(NAMESPACE))
            assert taken < count, "the batch was there before its primary was demoted"
            relay.throttle(None)
            pair.redirect(new)
            places = [receipt.offset for receipt in receipts.result(DEADLINE_S)]
        assert places == sorted(set(places))
        assert len(places) == count
        found = logged(new.url)
        assert {(receipt.id, receipt.offset) for receipt in receipts.result()} <= found
        assert len(found) == count + 1


@pytest.mark.parametrize(("moves", "says"), [(True, "leads to another Redis server"), (False, "did not answer in time")])
def test_live_events_end_where_nothing_more_would_come(pair: Pair, moves: bool, says: str) -> None:
    """The old primary keeps its connection, without another event; or a partition does, without another byte."""
    pair.begin_to_follow()
    with Publisher(pair.url) as publisher, closing(LiveEvents(pair.url, NAMESPACE, "#")) as live:
        live.listen()
        publisher.publish(TOPIC, 1)
        events = filter(None, live.read())
        assert [topic for topic, _ in next(events)] == [TOPIC]
        if moves:
            pair.replica.call("REPLICAOF", "NO", "ONE")
            pair.redirect(pair.replica)
        else:
            pair.relay.pause()
        with pytest.raises(BusUnavailable, match=says):
            next(events)


def test_a_name_with_the_addresses_of_two_primaries_is_one_clear_error(pair: Pair, tmp_path: Path) -> None:
    """Half of each process's publishes would reach half of the others. It is taken again when the name leads to one."""
    with ExitStack() as ended:
        one, other, url = pair.primary, pair.replica, pair.url
        with Publisher(other.url) as publisher:
            publisher.publish(TOPIC, "of the other")
        publisher = ended.enter_context(Publisher(url))
        publisher.publish(TOPIC, "before")
        gateway = ended.enter_context(
            GatewayProcess(tmp_path / "gateway", {"HEADGATE_REDIS_URL": url, "HEADGATE_TOKEN_SECRET": SECRET})
        )
        consuming = ended.enter_context(Consuming(url))
        pair.redirect(one, other)

        def refused() -> bool:
            try:
                publisher.publish(TOPIC, "torn")
            except HeadgateError as error:
                return TORN in error.message
            return False

        wait_for(refused, f"a publisher that says: {TORN}", DEADLINE_S)
        wait_for(lambda: TORN in (consuming.trouble or ""), "a consumer that says so", DEADLINE_S)
        gateway.wait_for_line(re.compile(TORN), DEADLINE_S)
        pair.redirect(one)
        wait_for(lambda: not refused(), "an event that is taken", DEADLINE_S)


def test_a_replica_as_the_primary_is_one_clear_error(tmp_path: Path) -> None:
    """Publisher, consumer and gateway report the role, and the right address."""
    with RedisProcess(tmp_path / "redis") as replica:
        replica.call("REPLICAOF", "127.0.0.1", 1)
        with Publisher(replica.url) as publisher, pytest.raises(BusUnavailable, match="it is a read-only replica") as refused:
            publisher.publish(TOPIC, 1)
        assert any("name the primary" in line for line in refused.value.lines())
        with pytest.raises(BusUnavailable, match="it is a read-only replica"), Consuming(replica.url):
            pass
        gateway = GatewayProcess(tmp_path / "gateway", {"HEADGATE_REDIS_URL": replica.url, "HEADGATE_TOKEN_SECRET": SECRET})
        with pytest.raises(GatewayFailed, match=r"is a replica of 127\.0\.0\.1:1; gateways and publishers need the primary"):
            gateway.start()


def test_a_name_with_two_addresses_leads_nobody_to_the_replica(pair: Pair) -> None:
    """Each new connection leads to the primary and to the replica by turns, as with a name that has both addresses."""
    with ExitStack() as ended:
        pair.begin_to_follow()
        primary, relay, url = pair.primary, pair.relay, pair.url
        consuming = ended.enter_context(Consuming(url))
        publishing = ended.enter_context(Publishing(url))
        wait_for(lambda: len(publishing.acknowledged) > 50, "receipts", DEADLINE_S)
        pair.redirect(primary, pair.replica)
        connections = relay.accepted
        wait_for(lambda: relay.accepted >= connections + 4, "four questions where the address leads", DEADLINE_S)
        publishing.end()
        assert len({receipt.epoch for _, receipt in publishing.acknowledged}) == 1
        assert not {(receipt.id, receipt.offset) for _, receipt in publishing.acknowledged} - logged(primary.url)
        places = {(receipt.epoch, receipt.offset) for _, receipt in publishing.acknowledged}
        wait_for(lambda: places <= consuming.done, "the consumer to do every event", DEADLINE_S)
