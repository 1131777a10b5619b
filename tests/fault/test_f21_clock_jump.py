"""F21: the wall clock, of the gateway's machine and of Redis', is set an hour on and an hour back."""

import contextlib
import email.utils
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.consumers.work.store import Store, defer_for
from headgate.consumers.work.task import Task
from headgate.redis.client import open_client
from headgate.redis.keys import log_key
from headgate.redis.log import EventLog
from headgate.redis.time_watch import TimeWatch
from headgate.services.publisher import Publisher
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.preloaded import Preloaded
from tests.fault.sightings import disconnects
from tests.fault.site import Load, Site, wait_for
from tests.support.redis_process import RedisProcess

HOUR_S = 3600
LEASE_MS = 1000


@pytest.fixture
def clock(tmp_path: Path) -> Preloaded:
    """The wall clock of the processes that are started with it, which is ahead of ours by `number` seconds."""
    return Preloaded(tmp_path, "clock_shift", "CLOCK_SHIFT_FILE")


def test_a_wall_clock_that_jumps_disconnects_nobody(clock: Preloaded, tmp_path: Path, load: Load, figures: Figures) -> None:
    """Pings go on as if nothing were, and every event arrives once, in order."""
    # Pings so close that several fall into each length of time below.
    with clock.loaded():
        site = Site(tmp_path / "site", replace(load, gateways=1, clients=20), ping_interval_s=0.2, ping_timeout_s=20)
        site.__enter__()
    with contextlib.closing(site.swarm()) as swarm, contextlib.ExitStack() as ended:
        ended.push(site)
        swarm.open()
        with site.publishing() as publishing:
            for shift_s in (HOUR_S, -HOUR_S, 0):
                clock.number = shift_s
                wait_for(lambda shift_s=shift_s: abs(shift_of_gateway(site) - shift_s) < 60, "the gateway's clock to have jumped")
                wait_for_pings(swarm, 3)
                assert abs(shift_of_redis(site) - shift_s) < 60
            history = publishing.stop()
        site.come_to_rest(swarm, history)
        lost = disconnects(swarm)
        assert lost == []
    figures("F21", "jumps of an hour, on and back: clients disconnected", len(lost), "", "0 (checked)")


@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S], ids=["on", "back"])
def test_a_wall_clock_that_is_set_ages_nothing_in_redis(clock: Preloaded, tmp_path: Path, figures: Figures, shift_s: int) -> None:
    """No event is trimmed, no id forgotten, no delayed task due, no task in hand handed out again; nothing stalls."""
    with clock.loaded():
        redis = RedisProcess(tmp_path / "redis").start()
    client = open_client(redis.url)
    store = Store(client, redis.url, "notifications", "mail", 65536)
    with contextlib.closing(store), contextlib.closing(client), Publisher(redis.url) as publisher:
        log, watch = EventLog("notifications", client, 65536), TimeWatch()
        log.configure(10_000, 600)
        store.open("oldest")
        receipt = publisher.publish("a", 1, "an-id")
        publisher.publish("a", 2)

        def take() -> list[tuple[int, int]]:
            page = store.take(100, LEASE_MS, 1000, lambda topic: True)
            assert page is not None
            return [(leased.task.offset, leased.out) for leased in page.work]

        assert take() == [(1, 1), (2, 1)]
        store.settle([("ack", receipt.epoch, "2-0"), defer_for(Task(receipt.epoch, 2, "a", None, 1, b"2"), 600_000)])
        watch.observe(store.tick())

        clock.number = shift_s
        in_hand = take()
        watch.observe(store.tick(*watch.words()))
        again = publisher.publish("a", 1, "an-id")
        publisher.publish_many([("a", number) for number in range(3, 33)])
        kept = redis.call("XLEN", log_key("notifications"))

        later: list[tuple[int, int]] = []

        def is_handed_out_again() -> bool:
            later.extend(take())
            return (1, 2) in later

        wait_for(is_handed_out_again, "the lease of a dead instance to end")
        redis.kill()
    assert in_hand == []
    assert (again.offset, again.duplicate) == (receipt.offset, True)
    assert kept == 32
    assert [offset for offset, _ in later if offset == 2] == []
    figures("F21", f"Redis' clock {shift_s:+d} s: events trimmed, ids forgotten, tasks handed out early", 0, "", "0 (checked)")


def wait_for_pings(swarm: Swarm, count: int) -> None:
    """Wait until every client has had so many more; without them a browser would give the gateway up."""
    had = [client.pings for client in swarm.clients]
    swarm.wait(
        lambda: all(client.pings >= before + count for client, before in zip(swarm.clients, had, strict=True)),
        f"{count} pings for each client",
    )


def shift_of_gateway(site: Site) -> float:
    """Return how far ahead of ours the gateway's wall clock is, by the date in its answers."""
    with urllib.request.urlopen(f"{site.urls[0]}/livez", timeout=30) as answer:
        return email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()


def shift_of_redis(site: Site) -> float:
    """Return the same for Redis."""
    seconds, _ = site.redis.call("TIME")
    return float(seconds) - time.time()
