"""The counts of several workers as those of one gateway, and of an ended worker."""

import fcntl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

import headgate.runtime.metrics  # noqa: F401  (registers what the gateway and consumers count)
from headgate.runtime.metrics import Family, exposition_of
from headgate.workers.counted import FILE_NAME, GAUGES, LOCK_NAME, Totals, exposed, keep, remember


def counter(value: float, name: str = "a") -> Family:
    return name, "counter", "Help.", [(f"{name}_total", {"code": "x"}, value), (f"{name}_created", {}, value)]


def gauge(name: str, value: float) -> Family:
    return name, "gauge", "Help.", [(name, {"namespace": "n"}, value)]


def values(families: list[Family]) -> dict[tuple[str, str], float]:
    return {(name, labels.get("worker", "")): value for *_, samples in families for name, labels, value in samples}


def test_counters_are_sums_and_began_when_the_oldest_did() -> None:
    """The workers of one machine are one gateway to its clients."""
    told = values(exposed({1: [counter(3)], 2: [counter(5)]}, {1: 1, 2: 2}, Totals()))
    assert told == {("a_total", ""): 8, ("a_created", ""): 3}


def test_a_histogram_is_the_sum_of_each_bucket() -> None:
    def histogram(count: float) -> Family:
        return "h", "histogram", "", [("h_bucket", {"le": "1"}, count), ("h_sum", {}, count / 2)]

    told = values(exposed({1: [histogram(2)], 2: [histogram(4)]}, {1: 1, 2: 2}, Totals()))
    assert told == {("h_bucket", ""): 6, ("h_sum", ""): 3}


def test_gauges_are_put_together_by_their_meaning() -> None:
    """Clients are added, the bus is up where it is up for all, and of pauses the longest counts."""
    one = [gauge("headgate_clients", 3), gauge("headgate_bus_up", 1), gauge("headgate_gc_pause_greatest_seconds", 0.5)]
    two = [gauge("headgate_clients", 4), gauge("headgate_bus_up", 0), gauge("headgate_gc_pause_greatest_seconds", 0.1)]
    told = values(exposed({1: one, 2: two}, {1: 1, 2: 2}, Totals()))
    assert list(told.values()) == [7, 0, 0.5]


def test_a_gauge_of_the_application_keeps_the_label_of_its_worker() -> None:
    """Its meaning is unknown here."""
    told = values(exposed({7: [gauge("shop_temperature", 20)], 9: [gauge("shop_temperature", 22)]}, {7: 1, 9: 2}, Totals()))
    assert told == {("shop_temperature", "1"): 20, ("shop_temperature", "2"): 22}


def test_every_gauge_of_ours_has_a_meaning() -> None:
    """A new one must say how workers' values are put together."""
    gauges = {family.name for family in REGISTRY.collect() if family.type in ("gauge", "info")}
    assert {name for name in gauges if name.startswith(("headgate_", "process_"))} <= GAUGES.keys()


def test_a_worker_that_lives_and_does_not_answer_counts_with_what_was_seen_last() -> None:
    totals = remember(Totals(), {1: [counter(10)], 2: [counter(20)]}, living=[1, 2])
    assert values(exposed({2: [counter(25)]}, {2: 1}, totals))["a_total", ""] == 35


def test_a_late_answer_of_a_worker_that_has_ended_does_not_count_twice() -> None:
    """Two scrapes may overlap its end."""
    totals = remember(Totals(), {1: [counter(10)]}, living=[1])
    totals = remember(totals, {}, living=[2])
    totals = remember(totals, {1: [counter(10)]}, living=[2])
    assert values(exposed({}, {}, totals))["a_total", ""] == 10


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["count", "scrape", "kill"])), max_size=40))
def test_a_sum_never_goes_back_and_never_exceeds_what_was_counted(history: list[tuple[int, str]]) -> None:
    """Whatever workers count, end and begin between scrapes."""
    totals, ages, counts, next_age = Totals(), [1, 2, 3, 4], dict.fromkeys([1, 2, 3, 4], 0.0), 5
    before = counted = 0.0
    for worker, act in history:
        if act == "count":
            counts[ages[worker]] += 1
            counted += 1
        elif act == "kill":
            ages[worker] = next_age
            counts[next_age] = 0.0
            next_age += 1
        else:
            answers = {age: [counter(counts[age])] for age in ages}
            totals = remember(totals, answers, ages)
            now = values(exposed(answers, {age: age for age in ages}, totals))["a_total", ""]
            assert before <= now <= counted
            before = now


def test_the_families_of_several_workers_are_text_for_prometheus() -> None:
    text = exposition_of(exposed({1: [counter(3)], 2: [counter(5)]}, {1: 1, 2: 2}, Totals()))[1].decode()
    assert "# TYPE a_total counter" in text
    assert 'a_total{code="x"} 8.0' in text


def test_what_one_worker_has_seen_another_one_reads(tmp_path: Path) -> None:
    """Also when the worker that was seen has ended since."""
    keep(tmp_path, {1: [counter(3)]}, living=[1, 2])
    totals = keep(tmp_path, {2: [counter(4)]}, living=[2])
    assert (totals.ended, totals.seen) == ([counter(3)], {2: [counter(4)]})
    assert keep(tmp_path, {}, living=[2]) == totals


def test_a_broken_file_costs_the_counts_and_nothing_else(tmp_path: Path) -> None:
    """A full disk may leave one."""
    (tmp_path / FILE_NAME).write_text("{")
    assert keep(tmp_path, {1: [counter(3)]}, living=[1]).seen == {1: [counter(3)]}


def test_a_lock_that_a_stopped_worker_holds_blocks_nobody(tmp_path: Path) -> None:
    """The scrape goes without the counts of ended workers."""
    with (tmp_path / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            keep(tmp_path, {}, living=[1])
    assert keep(tmp_path, {}, living=[1]).seen == {}
