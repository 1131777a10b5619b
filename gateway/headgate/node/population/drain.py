"""The drain moves clients to another gateway, one after the other, before this one stops.

In: the namespaces with their clients, the seconds that it may take, and which connections wait for the answer of a function
(requests/page_requests.py). Out: a notice to each client in turn that it must move, evenly over that time. A client
that waits for an answer has its turn after that. Once `begun`, new clients are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from random import shuffle
from time import monotonic
from typing import cast

import structlog

from headgate.delivery.client import Client
from headgate.errors import leaving
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import STATUS, notice_packet
from headgate.node.connection import Connection, connection_of
from headgate.node.namespace import Namespace
from headgate.runtime.loop import sleep
from headgate.runtime.metrics import MOVED

log = structlog.get_logger("headgate.drain")

# The time for a client to leave after its notice. It is short, because the caller spreads the notices already.
LEAVE_WITHIN_S = 1.0
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


class Moves:
    """Notifies clients to reconnect, and ends the connections that do not leave soon after.

    Clients leave within `within_s`, at a random moment, and come back at once with their cursor. They get `reason`, as do the log
    and the metrics. `now_s` is monotonic.
    """

    def __init__(
        self, namespaces: Mapping[str, Namespace], reason: str, within_s: float, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._namespaces, self._reason, self._within_s, self._now_s = namespaces, reason, within_s, now_s
        moving = {"moving": {"reason": reason, "within_s": within_s}}
        self._frames = {name: message_frame(notice_packet(name, STATUS, moving)) for name in namespaces}
        self._until_s: dict[Connection, float] = {}  # connections with a notice, in the order of their ends

    def connections(self) -> Iterator[Connection]:
        """Yield the connections with a client without a notice, the oldest of each namespace first."""
        seen: set[Connection] = set()
        for namespace in self._namespaces.values():
            for connection in map(connection_of, namespace.clients.values()):
                if not connection.closed and connection not in self._until_s and connection not in seen:
                    seen.add(connection)
                    yield connection

    def under_way(self) -> int:
        """Return how many clients have a notice and are still here."""
        self._until_s = {each: until_s for each, until_s in self._until_s.items() if not each.closed}
        return len(self._until_s)

    def notify(self, connections: Iterable[Connection]) -> None:
        """Notify the clients of these connections to leave. Never waits."""
        until_s = self._now_s() + self._within_s
        for connection in connections:
            if not connection.closed:
                MOVED.labels(self._reason).inc()
                self._until_s[connection] = until_s
                for owner in connection.owners:
                    connection.offer_control(self._frames[cast(Client, owner).namespace])

    def end_late(self, spared: Collection[object] = ()) -> None:
        """End the connections after their time, except `spared` ones. Never waits."""
        now_s = self._now_s()
        for connection in [each for each, until_s in self._until_s.items() if until_s <= now_s and each not in spared]:
            del self._until_s[connection]
            connection.end(self._reason)
