"""The state of this gateway process, as /health and the console show it. Each part fills in what it knows. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class State:
    """The state of the whole process. `admission` is a word of population/shedding.py, `paused` lists the pauses."""

    sessions: int = 0
    draining: bool = False
    admission: str = "admitting"
    paused: list[str] = field(default_factory=list)
    revocations_known: bool = False
    revocations_error: str | None = None


class Describes(Protocol):
    """A part of the gateway."""

    def describe(self, state: State) -> None:
        """Fill in the facts that this part knows. Never waits."""


def state_of(parts: Iterable[Describes]) -> State:
    """Return the facts of all parts. Never waits."""
    state = State()
    for part in parts:
        part.describe(state)
    return state
