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
    ("state", "by"), list(product(FenceState, (FenceInput.BEGIN, FenceInput.EXPEDITE, FenceInput.PONG, FenceInput.FAIL)))
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
    if (state, by) in MACHINE:
        inputs[by]()
        assert fence.state is MACHINE[state, by]
    else:
        with pytest.raises(IllegalStep):
            inputs[by]()
        assert fence.state is state


def test_each_fence_has_a_token_of_its_own_across_connections() -> None:
    """A late answer must not be taken for one of the new connection."""
    fence = fence_in(IN_FLIGHT)
    before = fence.token
    fence.reset()
    fence.begin(5, frozenset(), expedited=False)
    assert fence.token != before
