"""A state machine has one table of (state, step) → state, and one error for a step outside the table. No I/O.

The owner stores the state, such as in a slot of a session or client; the machine computes the next one. Two states with a single
transition need only a boolean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State")
Step = TypeVar("Step")


class IllegalStep(RuntimeError):
    """A step is not allowed in this state, which is a bug. Attributes: `name`, `state`, `step`."""

    def __init__(self, name: str, state: object, step: object) -> None:
        super().__init__(f"{name}: {_name(state)} allows no step {_name(step)}")
        self.name, self.state, self.step = name, state, step


class Machine(dict[tuple[State, Step], State]):
    """See the module. `machine[state, step]` is the state after a step.

    It costs one lookup, because each request takes several.

    Args:
        name: the name of the stateful object, for the error.
        table: the state after each allowed step.
    """

    def __init__(self, name: str, table: Mapping[tuple[State, Step], State]) -> None:
        super().__init__(table)
        self.name = name

    def __missing__(self, place: tuple[State, Step]) -> State:
        """Raise IllegalStep, because the table has no such step."""
        raise IllegalStep(self.name, *place)


def between(name: str, table: Mapping[State, Iterable[State]]) -> Machine[State, State]:
    """Return a machine with states as steps, given the allowed successors of each state."""
    return Machine(name, {(state, after): after for state, following in table.items() for after in following})


def _name(part: object) -> str:
    return part.name if isinstance(part, Enum) else str(part)
