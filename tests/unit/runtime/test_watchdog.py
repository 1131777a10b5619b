"""The watchdog: the blocking code is named once, and a running loop is left alone."""

import math
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from types import FrameType
from typing import Any

import gevent
import pytest
import structlog
from prometheus_client import REGISTRY

from headgate.runtime import watchdog as module
from headgate.runtime.watchdog import MAX_FRAMES, Watchdog, stack_of

Entries = list[MutableMapping[str, Any]]
BEAT_S, STALL_S = 0.02, 0.2


@pytest.fixture
def entries() -> Iterator[Entries]:
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


def waits() -> None:
    time.sleep(STALL_S)


def computes() -> None:
    end_s = time.monotonic() + STALL_S
    while time.monotonic() < end_s:
        pass


def holds_the_interpreter() -> None:
    """One call into C, during which no other code gets a turn."""
    began_s, count = time.monotonic(), 10_000_000
    while time.monotonic() - began_s < 2 * STALL_S:
        count *= 2
        began_s = time.monotonic()
        sum(range(count))


def blocks_the_loop(entries: Entries, how: Callable[[], None]) -> None:
    """Keep it from running until that was reported, and for long enough to be reported again.

    Until: on a machine that stops for a while the watchdog has patience once more. And the code named between the last beat and
    here (this thread waited for a disk, say) is not named again before the next one.
    """
    before, end_s = told(entries), time.monotonic() + 30
    while told(entries) == before and time.monotonic() < end_s:
        if entries and entries[-1]["event"] == "loop blocked":
            beats(2)
        how()
    how()
    how()


@pytest.mark.parametrize("how", [waits, computes, holds_the_interpreter])
def test_the_code_that_blocks_the_loop_is_named_once(watchdog: Watchdog, entries: Entries, how: Callable[[], None]) -> None:
    """By its function; and reported again when the loop runs."""
    stalls = REGISTRY.get_sample_value("headgate_loop_stalls_total") or 0
    blocks_the_loop(entries, how)
    beats(2)
    [place] = [place for place, entry in enumerate(entries) if is_ours(entry)]
    blocked, ran_again = entries[place], next(entry for entry in entries[place:] if entry["event"] == "loop ran again")
    # Not of `for_s`, because a reader of both clocks may lose the processor to this thread between them.
    assert 0 <= blocked["cpu_s"] <= ran_again["after_s"] + 0.1
    assert ran_again["after_s"] > blocked["for_s"] + STALL_S  # by two of them, and both are rounded
    assert (REGISTRY.get_sample_value("headgate_loop_stalls_total") or 0) > stalls


def test_every_stall_is_told(watchdog: Watchdog, entries: Entries) -> None:
    """Two, with a turn of the loop between them."""
    for _ in range(2):
        blocks_the_loop(entries, waits)
        beats(2)
    assert told(entries) == 2


def told(entries: Entries) -> int:
    """Return how often this file's stall was named (this machine may be slow enough for others)."""
    return sum(is_ours(entry) for entry in entries)


def is_ours(entry: MutableMapping[str, Any]) -> bool:
    return f" {blocks_the_loop.__name__} < " in f" {entry.get('at')}"


def test_a_loop_that_runs_is_left_alone(entries: Entries) -> None:
    """For longer than a stall would be, with the patience of the product (unless this machine stood still for as long)."""
    watchdog = Watchdog()
    began_s, turns = time.monotonic(), 0
    watchdog.start()
    while time.monotonic() - began_s < 1.5 * module.STALL_S:
        beats(1)
        turns += 1
    watchdog.close()
    late_s = time.monotonic() - began_s - turns * BEAT_S
    assert entries == [] or late_s > module.STALL_S / 2


def test_after_a_stop_of_the_whole_process_the_loop_has_its_time_again(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog's thread may be the first to run, so it is no fault that the loop is not back yet."""
    monkeypatch.setattr(module, "BEAT_S", BEAT_S)
    monkeypatch.setattr(module, "STALL_S", 1.0)
    stops = [1.2]
    monkeypatch.setattr(module, "native_sleep", lambda pause_s: time.sleep(stops.pop() if stops else pause_s))
    watchdog = Watchdog()
    watchdog.start()
    time.sleep(1.3)
    beats(2)
    watchdog.close()
    assert {entry["event"] for entry in entries} == {"loop ran again"}


@pytest.mark.parametrize(
    ("beat_s", "before_s", "oversleeps_s"),
    [(BEAT_S, 0.0, [0.0, 0.3, 0.3]), (module.BEAT_S, 0.6, [0.0]), (0.3, 0.0, [0.0, 0.0])],
    ids=["stopped twice, for less than a stall", "stopped before its thread began", "closed in the middle of another stall"],
)
def test_what_is_no_fault_of_the_loop_blames_nobody(
    entries: Entries, monkeypatch: pytest.MonkeyPatch, beat_s: float, before_s: float, oversleeps_s: list[float]
) -> None:
    """The process may be stopped between two beats, or between `start` and its thread; and a closed watchdog wakes once more."""
    watch: list[Callable[[], None]] = []
    monkeypatch.setattr(module, "BEAT_S", beat_s)
    monkeypatch.setattr(module, "in_native_thread", watch.append)
    watchdog = Watchdog()
    watchdog.start()
    time.sleep(before_s)

    def nap(pause_s: float) -> None:
        if oversleeps_s:
            time.sleep(pause_s + oversleeps_s.pop(0))
        else:
            time.sleep(pause_s)
            watchdog.close()

    monkeypatch.setattr(module, "native_sleep", nap)
    watch[0]()
    assert entries == []


def test_a_watchdog_that_was_closed_says_nothing(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does its timer. (Until then nothing was a stall, so there is nothing that its thread might still be about to say.)"""
    monkeypatch.setattr(module, "BEAT_S", BEAT_S)
    monkeypatch.setattr(module, "STALL_S", math.inf)
    watchdog = Watchdog()
    watchdog.start()
    beats(2)
    watchdog.close()
    monkeypatch.setattr(module, "STALL_S", STALL_S)
    time.sleep(3 * STALL_S)
    beats(2)
    assert entries == []


def deep(levels: int) -> FrameType:
    return deep(levels - 1) if levels else sys._getframe()


def test_a_stack_is_short_and_holds_no_data() -> None:
    """File, line and function of the innermost frames; two parts of each path."""
    places = stack_of(deep(40)).split(" < ")
    assert len(places) == MAX_FRAMES
    assert places[0].startswith("runtime/test_watchdog.py:")
    assert places[0].endswith(" deep")
    assert stack_of(None) == "unknown"
