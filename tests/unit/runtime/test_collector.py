"""The policy of garbage collection: the newest often, everything only when it is idle or must be, and garbage has a bound."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime.collector import (
    BLOCKS_PER_CLIENT,
    IDLE_LOOKS,
    IDLE_SHARE,
    MAX_BLOCKS,
    SWOLLEN_BLOCKS,
    TRANSITIONS,
    Action,
    Collector,
    HeapState,
    HeapStep,
    IllegalHeapStep,
    Measures,
)

START = Measures(now_s=0.0, cpu_s=0.0, promotions=0, blocks=500_000, clients=100)


class Process:
    """A process that works, with its policy; `look` lets a second pass."""

    def __init__(self) -> None:
        self.now = START
        self.collector = Collector(START)

    def look(self, share: float = 0.5, **changes: int) -> Action:
        """Ask for the action a second later, in which the process has used a share of the processor."""
        self.now = replace(self.now, now_s=self.now.now_s + 1, cpu_s=self.now.cpu_s + share, **changes)
        action = self.collector.look(self.now)
        if action is not Action.NOTHING:
            self.now = replace(self.now, promotions=0)
        if action is Action.COLLECT_ALL:
            self.collector.collected_all(self.now)
        return action


def test_nothing_is_done_while_nothing_was_promoted() -> None:
    """Clients that only get events make no object that lasts."""
    process = Process()
    assert [process.look() for _ in range(10)] == [Action.NOTHING] * 10


@pytest.mark.parametrize("promotions", [1, 20])
def test_promoted_objects_are_frozen_with_the_next_look(promotions: int) -> None:
    """After a quiet second of joins, and in a storm of them: a look at the young ones costs the same."""
    process = Process()
    assert process.look(promotions=promotions) is Action.SETTLE
    assert process.collector.state is HeapState.STEADY


def test_memory_that_clients_explain_needs_no_look_at_everything() -> None:
    """Ten thousand more of them, and all that each may have."""
    process = Process()
    for clients in range(100, 10_100, 500):
        blocks = START.blocks + BLOCKS_PER_CLIENT * (clients - 100)
        assert process.look(promotions=20, blocks=blocks, clients=clients) is Action.SETTLE


def test_memory_that_nobody_explains_is_looked_through_when_the_process_is_idle() -> None:
    """Not while it works, as long as the bound is not reached."""
    process = Process()
    swollen = START.blocks + SWOLLEN_BLOCKS + 1
    assert process.look(blocks=swollen) is Action.NOTHING
    assert [process.look(share=IDLE_SHARE / 2) for _ in range(IDLE_LOOKS - 1)] == [Action.NOTHING] * (IDLE_LOOKS - 1)
    assert process.look(share=IDLE_SHARE / 2) is Action.COLLECT_ALL
    assert process.collector.state is HeapState.STEADY


def test_a_moment_of_work_begins_the_idle_time_anew() -> None:
    """Idle is a row of looks."""
    process = Process()
    process.look(blocks=START.blocks + SWOLLEN_BLOCKS + 1)
    for _ in range(10):
        assert [process.look(share=0.0) for _ in range(IDLE_LOOKS - 1)] == [Action.NOTHING] * (IDLE_LOOKS - 1)
        assert process.look(share=0.5) is Action.NOTHING


def test_without_clients_nobody_has_to_wait() -> None:
    """A gateway that everybody has left looks at once."""
    process = Process()
    assert process.look(blocks=START.blocks + SWOLLEN_BLOCKS + 1, clients=0) is Action.COLLECT_ALL


def test_memory_beyond_the_bound_is_looked_through_at_once() -> None:
    """However busy the process is."""
    assert Process().look(share=1.0, blocks=START.blocks + MAX_BLOCKS + 1) is Action.COLLECT_ALL


def test_what_a_look_at_everything_leaves_is_what_there_is_to_be() -> None:
    """A large cache of the application causes one such look, and not one after the other."""
    process = Process()
    assert process.look(blocks=START.blocks + 2 * MAX_BLOCKS) is Action.COLLECT_ALL
    assert [process.look(share=0.0) for _ in range(20)] == [Action.NOTHING] * 20


def test_memory_that_is_given_back_needs_no_look() -> None:
    """A burst of requests is over."""
    process = Process()
    process.look(blocks=START.blocks + SWOLLEN_BLOCKS + 1)
    assert process.look(blocks=START.blocks) is Action.NOTHING
    assert process.collector.state is HeapState.STEADY


def test_clients_that_leave_hide_no_growth() -> None:
    """The least that was in use counts, with the clients of that time."""
    process = Process()
    process.look(blocks=START.blocks - 50_000, clients=10)
    process.look(blocks=START.blocks - 50_000 + SWOLLEN_BLOCKS + 1)
    assert process.collector.state is HeapState.SWOLLEN


@pytest.mark.parametrize("state", HeapState)
@pytest.mark.parametrize("step", HeapStep)
def test_a_step_that_the_table_does_not_have_raises(state: HeapState, step: HeapStep) -> None:
    """And every other leads to its state."""
    collector = Collector(START)
    collector.state = state
    if step in TRANSITIONS[state]:
        collector._advance(step)
        assert collector.state is TRANSITIONS[state][step]
    else:
        with pytest.raises(IllegalHeapStep):
            collector._advance(step)


SECONDS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 0.5, 1.0]),  # share of the processor
        st.integers(0, 3),  # promotions
        st.integers(-2000, 2000),  # clients that come or go
        st.integers(0, 200_000),  # blocks of garbage in cycles
        st.integers(-200_000, 200_000),  # blocks that are in use, for whatever
    ),
    max_size=60,
)


@given(SECONDS)
def test_garbage_has_a_bound_and_a_busy_process_no_pause_without_need(seconds: list[tuple[float, int, int, int, int]]) -> None:
    """Whatever comes: unexplained growth is below MAX_BLOCKS behind each look, and promoted objects are frozen by it."""
    process, per_client = Process(), BLOCKS_PER_CLIENT // 4
    garbage, used, clients, idle = 0, 400_000, 100, 0
    least, least_clients = START.blocks, START.clients
    for share, promotions, come, more_garbage, more_used in seconds:
        clients, garbage, used = max(0, clients + come), garbage + more_garbage, max(0, used + more_used)
        blocks = garbage + used + per_client * clients
        if blocks < least:
            least, least_clients = blocks, clients
        unexplained = blocks - least - BLOCKS_PER_CLIENT * max(0, clients - least_clients)
        idle = idle + 1 if share <= IDLE_SHARE else 0
        action = process.look(share, promotions=process.now.promotions + promotions, blocks=blocks, clients=clients)
        assert process.now.promotions == 0
        assert process.collector.state is not HeapState.GROWING
        if action is Action.COLLECT_ALL:
            assert unexplained > MAX_BLOCKS or (unexplained > SWOLLEN_BLOCKS and (not clients or idle >= IDLE_LOOKS))
            garbage, least, least_clients = 0, used + per_client * clients, clients
            process.now = replace(process.now, blocks=least)
            process.collector.collected_all(process.now)
        else:
            assert unexplained <= MAX_BLOCKS
            assert (action is Action.SETTLE) == (promotions > 0)
