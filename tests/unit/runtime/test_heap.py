"""The garbage collector of this very process: cycles go away, lasting objects are frozen, and each pause is counted."""

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from headgate.runtime import heap as heap_module
from headgate.runtime.heap import BLOCKS_PER_CLIENT, CLIENTS_PER_SCAN, IDLE_SHARE, MAX_BLOCKS, SWOLLEN_BLOCKS, THRESHOLDS, Heap


class Cycle:
    """Garbage that reference counts do not free."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def heap() -> Iterator[Heap]:
    """A heap under care; the timer stands still, and the test looks."""
    heap = Heap(lambda: 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap_module, "repeat", lambda interval_s, callback: Still())
        heap.start()
    yield heap
    heap.close()


class Still:
    def stop(self) -> None:
        """It stands still."""

    def close(self) -> None:
        """It is none."""


def promote() -> None:
    """Have Python look at its survivors, as it does by itself after THRESHOLDS."""
    gc.collect(0)
    gc.collect(1)


def test_everything_that_is_there_at_the_start_is_frozen(heap: Heap) -> None:
    """Python examines it no more."""
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold() == THRESHOLDS


def test_garbage_among_the_newest_goes_with_the_next_look(heap: Heap) -> None:
    """The objects in use are frozen then."""
    promote()
    kept, lost = Cycle(), Cycle()
    gone, before = weakref.ref(lost), gc.get_freeze_count()
    del lost
    heap.check()
    assert gone() is None
    assert gc.get_freeze_count() > before
    assert not any(thing is kept for thing in gc.get_objects())  # of the others


@pytest.mark.parametrize(("joined", "frozen"), [(CLIENTS_PER_SCAN, True), (CLIENTS_PER_SCAN - 1, False)])
def test_what_many_new_clients_explain_is_frozen_with_the_first_scan(joined: int, frozen: bool) -> None:
    """Python would scan the survivors once more, and all of them are in use."""
    clients = [10]
    heap = Heap(lambda: clients[0])
    heap.start()
    gc.collect(0)
    kept = Cycle()
    clients[0] += joined
    try:
        gc.collect(0)
        assert any(thing is kept for thing in gc.get_objects()) is not frozen
    finally:
        heap.close()


def test_frozen_garbage_goes_when_there_is_too_much(heap: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at everything thaws the frozen objects, and freezes the rest."""
    lost = Cycle()
    gone = weakref.ref(lost)
    promote()
    heap.check()
    del lost
    promote()
    heap.check()
    assert gone() is not None
    in_use = sys.getallocatedblocks()
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: in_use + 2 * MAX_BLOCKS)
    heap.check()
    assert gone() is None
    assert gc.get_freeze_count() > 10_000


def test_each_pause_is_counted_by_its_generation(heap: Heap) -> None:
    """Python's own and ours; the longest is a metric too."""
    before = {generation: counted(generation) for generation in "012"}
    promote()
    heap.check()
    assert {generation: counted(generation) - before[generation] for generation in "012"} == {"0": 1, "1": 2, "2": 0}
    greatest = {"generation": "1", "window": "all"}
    assert (REGISTRY.get_sample_value("headgate_gc_pause_greatest_seconds", greatest) or 0) > 0


def test_the_collector_is_left_as_it_was_found() -> None:
    """By a closed heap, once or twice; nothing is frozen any more."""
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


# When everything is looked through ------------------------------------------------------------------------------------------


class Process:
    """A process with 500,000 blocks in use and 100 clients, checked once a second."""

    def __init__(self) -> None:
        self.heap = Heap(lambda: 100)
        self.heap._least_blocks, self.heap._least_clients = 500_000, 100
        self.now_s = self.cpu_s = 0.0

    def is_swollen(self, more_blocks: int, clients: int = 100, share: float = 0.5) -> bool:
        """Ask a second later, in which the process has used a share of the processor."""
        self.now_s += 1
        self.cpu_s += share
        return self.heap.is_swollen(self.now_s, self.cpu_s, 500_000 + more_blocks, clients)


@pytest.mark.parametrize(
    ("more_blocks", "clients", "share", "expected"),
    [
        (SWOLLEN_BLOCKS + 1, 100, 0.5, False),
        (SWOLLEN_BLOCKS + 1, 100, IDLE_SHARE / 2, True),
        (SWOLLEN_BLOCKS + 1, 0, 0.5, True),
        (SWOLLEN_BLOCKS, 0, 0.0, False),
        (MAX_BLOCKS + 1, 100, 1.0, True),
        (MAX_BLOCKS + 1, 10_100, 0.0, False),
    ],
    ids=["busy", "idle", "without clients", "little", "beyond the bound", "clients explain it"],
)
def test_memory_that_clients_do_not_explain_is_looked_through_when_idle_or_beyond_the_bound(
    more_blocks: int, clients: int, share: float, expected: bool
) -> None:
    """A pause among many clients comes only when it must."""
    assert Process().is_swollen(more_blocks, clients, share) is expected


def test_clients_that_leave_hide_no_growth() -> None:
    """The least that was in use counts, with the clients of that time."""
    process = Process()
    assert not process.is_swollen(-50_000, clients=10)
    assert process.is_swollen(-50_000 + SWOLLEN_BLOCKS + BLOCKS_PER_CLIENT * 90 + 1, share=0.0)


@given(st.lists(st.tuples(st.integers(-2000, 2000), st.integers(-200_000, 200_000), st.sampled_from([0.0, 0.5]))))
def test_unexplained_memory_has_a_bound(seconds: list[tuple[int, int, float]]) -> None:
    """Whatever comes and goes, the unexamined part is at most MAX_BLOCKS above the least, and SWOLLEN_BLOCKS when idle."""
    process, blocks, clients = Process(), 500_000, 100
    least, least_clients = blocks, clients
    for come, more, share in seconds:
        clients, blocks = max(0, clients + come), max(0, blocks + more)
        if blocks < least:
            least, least_clients = blocks, clients
        unexplained = blocks - least - BLOCKS_PER_CLIENT * max(0, clients - least_clients)
        bound = MAX_BLOCKS if clients and share > IDLE_SHARE else SWOLLEN_BLOCKS
        assert process.is_swollen(blocks - 500_000, clients, share) is (unexplained > bound)
