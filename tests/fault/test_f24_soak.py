"""F24: a gateway under churn for a long time. It keeps nothing of departed clients.

The short form shows that the harness finds leaks. `-m nightly` soaks for ten minutes, or HEADGATE_SOAK_S if that is set,
`HEADGATE_SOAK_S=3600 pytest -m nightly tests/fault/test_f24_soak.py`.
"""

import itertools
import os
import random
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.redis.keys import ids_key, log_key, trace_key
from tests.fault.consuming import consuming
from tests.fault.figures import Figures
from tests.fault.site import FULL, Load, Site
from tests.fault.soak import Churn, Sample, lasting, leaks, memory_slope, sample, sample_of
from tests.fault.trend import CERTAIN, has_grown, slope_of
from tests.support.line_program import LineProgram

SOAK_S = float(os.environ.get("HEADGATE_SOAK_S", "600"))
WARM_UP_SHARE = 1 / 3
ROUND_S = 8.0
LOAD = Load("full", gateways=1, clients=60, per_s=50, payload_bytes=1024, offline_s=0)
MB_PER_HOUR = 1.0

# A process that does as much as it is asked to, and leaks something each time, or nothing.
_LEAKY = """
import sys
kept = []
for line in sys.stdin:
    work = [bytearray(b"x" * 65536), open("/dev/null")]
    if line.strip() == "leak":
        kept.extend(work)
    else:
        work[1].close()
    print("done", flush=True)
"""


@pytest.mark.nightly
@pytest.mark.timeout(int(SOAK_S) * 2 + 600)
@pytest.mark.parametrize("load", [pytest.param(FULL, id="full")], indirect=True)
def test_nothing_is_left_of_clients_that_came_and_went(tmp_path: Path, figures: Figures) -> None:
    """Memory, descriptors, greenlets, series, page cache and keys of Redis; and every client had everything."""
    settings: dict[str, Any] = {"write_deadline_s": 2, "send_buffer_bytes": 4096, "queue_bytes": 131072, "log_max_events": 2000}
    with Site(tmp_path, LOAD, serve=("tests.fault.counting_app:app",), **settings) as site:
        site.wait_until_ready()
        swarm, gateway = site.swarm(receive_buffer_bytes=4096).open(), site.gateways[0]
        churn, samples, handled = Churn(swarm, seed=24), list[Sample](), itertools.count()
        counting = consuming(site.redis.url, "soaked", lambda delivery: next(handled))
        with closing(swarm), counting, site.publishing(timeout_s=30) as publishing:
            began_s = time.monotonic()
            while time.monotonic() < began_s + SOAK_S:
                churn.run(ROUND_S)
                churn.rest()
                samples.append(sample_of(gateway.pid, gateway.url, site.redis))
                print(samples[-1], flush=True)
            history = publishing.stop()
            site.come_to_rest(swarm, history)
        assert next(handled) > 0.9 * len(publishing.receipts)
        assert "Traceback" not in gateway.output
    print(churn.done)
    warm = [each for each in samples if each.at_s >= began_s + SOAK_S * WARM_UP_SHARE]
    slope = memory_slope(warm)
    assert leaks(warm, MB_PER_HOUR) == [], slope
    soak = f"soak of {SOAK_S / 60:g} min"
    figures("F24", f"{soak}: growth of the gateway's memory", slope.per_hour, "MB/h", "≤ 1 MB/h")
    figures("F24", f"{soak}: uncertainty of that", CERTAIN * slope.error, "MB/h", "")
    figures("F24", f"{soak}: descriptors more at the end", warm[-1].descriptors - warm[0].descriptors, "", "≤ 4 (checked)")
    figures("F24", f"{soak}: clients that came, stalled, left", float(sum(churn.done.values())), "", "")


class TestTheHarness:
    """It finds what leaks, and nothing where nothing does."""

    @pytest.mark.parametrize("word", ["leak", "work"])
    def test_a_process_that_keeps_memory_and_descriptors_is_found(self, word: str) -> None:
        """And one that gives them back is not."""
        samples = []
        with LineProgram(sys.executable, "-c", _LEAKY) as program:
            for number in range(20):
                for _ in range(8):
                    assert program.ask(word) == "done"
                # One minute apart, whatever the time is.
                samples.append(replace(sample(program.pid), at_s=60.0 * number))
        assert leaks(samples[5:], MB_PER_HOUR) == (["memory_bytes", "descriptors"] if word == "leak" else [])

    @pytest.mark.parametrize("kept", ["greenlets", "series", "redis_keys", "cached_bytes"])
    def test_each_count_that_grows_is_named(self, kept: str) -> None:
        """More than its slack."""
        samples = [Sample(60.0 * n, 10**8, 20, **{kept: 10**6 * n}) for n in range(12)]
        assert leaks(samples, MB_PER_HOUR) == [kept]

    @pytest.mark.parametrize("seed", range(20))
    def test_a_slope_is_found_through_the_scatter_of_samples(self, seed: int) -> None:
        """3 MB/h, where samples scatter by half a megabyte, in an hour; and none where there is none."""
        scatter = random.Random(seed)
        times_s = [15.0 * n for n in range(240)]
        flat = slope_of([(at_s, 100 + scatter.gauss(0, 0.5)) for at_s in times_s])
        leak = slope_of([(at_s, 100 + 3 * at_s / 3600 + scatter.gauss(0, 0.5)) for at_s in times_s])
        assert flat.least < MB_PER_HOUR < leak.least < 3 < leak.most

    def test_keys_that_end_with_the_events_of_the_log_are_no_leak(self) -> None:
        """Each of the others counts."""
        namespace = "n"
        promised = [ids_key(namespace, 7), trace_key(namespace, 7)]
        others = [log_key(namespace), "hg:namespaces", "hg:{n}:inbox:ana"]
        assert lasting(key.encode() for key in (*promised, *others)) == len(others)

    def test_one_jump_of_memory_is_no_leak_for_certain(self) -> None:
        """The allocator asks for a megabyte at a time, and keeps it."""
        samples = [Sample(15.0 * n, 100_000_000 + (2**20 if n > 15 else 0), 20) for n in range(28)]
        assert leaks(samples, MB_PER_HOUR) == []

    def test_too_few_samples_say_nothing(self) -> None:
        """They are an error, not a pass."""
        with pytest.raises(ValueError, match="5 samples"):
            slope_of([(float(n), 1.0) for n in range(5)])
        with pytest.raises(ValueError, match="5 samples"):
            has_grown([1.0] * 5)

    def test_counts_that_go_up_and_down_have_not_grown(self) -> None:
        """Only the beginning and the end are compared."""
        assert not has_grown([5, 6, 5, 9, 9, 9, 6, 5, 5])
        assert has_grown([5, 6, 5, 5, 5, 5, 7, 7, 7], slack=1)
