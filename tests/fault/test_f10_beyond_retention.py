"""F10: browsers are offline for longer than the log reaches back."""

from __future__ import annotations

from collections.abc import Callable

from .checker import Welcomed
from .figures import Figures
from .many_clients import Swarm
from .site import TOPICS, Site, publish_burst, wait_until_had


def test_a_browser_back_too_late_is_told_once_what_is_gone(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Exactly one gap, unrecoverable, from its own position to the oldest event; then what there is, then live."""
    swarm = start_swarm()
    with site.publishing() as publishing:
        publishing.wait_for(20)
        swarm.leave()
        publishing.wait_for(20)
        # The default retention is 10,000 events. Nobody here wants these: they only push the others out.
        publish_burst(site.redis.url, publishing.history, 10_050, 0, topic="filler.t{}")
        publishing.wait_for(20)
        history = publishing.stop()
    # What is published from here on pushes out what they are about to read, if they are slow: then there would be two gaps.
    publish_burst(site.redis.url, history, TOPICS, site.load.payload_bytes)
    epoch, head = site.head()
    site.wait_until_known(head)
    swarm.reopen()
    wait_until_had(swarm, history, epoch, head)
    site.come_to_rest(swarm, history)
    for record in swarm.records:
        (gap,) = record.gaps()
        assert (gap.reason, gap.recoverable) == ("trimmed", False)
        assert [entry.resumed for entry in record.entries if isinstance(entry, Welcomed)] == [None, False]
    figures("F10", "gaps told to each client", 1, "", "exactly one, unrecoverable")
