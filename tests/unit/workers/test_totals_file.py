"""The file of the totals: what counts although its worker has ended."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from headgate.workers.counted import FILE_NAME, LOCK_NAME, Family, Sample, keep


def counter(value: float) -> list[Family]:
    return [Family("a", "counter", "Help.", [Sample("a_total", {}, value)])]


def test_what_one_worker_has_seen_another_one_reads(tmp_path: Path) -> None:
    """Also when the worker that was seen has ended meanwhile."""
    keep(tmp_path, {1: counter(3)}, living=[1, 2])
    totals = keep(tmp_path, {2: counter(4)}, living=[2])
    assert [family.samples for family in totals.ended] == [[Sample("a_total", {}, 3)]]
    assert totals.seen == {2: counter(4)}
    assert keep(tmp_path, {}, living=[2]) == totals


def test_a_broken_file_costs_the_counts_and_nothing_else(tmp_path: Path) -> None:
    """A full disk may leave one."""
    (tmp_path / FILE_NAME).write_text("{")
    assert keep(tmp_path, {1: counter(3)}, living=[1]).seen == {1: counter(3)}


def test_a_lock_that_a_stopped_worker_holds_blocks_nobody(tmp_path: Path) -> None:
    """The scrape goes without the counts of ended workers."""
    with (tmp_path / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            keep(tmp_path, {}, living=[1])
    assert keep(tmp_path, {}, living=[1]).seen == {}
