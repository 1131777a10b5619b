"""The one state machine."""

from enum import Enum, IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime.machine import IllegalStep, Machine, between

TABLES = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 3))


class Light(Enum):
    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    LOW = 0
    HIGH = 1


@given(TABLES, st.integers(0, 3), st.integers(0, 3))
def test_a_step_leads_where_the_table_says_and_is_taken_alone(table: dict[tuple[int, int], int], state: int, step: int) -> None:
    """An error keeps the state and the step, for a search for the fault."""
    machine = Machine("anything", table)
    if (state, step) in table:
        assert machine[state, step] == table[state, step]
    else:
        with pytest.raises(IllegalStep) as raised:
            machine[state, step]
        assert (raised.value.name, raised.value.state, raised.value.step) == ("anything", state, step)


@pytest.mark.parametrize(
    ("state", "step", "said"), [(Light.RED, Light.RED, "RED"), (Level.LOW, Level.LOW, "LOW"), ("a", "b", "b")]
)
def test_an_error_names_machine_state_and_step(state: object, step: object, said: str) -> None:
    """Members of an enum are named as in the code."""
    with pytest.raises(IllegalStep, match=f"lamp: {said} allows no step {said}"):
        Machine[object, object]("lamp", {})[step, step]


def test_where_steps_are_states_each_leads_to_itself() -> None:
    """A table of the states that may follow is enough."""
    machine = between("lamp", {Light.RED: [Light.GREEN], Light.GREEN: []})
    assert machine[Light.RED, Light.GREEN] is Light.GREEN
    with pytest.raises(IllegalStep):
        machine[Light.GREEN, Light.RED]
