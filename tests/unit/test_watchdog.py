"""The watchdog: what blocks the loop is named once, and a loop that runs is left alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from types import FrameType
from typing import Any

import gevent
import pytest
import structlog
from prometheus_client import REGISTRY

from headgate import watchdog as module
from headgate.watchdog import MAX_FRAMES, Watchdog, stack_of

Entries = list[MutableMapping[str, Any]]
BEAT_S, STALL_S = 0.02, 0.2


@pytest.fixture
def entries() -> Iterator[Entries]:
    """What is logged."""
    with structlog.testing.capture_logs() as captured:
        yield captured


@pytest.fixture
def watchdog(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watchdog]:
    """One that watches this thread's loop, which has run already; less patient, to save time."""
    monkeypatch.setattr(module, "BEAT_S", BEAT_S)
    monkeypatch.setattr(module, "STALL_S", STALL_S)
    watchdog = Watchdog()
    watchdog.start()
    watchdog.start()  # idempotent: one thread
    beats(2)
    yield watchdog
    watchdog.close()
    watchdog.close()


def beats(count: int) -> None:
    """Let the loop run."""
    gevent.sleep(count * BEAT_S)


def waits_without_the_loop() -> None:
    time.sleep(3 * STALL_S)


def computes_without_the_loop() -> None:
    end_s = time.monotonic() + 3 * STALL_S
    while time.monotonic() < end_s:
        pass


def holds_the_interpreter() -> None:
    """One call into C, which nobody else gets a turn in."""
    began_s, count = time.monotonic(), 10_000_000
    while time.monotonic() - began_s < 2 * STALL_S:
        count *= 2
        began_s = time.monotonic()
        sum(range(count))


@pytest.mark.parametrize("blocks", [waits_without_the_loop, computes_without_the_loop, holds_the_interpreter])
def test_what_blocks_the_loop_is_named_once(watchdog: Watchdog, entries: Entries, blocks: Callable[[], None]) -> None:
    """By its function; and told again when the loop runs."""
    stalls = REGISTRY.get_sample_value("headgate_loop_stalls_total") or 0
    blocks()
    beats(2)
    assert told(entries, blocks) == 1
    assert all(0 <= entry["cpu_s"] <= entry["for_s"] + 0.1 for entry in entries if entry["event"] == "loop blocked")
    assert any(entry["event"] == "loop ran again" and entry["after_s"] >= 2 * STALL_S for entry in entries)
    assert (REGISTRY.get_sample_value("headgate_loop_stalls_total") or 0) > stalls


def test_every_stall_is_told(watchdog: Watchdog, entries: Entries) -> None:
    """Two, with a turn of the loop between them."""
    for _ in range(2):
        waits_without_the_loop()
        beats(2)
    assert told(entries, waits_without_the_loop) == 2


def told(entries: Entries, blocks: Callable[[], None]) -> int:
    """Return how often a function was named (this machine may be slow enough for other stalls)."""
    return sum(f" {blocks.__name__} < " in f" {entry.get('at')}" for entry in entries)


def test_a_loop_that_runs_is_left_alone(entries: Entries) -> None:
    """For longer than a stall would be, with the patience of the product."""
    watchdog = Watchdog()
    watchdog.start()
    beats(round(1.5 * module.STALL_S / BEAT_S))
    watchdog.close()
    assert entries == []


def test_after_a_stop_of_the_whole_process_the_loop_has_its_time_again(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog's thread may be the first to run: that the loop is not back yet is nobody's fault."""
    monkeypatch.setattr(module, "BEAT_S", BEAT_S)
    monkeypatch.setattr(module, "STALL_S", 1.0)
    stops = [1.2]
    monkeypatch.setattr(module, "native_sleep", lambda pause_s: time.sleep(stops.pop() if stops else pause_s))
    watchdog = Watchdog()
    watchdog.start()
    time.sleep(1.3)
    beats(2)
    watchdog.close()
    assert [entry["event"] for entry in entries] == ["loop ran again"]


def test_a_watchdog_that_was_closed_says_nothing(watchdog: Watchdog, entries: Entries) -> None:
    """Nor does its timer."""
    watchdog.close()
    waits_without_the_loop()
    beats(2)
    assert entries == []


def deep(levels: int) -> FrameType:
    return deep(levels - 1) if levels else sys._getframe()


def test_a_stack_is_short_and_holds_no_data() -> None:
    """File, line and function of the innermost frames; two parts of each path."""
    places = stack_of(deep(40)).split(" < ")
    assert len(places) == MAX_FRAMES
    assert places[0].startswith("unit/test_watchdog.py:")
    assert places[0].endswith(" deep")
    assert stack_of(None) == "unknown"
