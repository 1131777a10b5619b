"""F6: browsers that read 10 KB/s, one for each overflow policy, among others that read; and one that stalls at a high rate."""

import contextlib
import time
from collections.abc import Callable

import pytest

from tests.fault.checker import History, Noted, Record
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import Site, publish_burst, wait_for
from tests.fault.until_stopped import UntilStopped
from tests.fault.usage import resident_bytes

BURST_BYTES_PER_S = 10_000
# After the burst, as in the short form the kernel's share of a queue (some 100 KB) must not take ten seconds to drain.
SLOW_BYTES_PER_S = {"full": 10_000, "short": 60_000}


@pytest.mark.parametrize("policy", ["catch_up", "drop", "latest"])
def test_a_slow_browser_loses_only_what_its_policy_says_and_is_told(
    policy: str, site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Sent and reported events add up exactly to what was published, and no other client waits for it."""
    swarm = start_swarm()
    slow = Swarm(site.urls[:1], 2, lambda index: ["load.#"], overflow=policy, receive_buffer_bytes=4096, name=policy).open()
    with contextlib.closing(slow), site.publishing() as publishing:
        publishing.wait_for(20)
        memory_before = resident_bytes(site.gateways[0].pid)
        slow.each(lambda client: client.throttle(BURST_BYTES_PER_S))
        publish_burst(site.redis.url, publishing.history, 1500, site.load.payload_bytes)
        slow.each(lambda client: client.throttle(SLOW_BYTES_PER_S[site.load.name]))
        slow.wait(lambda: all(_noted(record, "backpressure on") for record in slow.records), "the queue to be full")
        time.sleep(min(site.load.offline_s, 10))  # the length of the fault
        grown = resident_bytes(site.gateways[0].pid) - memory_before
        slow.each(lambda client: client.throttle(None))
        slow.wait(lambda: all(_noted(record, "backpressure off") for record in slow.records), "the queue to be empty again")
        history = publishing.stop()
        site.come_to_rest(swarm, history)
        site.come_to_rest(slow, history)
        assert not disconnects(slow)
    for record in slow.records:
        gaps = record.gaps()
        assert {gap.reason for gap in gaps} == ({"overflow"} if policy == "drop" else set())
        if policy == "catch_up":
            assert len(record.seen()) >= 1500
    figures("F6", f"{policy}: growth of the gateway per slow browser", grown / len(slow.clients) / 2**20, "MiB", "≤ 1.2 MiB")
    if policy == "drop":
        first = slow.records[0]
        told = sum(gap.count or 0 for gap in first.gaps())
        figures("F6", "drop: events seen by one slow browser", len(first.seen()), "", "seen + told of = owed (checked)")
        figures("F6", "drop: events that it was told of", told, "", "seen + told of = owed (checked)")


# Events per second to one browser, and how many come while it does not read: more than queue and sockets hold.
STALL_PER_S, STALL_EVENTS = {"full": 5000, "short": 2000}, {"full": 5000, "short": 2000}


def test_a_browser_that_stalls_at_a_high_rate_is_live_again_while_events_still_come(site: Site, figures: Figures) -> None:
    """It falls back to the log, catches up faster than events come, and loses nothing."""
    busy = Swarm(site.urls[:1], 1, lambda index: ["load.#"], name="busy").open()
    with contextlib.closing(busy), _Stream(site, STALL_PER_S[site.load.name]) as stream:
        stream.wait_for(500)
        busy.each(lambda client: client.stall())
        stream.wait_for(STALL_EVENTS[site.load.name])
        busy.each(lambda client: client.read_on())
        took_s = busy.wait(lambda: _noted(busy.records[0], "backpressure off"), "the browser to be live again")
        history = stream.stop()
        site.come_to_rest(busy, history)
        assert not disconnects(busy)
    assert not busy.records[0].gaps()
    figures("F6", "a stall of one browser at a high rate: live again after", took_s, "s", "≤ 3 s, nothing lost (checked)")


class _Stream(UntilStopped):
    """Publishes events of the load's size at a rate, a hundred at a time, until `stop`."""

    def __init__(self, site: Site, per_s: float) -> None:
        super().__init__()
        self._site, self._every_s = site, 100 / per_s
        self._history, self._published = History(), 0

    def _work(self) -> None:
        for _ in self._turns(self._every_s):
            publish_burst(self._site.redis.url, self._history, 100, self._site.load.payload_bytes)
            self._published += 100

    def wait_for(self, events: int) -> None:
        """Wait until so many more have been published."""
        end = self._published + events
        wait_for(lambda: self._published >= end, f"{events} more events to be published")

    def stop(self) -> History:
        """Stop, and return the published events. Idempotent."""
        self.end()
        return self._history


def _noted(record: Record, what: str) -> bool:
    return any(isinstance(entry, Noted) and entry.what == what for entry in record.entries)
