"""F10: browsers are offline for longer than the log reaches back."""

from __future__ import annotations

from collections.abc import Callable

from .checker import Welcomed
from .figures import Figures
from .many_clients import Swarm
from .site import Site, publish_burst


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
        site.wait_until_known(site.head()[1])
        swarm.reopen()
        publishing.wait_for(20)
        history = publishing.stop()
    site.come_to_rest(swarm, history)
    for record in swarm.records:
        (gap,) = record.gaps()
        assert (gap.reason, gap.recoverable) == ("trimmed", False)
        assert [entry.resumed for entry in record.entries if isinstance(entry, Welcomed)] == [None, False]
    figures("F10", "gaps told to each client", 1, "", "exactly one, unrecoverable")
