"""F25, as clients see it: Redis' machine crashes and has lost the newest events; publishers overtake them.

Connected clients, clients that were offline meanwhile, and clients that come back at the other gateway. 1,000 clients, every
night; the trials of test_mixture.py have fewer clients and more ways to lose events.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from tests.fault.checker import Welcomed
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.site import Load, Site, topics_of, wait_for

ROUNDS = 125


@ONLY_NIGHTLY
def test_every_client_is_told_exactly_the_events_that_redis_has_lost(tmp_path: Path, load: Load, figures: Figures) -> None:
    """Crash after crash, at random moments: what a client has seen is in the log, or was told as rolled back; nothing else is."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    told_s: list[float] = []
    with Site(tmp_path, load) as site, contextlib.ExitStack() as ended:
        site.wait_until_ready()
        swarm = site.swarm().open()
        ended.callback(swarm.close)
        away = Swarm(site.urls, 20, topics_of, name="away").open()
        ended.callback(away.close)
        away.roam()
        publishing = ended.enter_context(site.publishing())
        for number in range(ROUNDS):
            publishing.wait_for(moments.randrange(1, 10))
            kept = site.redis.moment()
            publishing.wait_for(moments.randrange(1, 40))
            gone = moments.random() < 0.5
            if gone:
                away.leave(hard=True)
            crashed_s = time.monotonic()
            site.redis.crash(kept)
            site.redis.start()
            site.wait_until_ready()
            publishing.wait_for(moments.randrange(1, 40))
            if gone:
                away.reopen()
                away.wait(lambda: all(client.up for client in away.clients), f"those that were away in round {number}")
            told_s += [gap.at_s - crashed_s for gap in swarm.records[0].gaps("rolled_back")[-1:] if gap.at_s > crashed_s]
        history = publishing.stop()
        site.come_to_rest(swarm, history)
        site.come_to_rest(away, history)
    rolled_back = sum(len(record.gaps("rolled_back")) for record in swarm.records + away.records)
    assert rolled_back
    assert not any(record.gaps("log_lost", "upstream", "trimmed") for record in swarm.records + away.records)
    assert any(entry.resumed is False for record in away.records for entry in record.entries if isinstance(entry, Welcomed))
    figures("F25", f"{ROUNDS} crashes: events lost unreported, doubled or shown though lost", 0, "", "0 (checked)")
    figures("F25", "client told, after the crash", max(told_s), "s", "≤ 3 s")


def test_a_restart_that_lost_nothing_is_no_word_to_anybody(tmp_path: Path, load: Load) -> None:
    """Neither connected clients nor those that come back hear of a gap; everybody has the epoch that is written now."""
    with Site(tmp_path, load) as site, contextlib.ExitStack() as ended:
        site.wait_until_ready()
        swarm = site.swarm().open()
        ended.callback(swarm.close)
        away = Swarm(site.urls, 20, topics_of, name="away").open()
        ended.callback(away.close)
        publishing = ended.enter_context(site.publishing())
        for _ in range(3):
            publishing.wait_for(20)
            away.leave(hard=True)
            site.redis.kill()
            site.redis.start()
            site.wait_until_ready()
            publishing.wait_for(20)
            away.reopen()
        history = publishing.stop()
        wait_for(lambda: all(client.up for client in away.clients), "all to be back")
        site.come_to_rest(swarm, history)
        site.come_to_rest(away, history)
        epoch, _ = site.head()
        assert {client.epoch for client in swarm.clients + away.clients} == {epoch}
    records = swarm.records + away.records
    assert not any(record.gaps() for record in records)
    resumed = [entry.resumed for record in away.records for entry in record.entries if isinstance(entry, Welcomed)]
    assert set(resumed) == {None, True}
