"""The scoreboard has the state and connections of each worker of one process manager, in shared memory.

The process manager takes a row for each worker before the fork. The worker writes its row from then on. There are no waits and
no locks, because each row has one writer at a time and each cell is one aligned machine word. `MACHINE` has the states of a
worker.

`turns` decides whether a worker takes the next connection of the shared port, or leaves it to a worker with fewer.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from headgate.runtime.machine import between
from headgate.settings.settings import MAX_WORKERS

# A worker leaves the next connection to others when it has more than its share times this, plus a few.
ABOVE_SHARE = 1.05
FEW = 4
LEAVE_S = 0.005


class State(IntEnum):
    """The state of a worker. A new row is FREE, because shared memory starts as zeros."""

    FREE = 0
    BOOTING = 1
    SERVING = 2
    DRAINING = 3
    # The last gateway of its namespaces in the registry, so no other gateway can take its clients.
    ALONE = 4


MACHINE = between(
    "worker",
    {
        State.FREE: frozenset({State.BOOTING}),
        State.BOOTING: frozenset({State.SERVING, State.FREE}),
        State.SERVING: frozenset({State.DRAINING, State.FREE}),
        State.DRAINING: frozenset({State.ALONE, State.FREE}),
        State.ALONE: frozenset(),  # until the next worker takes the row
    },
)


class Row(NamedTuple):
    """One worker. `age` counts the workers of a process manager from 1. `process_id` is 0 until the worker has started."""

    slot: int
    state: State
    age: int
    process_id: int
    connections: int

    @property
    def number(self) -> int:
        """The worker's number in texts, from 1. Another worker may reuse it later."""
        return self.slot + 1


_CELLS = len(Row._fields) - 1


class Scoreboard:
    """See the module. Create it before the fork. `is_alive` gets a process id."""

    def __init__(self, rows: int = MAX_WORKERS, is_alive: Callable[[int], bool] | None = None) -> None:
        # The last cells are how many boots have failed, whether any worker has served, and whether all stop. Anonymous memory,
        # because a clean-up might delete a file.
        self._cells = memoryview(mmap.mmap(-1, (rows * _CELLS + 3) * 8)).cast("q")
        self._rows = rows
        self._is_alive = is_alive or _is_alive

    def take(self, age: int) -> Row:
        """Take a free row, or a dead worker's, for a worker before its fork.

        Raises RuntimeError if every row belongs to a living worker.
        """
        for index in range(self._rows):
            row = self.row(index)
            is_dead = row.state is not State.FREE and row.process_id and not self._is_alive(row.process_id)
            if is_dead and row.state is State.BOOTING:
                self._cells[-3] += 1
            if is_dead or row.state is State.FREE:
                self._cells[index * _CELLS] = State.FREE  # so that no process sees a mix of two workers
                self._cells[index * _CELLS + 1] = age
                self._cells[index * _CELLS + 2] = self._cells[index * _CELLS + 3] = 0
                self.move(index, State.BOOTING)
                return self.row(index)
        raise RuntimeError(f"more than {self._rows} workers")

    def begin(self, index: int, process_id: int) -> None:
        """Store the process id of a worker."""
        self._cells[index * _CELLS + 2] = process_id

    def move(self, index: int, state: State) -> None:
        """Move a worker to its next state. Raises IllegalStep for a state that cannot follow."""
        self._cells[index * _CELLS] = MACHINE[self.row(index).state, state]
        if state is State.SERVING:
            self._cells[-3], self._cells[-2] = 0, 1

    @property
    def has_served(self) -> bool:
        """Whether any worker has served, including ended ones."""
        return bool(self._cells[-2])

    @property
    def failed_boots(self) -> int:
        """How many workers have died while they booted, since the last one served."""
        return self._cells[-3]

    def stop(self) -> None:
        """Record that the process manager stops. Call it before the signal to the workers, which a new fork would miss."""
        self._cells[-1] = 1

    @property
    def is_stopping(self) -> bool:
        """Whether the process manager is stopping."""
        return bool(self._cells[-1])

    def count(self, index: int, connections: int) -> None:
        """Store the number of a worker's connections."""
        self._cells[index * _CELLS + 3] = connections

    def row(self, index: int) -> Row:
        """Return a row. Raises IndexError if there is none."""
        if not 0 <= index < self._rows:
            raise IndexError(index)
        state, age, process_id, connections = self._cells[index * _CELLS : (index + 1) * _CELLS]
        return Row(index, State(state), age, process_id, connections)

    def rows(self) -> list[Row]:
        """Return the rows of living workers and of those before their fork."""
        taken = (row for row in map(self.row, range(self._rows)) if row.state is not State.FREE)
        return [row for row in taken if not row.process_id or self._is_alive(row.process_id)]

    def connections(self) -> list[int]:
        """Return the connections of each serving worker. Makes no system call, because it runs for each connection."""
        cells = self._cells
        ends = range(0, self._rows * _CELLS, _CELLS)
        return [cells[at + 3] for at in ends if cells[at] == State.SERVING]

    def none_serves(self) -> bool:
        """Return whether every worker is leaving, as when the process manager stops."""
        return all(row.state in (State.DRAINING, State.ALONE) for row in self.rows())

    def someone_was_last(self) -> bool:
        """Return whether a worker has left the registry as the last gateway of its namespaces."""
        return any(self.row(index).state is State.ALONE for index in range(self._rows))


def turns() -> Callable[[int, Sequence[int]], float]:
    """Return a function for one worker's listening socket, which gets its connections and those of each serving worker.

    It returns for how many seconds to leave the next connection to the others; 0 to take it now. The kernel wakes every worker
    for a connection and gives it to the first that accepts, which may be the same one each time. A worker above its share waits
    for a moment before it accepts. It then takes connections that the others have left, so a blocked worker delays a connection
    by one such moment.
    """
    left_at: int | None = None

    def leave_s(own: int, all_serving: Sequence[int]) -> float:
        nonlocal left_at
        total = sum(all_serving)
        is_left = left_at is not None and total <= left_at
        if is_left or len(all_serving) < 2 or own <= total / len(all_serving) * ABOVE_SHARE + FEW:
            left_at = None
            return 0.0
        left_at = total
        return LEAVE_S

    return leave_s


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
