"""The combined statistics of all processes: sums, rates, percentiles, silent processes, restarts. No I/O, no clock."""

from typing import Any

import msgspec
import pytest

from headgate.node.cluster.process_stats import FORGOTTEN_S, STALE_S, CombinedStats, NamespaceStats, ProcessStats
from headgate.runtime.histogram import bucket_of


def space(**more: Any) -> NamespaceStats:
    nothing: dict[str, Any] = {
        field.name: {int: 0, float: 0.0, str: "", bool: True}.get(field.type) for field in msgspec.structs.fields(NamespaceStats)
    }
    return NamespaceStats(**{**nothing, "epoch": "e", "latency": {}, **more})


def process(at_s: float, name: str = "one/1", cpu_s: float = 0.0, **more: Any) -> ProcessStats:
    spaces = more.pop("namespaces", None) or {"shop": space(**more)}
    return ProcessStats(name, "0", 0, at_s, cpu_s, 1000, 3, 0, False, "admitting", [], True, {}, {}, spaces)


def test_a_rate_is_what_came_between_two_words_of_a_process_by_its_own_clock() -> None:
    """However late they were heard, and added over the processes."""
    combined = CombinedStats()
    combined.frame({"a": process(10.0, sent=100), "b": process(500.0, sent=7)}, 0.0)
    frame = combined.frame({"a": process(12.0, sent=300), "b": process(501.0, sent=57)}, 1.4)
    assert frame["measured"]
    assert frame["rates"]["sent"] == 100 + 50
    assert [row["sent"] for row in frame["processes"]] == [100, 50]


def test_the_first_word_of_a_process_says_nothing_of_its_rate() -> None:
    """It counts from the start of the process."""
    frame = CombinedStats().frame({"a": process(10.0, sent=1_000_000)}, 0.0)
    assert not frame["measured"]
    assert frame["rates"]["sent"] == 0


def test_percentiles_are_those_of_all_processes_together() -> None:
    """Histograms are added bucket by bucket, and the ones from before the last frame do not count."""
    combined = CombinedStats()
    quick, slow = bucket_of(0.001), bucket_of(0.5)
    combined.frame({"a": process(1.0, latency={slow: 90}), "b": process(1.0)}, 0.0)
    frame = combined.frame({"a": process(2.0, latency={slow: 90, quick: 98}), "b": process(2.0, latency={slow: 2})}, 1.0)
    assert frame["latency"]["count"] == 100
    assert frame["latency"]["p50"] == pytest.approx(1.0, rel=0.05)
    assert frame["latency"]["p99"] == pytest.approx(500, rel=0.05)
    assert frame["namespaces"][0]["latency"] == frame["latency"]


def test_what_was_told_in_one_frame_is_not_in_the_next_one() -> None:
    """A process that reports the same again keeps its rate for a while, and adds nothing to the percentiles."""
    combined = CombinedStats()
    combined.frame({"a": process(1.0)}, 0.0)
    word = process(2.0, sent=10, latency={bucket_of(0.1): 10})
    assert combined.frame({"a": word}, 1.0)["latency"]["count"] == 10
    frame = combined.frame({"a": word}, 2.0)
    assert (frame["latency"], frame["rates"]["sent"], frame["processes"][0]["silent_s"]) == (None, 10, 0)
    frame = combined.frame({"a": word}, 1.0 + STALE_S)
    assert (frame["rates"]["sent"], frame["processes"][0]["silent_s"]) == (0, STALE_S)


def test_a_process_that_stays_silent_has_no_row_any_more() -> None:
    """Its clients are elsewhere by then."""
    combined = CombinedStats()
    combined.frame({"a": process(1.0, clients=5), "b": process(1.0)}, 0.0)
    later = {"b": process(2.0)}
    assert len(combined.frame(later, FORGOTTEN_S)["processes"]) == 2
    frame = combined.frame({"b": process(3.0)}, FORGOTTEN_S + 1)
    assert [row["id"] for row in frame["processes"]] == ["b"]
    assert frame["now"]["clients"] == 0


def test_events_are_counted_once_as_published_however_many_processes_hear_them() -> None:
    """By the head of the log; not where the log is another one."""
    combined = CombinedStats()
    combined.frame({"a": process(1.0, head=100), "b": process(1.0, head=90)}, 0.0)
    assert combined.frame({"a": process(2.0, head=120), "b": process(2.0, head=130)}, 2.0)["rates"]["published"] == 15
    assert combined.frame({"a": process(3.0, head=5, epoch="f")}, 3.0)["rates"]["published"] == 0
    assert combined.frame({"a": process(4.0, head=9, epoch="f")}, 4.0)["rates"]["published"] == 4


def test_what_there_is_now_is_the_sum_and_the_worst() -> None:
    """Over processes and namespaces."""
    spaces = {"shop": space(clients=2, fullest=0.2, oldest_s=1.5), "chat": space(clients=3, fullest=0.9, waiting=4)}
    now = CombinedStats().frame({"a": process(1.0, namespaces=spaces), "b": process(1.0, clients=10)}, 0.0)["now"]
    assert (now["clients"], now["waiting"], now["fullest"], now["oldest_s"]) == (15, 4, 0.9, 1.5)


def test_a_namespace_says_at_how_many_processes_it_is_live() -> None:
    """And the reason of one where it is not."""
    told = {"a": process(1.0), "b": process(1.0, bus_up=False, error="redis at x: refused")}
    (row,) = CombinedStats().frame(told, 0.0)["namespaces"]
    assert (row["bus_up"], row["processes"], row["error"]) == (1, 2, "redis at x: refused")


def test_the_share_of_a_processor_is_that_of_the_time_between_two_words() -> None:
    """A process that starts from zero under its name is not below nothing."""
    combined = CombinedStats()
    combined.frame({"a": process(1.0, cpu_s=10.0)}, 0.0)
    assert combined.frame({"a": process(3.0, cpu_s=11.0)}, 2.0)["processes"][0]["cpu"] == 0.5
    assert combined.frame({"a": process(4.0, cpu_s=0.1)}, 3.0)["processes"][0]["cpu"] == 0


def test_more_processes_than_are_shown_are_left_out() -> None:
    """A frame is bounded."""
    told = {str(nth): process(1.0) for nth in range(300)}
    assert len(CombinedStats().frame(told, 0.0)["processes"]) == 256
