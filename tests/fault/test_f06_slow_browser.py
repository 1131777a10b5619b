"""F6: browsers that read 10 KB/s, one for each overflow policy, among others that read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tests.fault.checker import Noted, Record
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import Site, publish_burst
from tests.fault.usage import resident_bytes

BURST_BYTES_PER_S = 10_000
# After the burst: in the short form the kernel's share of a queue (some 100 KB) must not take ten seconds to drain.
SLOW_BYTES_PER_S = {"full": 10_000, "short": 60_000}


@pytest.mark.parametrize("policy", ["catch_up", "drop", "latest"])
def test_a_slow_browser_loses_only_what_its_policy_says_and_is_told(
    policy: str, site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Sent and told of add up exactly to what was published, and nobody else waits for it."""
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


def _noted(record: Record, what: str) -> bool:
    return any(isinstance(entry, Noted) and entry.what == what for entry in record.entries)
