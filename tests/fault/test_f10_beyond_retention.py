"""F10: browsers are offline for longer than the log reaches back."""

import contextlib
from pathlib import Path

from tests.fault.checker import Welcomed
from tests.fault.figures import Figures
from tests.fault.site import TOPICS, Load, Site, publish_burst, wait_until_had

# The default, and as much as makes many pages.
RETENTION = {"full": 10_000, "short": 1_000}


def test_a_browser_back_too_late_is_told_once_what_is_gone(tmp_path: Path, load: Load, feed: str, figures: Figures) -> None:
    """Exactly one gap, unrecoverable, from its own position to the oldest event; then the log, then live."""
    retention = RETENTION[load.name]
    with (
        Site(tmp_path, load, log_max_events=retention) as site,
        contextlib.closing(site.swarm(whole=feed == "whole").open()) as swarm,
    ):
        with site.publishing() as publishing:
            publishing.wait_for(20)
            swarm.leave()
            publishing.wait_for(20)
            # No client here wants these, and they only push the others out.
            publish_burst(site.redis.url, publishing.history, retention + 50, 0, topic="filler.t{}")
            publishing.wait_for(20)
            history = publishing.stop()
        # Further events would push out the next ones of slow clients, and then there would be two gaps.
        publish_burst(site.redis.url, history, TOPICS, load.payload_bytes)
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
