"""The states of a fence, held against their table."""

from __future__ import annotations

from itertools import product

import pytest

from headgate.delivery.bus.fence import MACHINE, Fence, FenceInput, FenceState
from headgate.runtime.machine import IllegalStep

NONE, EXPEDITED, IN_FLIGHT, LATE = FenceState.NONE, FenceState.EXPEDITED, FenceState.IN_FLIGHT, FenceState.LATE


def fence_in(state: FenceState) -> Fence:
    """Return a fence in this state."""
    fence = Fence()
    if state is not NONE:
        fence.begin(5, frozenset(), expedited=state is EXPEDITED)
    if state is LATE:
        fence.tick()
    assert fence.state is state
    return fence


@pytest.mark.parametrize(
    ("state", "by"), product(FenceState, (FenceInput.BEGIN, FenceInput.EXPEDITE, FenceInput.PONG, FenceInput.FAIL))
)
def test_a_fence_follows_its_table_and_refuses_the_rest(state: FenceState, by: FenceInput) -> None:
    """A second fence, or a PONG without one, is a fault of ours."""
    fence = fence_in(state)
    inputs = {
        FenceInput.BEGIN: lambda: fence.begin(5, frozenset(), expedited=False),
        FenceInput.EXPEDITE: lambda: fence.begin(5, frozenset(), expedited=True),
        FenceInput.PONG: fence.pong,
        FenceInput.FAIL: fence.fail,
    }
    if (state, by) in MACHINE.table:
        inputs[by]()
        assert fence.state is MACHINE.table[state, by]
    else:
        with pytest.raises(IllegalStep):
            inputs[by]()
        assert fence.state is state


@pytest.mark.parametrize(
    ("expedited", "states", "missed"),
    [(False, [LATE, LATE, LATE], [1, 2, 3]), (True, [IN_FLIGHT, LATE, LATE], [0, 1, 2])],
    ids=["regular", "expedited"],
)
def test_ticks_count_a_fence_as_late_and_spare_an_expedited_one_the_first(
    expedited: bool, states: list[FenceState], missed: list[int]
) -> None:
    """An expedited fence may have begun just before the tick."""
    fence = Fence()
    fence.begin(5, frozenset(), expedited=expedited)
    seen = []
    for _ in states:
        fence.tick()
        seen.append((fence.state, fence.missed))
    assert seen == list(zip(states, missed, strict=True))


def test_a_tick_without_a_fence_counts_nothing() -> None:
    """The feed decides whether that is late."""
    fence = Fence()
    fence.tick()
    assert (fence.state, fence.missed) == (NONE, 0)


def test_a_pong_takes_back_all_that_was_missed() -> None:
    """Only ticks in a row make a dead connection."""
    fence = fence_in(LATE)
    fence.pong()
    assert (fence.state, fence.missed) == (NONE, 0)


@pytest.mark.parametrize(("state", "missed"), [(EXPEDITED, 0), (IN_FLIGHT, 1), (LATE, 2)])
def test_a_failure_counts_as_missed_unless_it_was_expedited(state: FenceState, missed: int) -> None:
    """The next regular fence is due soon after an expedited one, and judges."""
    fence = fence_in(state)
    fence.fail()
    assert (fence.state, fence.missed) == (NONE, missed)


def test_each_fence_has_a_token_of_its_own_across_connections() -> None:
    """A late answer must not be taken for one of the new connection."""
    fence = fence_in(IN_FLIGHT)
    before = fence.token
    fence.reset()
    fence.begin(5, frozenset(), expedited=False)
    assert fence.token != before
