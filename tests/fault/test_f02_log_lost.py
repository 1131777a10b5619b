"""F2: Redis comes back empty, or is emptied."""

import time
from collections.abc import Callable

import pytest

from tests.fault.checker import History
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import DEADLINE_S, Site, wait_for


def flush(site: Site) -> None:
    """Empty a running Redis."""
    site.redis.call("FLUSHALL")


def restart_empty(site: Site) -> None:
    """Kill Redis, and start another without data or functions in its place."""
    site.redis.kill()
    site.redis.start(empty=True)


@pytest.mark.parametrize("empty", [flush, restart_empty], ids=["FLUSHALL", "empty restart"])
def test_every_client_is_told_once_that_the_log_was_lost(
    empty: Callable[[Site], None], site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """One unrecoverable gap each, then the new log from its first event."""
    swarm = start_swarm()
    # So patient that it never publishes twice, because one attempt could go into the old log, and the other into the new one.
    with site.publishing(timeout_s=DEADLINE_S) as publishing:
        publishing.wait_for(50)
        empty(site)
        emptied_s = time.monotonic()
        publishing.wait_for(50)
        wait_for(lambda: all(record.gaps("log_lost") for record in swarm.records), "every client to be told")
        history: History = publishing.stop()
    site.come_to_rest(swarm, history)
    told = [record.gaps("log_lost") for record in swarm.records]
    assert {len(gaps) for gaps in told} == {1}
    assert not any(gap.recoverable for gaps in told for gap in gaps)
    assert not disconnects(swarm)
    what = empty.__name__.replace("_", " ")
    figures("F2", f"{what}: last client told", max(gaps[0].at_s for gaps in told) - emptied_s, "s", "≤ 2 s")
    figures("F2", f"{what}: clients told exactly once", 100 * sum(len(gaps) == 1 for gaps in told) / len(told), "%", "100 %")
