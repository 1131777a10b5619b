"""The drain moves clients to another gateway, one after the other, before this one stops.

In: the namespaces with their clients, the seconds that it may take, and which connections wait for the answer of a function
(requests/page_requests.py). Out: a notice to each client in turn that it must move (moves.py), evenly over that time. A client
that waits for an answer has its turn after that. Once `begun`, new clients are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import shuffle
from time import monotonic

import structlog

from headgate.errors import leaving
from headgate.node.namespace import Namespace
from headgate.runtime.loop import sleep

from .moves import LEAVE_WITHIN_S, Moves

log = structlog.get_logger("headgate.drain")

# The time between two groups of notices.
_POLL_S = 0.05
# A core admits 2,600 returning clients per second (docs/operations/scale.md), and has other work to do.
JOINS_PER_S = 1000


class Drain:
    """See the module. `now_s` is monotonic, `wait` lets the loop run.

    Attributes:
        begun: whether new clients are refused.
        asking: returns the connections that wait for an answer. A closed one counts while its function runs.
    """

    def __init__(
        self, namespaces: Mapping[str, Namespace], now_s: Callable[[], float] = monotonic, wait: Callable[[float], None] = sleep
    ) -> None:
        self._namespaces = namespaces
        self._now_s, self._wait = now_s, wait
        self.begun = False
        self.asking: Callable[[], Collection[object]] = tuple

    def check(self) -> None:
        """Refuse a new client once the drain has begun. Raises BusUnavailable with the advice to try another gateway."""
        if self.begun:
            raise leaving()

    def run(self, within_s: float, *, alone: bool = False) -> None:
        """Notify clients to move, in random order, and end each that remains at the end of its turn. Lets the loop run.

        Returns after about `within_s` seconds at most, and at once without clients and functions that answer them.

        Args:
            within_s: the total time.
            alone: no other gateway serves the clients. They move at once when all functions have ended.
        """
        self.begun = True
        began_s = self._now_s()
        while alone and self.asking() and self._now_s() - began_s < within_s:
            self._wait(_POLL_S)
        within_s = 0 if alone else within_s
        leave_within_s = min(LEAVE_WITHIN_S, within_s / 2)
        moves = Moves(self._namespaces, "restart", leave_within_s, self._now_s)
        waiting = list(moves.connections())
        shuffle(waiting)
        spread_s, total = within_s - leave_within_s, len(waiting)
        began_s = self._now_s()
        if spread_s and total / spread_s > JOINS_PER_S:
            log.warning("clients move too fast", per_s=round(total / spread_s), advice="raise HEADGATE_DRAIN_S, or add gateways")
        while True:
            # The first is notified at the beginning, and the last when it still has time to leave.
            elapsed_s = self._now_s() - began_s
            left = 0 if elapsed_s >= spread_s else max(0, total - 1 - int(total * elapsed_s / spread_s))
            asking = self.asking() if elapsed_s < spread_s else ()
            moves.notify(each for each in waiting[left:] if each not in asking)
            waiting[left:] = [each for each in waiting[left:] if each in asking and not each.closed]
            while waiting and waiting[-1].closed:
                waiting.pop()
            moves.end_late(asking)
            if not (waiting or moves.under_way() or asking):
                return
            self._wait(_POLL_S)
