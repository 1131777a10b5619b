"""The garbage collector of this very process: cycles go away, what lasts is frozen, and each pause is counted."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from prometheus_client import REGISTRY

from headgate.runtime import heap as heap_module
from headgate.runtime.collector import MAX_BLOCKS, THRESHOLDS, Action, Measures
from headgate.runtime.heap import Heap


class Cycle:
    """Garbage that reference counts do not free."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def heap() -> Iterator[Heap]:
    """A heap that is looked after; the timer stands still, and the test looks."""
    heap = Heap(lambda: 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap_module, "repeat", lambda interval_s, callback: Still())
        heap.start()
    yield heap
    heap.close()


class Still:
    """A timer that is never due."""

    def stop(self) -> None:
        """It stands still."""

    def close(self) -> None:
        """It is none."""


def promote() -> None:
    """Have Python look at its survivors, as it does by itself behind THRESHOLDS."""
    gc.collect(0)
    gc.collect(1)


def test_everything_that_is_there_at_the_start_is_frozen(heap: Heap) -> None:
    """Python looks at it no more."""
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold() == THRESHOLDS


def test_garbage_among_the_newest_goes_with_the_next_look(heap: Heap) -> None:
    """The objects that are in use are frozen then."""
    promote()
    kept, lost = Cycle(), Cycle()
    gone, before = weakref.ref(lost), gc.get_freeze_count()
    del lost
    assert heap.look() is Action.SETTLE
    assert gone() is None
    assert gc.get_freeze_count() > before
    assert not any(thing is kept for thing in gc.get_objects())  # of those that are not frozen
    assert heap.look() is Action.NOTHING


def test_a_frozen_object_is_freed_by_its_reference_count(heap: Heap) -> None:
    """Freezing costs nothing that is no cycle."""
    thing = Cycle()
    gone = weakref.ref(thing)
    promote()
    heap.look()
    thing.__dict__.clear()
    del thing
    assert gone() is None


def test_frozen_garbage_goes_when_there_is_too_much(heap: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at everything thaws what is frozen, and freezes what is left."""
    lost = Cycle()
    gone = weakref.ref(lost)
    promote()
    heap.look()
    del lost
    promote()
    heap.look()
    assert gone() is not None
    real = heap._measures

    def swollen() -> Measures:
        now = real()
        return Measures(now.now_s, now.cpu_s, now.promotions, now.blocks + 2 * MAX_BLOCKS, now.clients)

    monkeypatch.setattr(heap, "_measures", swollen)
    assert heap.look() is Action.COLLECT_ALL
    assert gone() is None
    assert gc.get_freeze_count() > 10_000


def test_each_pause_is_counted_by_its_generation(heap: Heap) -> None:
    """And the longest is told; nothing is counted in the middle of a collection, where a lock may be held."""
    before = {generation: counted(generation) for generation in "012"}
    promote()
    assert {generation: counted(generation) for generation in "012"} == before
    heap.look()
    assert {generation: counted(generation) - before[generation] for generation in "012"} == {"0": 1, "1": 2, "2": 0}
    assert (REGISTRY.get_sample_value("headgate_gc_longest_pause_seconds") or 0) > 0


def test_the_collector_is_left_as_it_was_found() -> None:
    """By a heap that is closed, once or twice; nothing is frozen any more."""
    before = gc.get_threshold()
    heap = Heap(lambda: 0)
    heap.start()
    heap.start()
    heap.close()
    heap.close()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
    assert heap._collecting not in gc.callbacks


def counted(generation: str) -> float:
    """Return how many collections of a generation were counted."""
    return REGISTRY.get_sample_value("headgate_gc_pause_seconds_count", {"generation": generation}) or 0.0


def test_blocks_are_counted_only_after_python_has_collected(heap: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count walks all memory that is in use, and a process that makes nothing has no new garbage."""
    heap.look()
    counted = Mock(return_value=1)
    monkeypatch.setattr(sys, "getallocatedblocks", counted)
    gc.disable()
    try:
        heap.look()
        counted.assert_not_called()
        gc.collect(0)
        heap.look()
    finally:
        gc.enable()
    counted.assert_called_once()
