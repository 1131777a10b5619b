"""A state machine: one table of (state, step) → state, and one error for a step that the table does not have. No I/O.

The owner keeps the state, as a session or a client has a slot for it; the machine says what follows. Where two states have one
transition between them, a boolean will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

State = TypeVar("State")
Step = TypeVar("Step")


class IllegalStep(RuntimeError):
    """A machine was asked for a step that its state does not allow: a fault of ours. Attributes: `name`, `state`, `step`."""

    def __init__(self, name: str, state: object, step: object) -> None:
        super().__init__(f"{name}: {_name(state)} allows no step {_name(step)}")
        self.name, self.state, self.step = name, state, step


class Machine(Generic[State, Step]):
    """See the module.

    Args:
        name: of the thing that has the states, for the error.
        table: the state after each step that is allowed.
    """

    __slots__ = ("name", "table")

    def __init__(self, name: str, table: Mapping[tuple[State, Step], State]) -> None:
        self.name, self.table = name, table

    def after(self, state: State, step: Step) -> State:
        """Return the state after a step.

        Raises:
            IllegalStep: the table has no such step from here.
        """
        try:
            return self.table[state, step]
        except KeyError:
            raise IllegalStep(self.name, state, step) from None


def between(name: str, table: Mapping[State, Iterable[State]]) -> Machine[State, State]:
    """Return a machine whose steps are the states themselves: those that may follow each one."""
    return Machine(name, {(state, after): after for state, following in table.items() for after in following})


def _name(part: object) -> str:
    return part.name if isinstance(part, Enum) else str(part)
