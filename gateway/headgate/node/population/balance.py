"""Decides how many clients a gateway process must move now so that all processes have equally many. No I/O.

    RESTING ── begin ──► MOVING ── spend ──► SPENT
       ▲ ▲                 │                   │
       │ └───── reach ─────┘                   │
       └──────────────── renew ────────────────┘      renew: from every state

In: the loads of all processes, every few seconds; an occasion to balance them, which is a finished deploy or an operator's
request. Out: how many clients to notify now (`due`).

Rules. 1. A process begins when it has more than ABOVE_MEAN of its share and FEW more, and moves clients until it has its share.
The share is the largest mean of the last MEAN_TURNS turns. No process counts the moving clients, and the reports of the others
are some seconds old, so a single mean may be too small while clients move. 2. So a process below its share moves no client, and
takes at most `per_s` new clients, because the excess of all is spread over those below. 3. For each occasion it notifies at most
BUDGET times its excess. This ends the balancing if clients return to the process that they left, as with a sticky proxy.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from enum import Enum

from headgate.runtime.machine import between

# As in workers/scoreboard.py, for newcomers.
ABOVE_MEAN = 1.05
FEW = 4
# A proxy that chooses at random sends some clients back. With two gateways it is half of them.
BUDGET = 3
# Turns in which each process reads the others again.
MEAN_TURNS = 4
# After a stall, the loop catches up on at most this.
AT_ONCE_S = 1.0


class State(Enum):
    """Whether this process moves clients."""

    RESTING = "resting"
    MOVING = "moving"
    SPENT = "spent"  # its budget for this occasion, and it still has too many clients, because they come back


# To RESTING from every state, as a new occasion renews it.
_MACHINE = between(
    "balance",
    {
        State.RESTING: (State.RESTING, State.MOVING),
        State.MOVING: (State.RESTING, State.SPENT),
        State.SPENT: (State.RESTING,),
    },
)


class Balance:
    """See the module. `now_s` is monotonic, with any start."""

    def __init__(self) -> None:
        self.state = State.RESTING
        self.target = 0
        self._occasion_at_s, self._newcomers_per_s = -math.inf, 0.0
        self._budget: int | None = None  # for this occasion; None before it has begun
        self._means: deque[float] = deque(maxlen=MEAN_TURNS)
        self._per_s = 0.0
        self._owed, self._owed_at_s = 0.0, 0.0

    def decide(self, now_s: float, own: int, others: Collection[int], occasion: tuple[float, float] | None) -> None:
        """Take the loads of all processes. Moving starts only with an occasion and after MEAN_TURNS, and then continues.

        An occasion is its time, and the new clients per second for each process.
        """
        if occasion is not None and occasion[0] > self._occasion_at_s:
            self._occasion_at_s, self._newcomers_per_s = occasion
            self._budget = None
            self._move(State.RESTING)
        loads = [own, *others]
        self._means.append(sum(loads) / len(loads))
        mean, has_means = max(self._means), len(self._means) == MEAN_TURNS
        if self.state is State.RESTING and occasion is not None and has_means and own > mean * ABOVE_MEAN + FEW:
            self.target = math.ceil(mean)
            if self._budget is None:
                self._budget = BUDGET * (own - self.target)
            self._owed, self._owed_at_s = 0.0, now_s
            self._move(State.MOVING)
        if self.state is State.MOVING:
            self.target = max(self.target, math.ceil(mean))
            excess = sum(max(0, load - self.target) for load in loads)
            takers = sum(load < mean for load in loads)
            own_part = max(0, own - self.target) / excess if excess else 0.0
            self._per_s = self._newcomers_per_s * takers * own_part

    def due(self, now_s: float, own: int, under_way: int) -> int:
        """Return how many clients to notify now. `under_way` clients were notified and are still part of `own`."""
        if self.state is not State.MOVING:
            return 0
        left = own - under_way - self.target
        if own <= self.target:
            self._move(State.RESTING)
            return 0
        passed_s = now_s - self._owed_at_s
        self._owed_at_s = now_s
        self._owed = min(self._owed + self._per_s * passed_s, max(1.0, self._per_s * AT_ONCE_S))
        assert self._budget is not None
        count = max(0, min(int(self._owed), left, self._budget))
        self._owed -= count
        self._budget -= count
        if not self._budget and not under_way and not count:
            self._move(State.SPENT)
        return count

    def _move(self, state: State) -> None:
        self.state = _MACHINE[self.state, state]
