"""The states of a client: every step that the table has, none that it does not, and no way out of order."""

from random import Random

import pytest

from headgate.delivery.state import FIRST, MACHINE, STATES, TRANSITIONS, Phase, Pressure, State, Step
from headgate.runtime.machine import IllegalStep

FROM_LOG = {Phase.ARRIVING_BEHIND, Phase.COLLECTING, Phase.READING}
WALK_STEPS = 1_000_000


def allowed(state: State) -> dict[Step, State]:
    """Return the steps from a state, and the states that they lead to."""
    return {step: after for (before, step), after in MACHINE.items() if before is state}


@pytest.mark.parametrize("state", STATES.values(), ids=repr)
def test_a_step_leads_where_the_table_says_or_raises(state: State) -> None:
    """Every state with every step, against the rows of the table, read one by one."""
    for step in Step:
        rows = [
            (phases[state.phase], pressures[state.pressure])
            for row, phases, pressures in TRANSITIONS
            if row is step and state.phase in phases and state.pressure in pressures
        ]
        if rows:
            (expected,) = rows
            following = MACHINE[state, step]
            assert (following.phase, following.pressure) == expected
            assert STATES[expected] is following
        else:
            with pytest.raises(IllegalStep) as error:
                MACHINE[state, step]
            assert (error.value.state, error.value.step) == (state, step)


def test_every_state_can_be_reached_and_left() -> None:
    """From the first one; and only a departed client stays where it is."""
    reached, fresh = {FIRST}, [FIRST]
    while fresh:
        following = set(allowed(fresh.pop()).values()) - reached
        reached |= following
        fresh += following
    assert reached == set(STATES.values())
    assert [state.phase for state in STATES.values() if not allowed(state)] == [Phase.LEFT]
    assert all(Step.LEFT in allowed(state) for state in STATES.values() if state.phase is not Phase.LEFT)


def test_a_client_that_arrives_is_never_fed_behind_its_welcome() -> None:
    """Only a welcome, a resume or leaving ends an arrival."""
    ends = {Step.WELCOMED, Step.RESUMED, Step.LEFT}
    for state in STATES.values():
        if state.arriving:
            assert all(following.arriving for step, following in allowed(state).items() if step not in ends)
        else:
            assert not any(following.arriving for following in allowed(state).values())


def test_reading_ends_in_a_handover_and_a_handover_begins_with_reading() -> None:
    """There is one way from the log to the feed, but for a lost log and for leaving."""
    for state in STATES.values():
        for step, following in allowed(state).items():
            if state.phase is Phase.READING and following.phase not in (Phase.READING, Phase.COLLECTING):
                assert step in (Step.REACHED_FEED, Step.LOG_LOST, Step.LEFT)
            if following.phase is Phase.HANDOVER and state.phase is not Phase.HANDOVER:
                assert (state.phase, step) == (Phase.READING, Step.REACHED_FEED)


def test_a_browser_that_was_warned_hears_that_it_is_over_when_it_is_fed_live_again() -> None:
    """EASED is for clients that the log feeds; the step that ends that ends it."""
    assert {state.phase for state in STATES.values() if state.pressure is Pressure.EASED} == FROM_LOG
    for state in STATES.values():
        if state.pressure is Pressure.EASED:
            for step, following in allowed(state).items():
                if step is not Step.LEFT and following.phase not in FROM_LOG:
                    assert following.pressure is Pressure.OK


def test_a_lost_log_leaves_nobody_in_the_old_one() -> None:
    """From everywhere, so that no position of the old log decides anything in the new one."""
    for state in STATES.values():
        if state.phase is not Phase.LEFT:
            assert MACHINE[state, Step.LOG_LOST].phase in (Phase.ARRIVING, Phase.LIVE)


def test_a_million_random_steps_hold_direct_writes_exactly_while_the_log_or_a_handover_feeds() -> None:
    """Counted as a connection counts them: never taken back more often than held."""
    random = Random(1)
    state, holds = FIRST, 0
    walk = {each: tuple(allowed(each).values()) for each in STATES.values()}
    for _ in range(WALK_STEPS):
        following = random.choice(walk[state])
        holds += state.direct - following.direct
        assert holds == (following.phase in FROM_LOG or following.phase is Phase.HANDOVER)
        state = FIRST if following.phase is Phase.LEFT else following
