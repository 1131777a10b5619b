"""The rebalancing moves clients from this gateway process to those with fewer, after a deploy or when an operator requests it.

In: the rows of all processes (redis/loads.py), with each full turn of the shared table. Out: the row of this process; notices to
some clients to move (drain.py), at the pace that balance.py decides.

Rules. 1. Only processes that serve the same namespaces count. 2. A deploy is an occasion from SETTLED_S after the last process
has begun until DEPLOY_S after that, so that no client moves to a process about to be replaced. An operator's request
counts at once. 3. Without new rows no client moves once the known rows have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from time import monotonic

import structlog

from headgate.installation import __version__
from headgate.node.namespace import Namespace
from headgate.redis.loads import Load, LoadTable
from headgate.redis.shared_table import SharedTable
from headgate.runtime.periodic import PeriodicTask
from headgate.transport.descriptors import descriptor_limit

from .balance import Balance, State
from .drain import LEAVE_WITHIN_S, Moves

log = structlog.get_logger("headgate.rebalancing")

NOTICE_EVERY_S, REST_S = 0.25, 5.0
SETTLED_S = 30
DEPLOY_S = 900


class Rebalancing:
    """See the module.

    Args:
        namespaces: those of this gateway.
        count: returns the number of connections of this process.
        per_s: new clients per second that a process takes after a deploy; 0 to balance only for an operator.
        now_s: monotonic.

    Attributes:
        asking: returns the connections that wait for an answer. They are neither notified nor ended before it.
    """

    def __init__(
        self,
        table: SharedTable,
        namespaces: Mapping[str, Namespace],
        count: Callable[[], int],
        per_s: float,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._table = table
        table.own, table.on_rows = self._row, self.receive
        self._namespaces, self._serves = namespaces, ",".join(sorted(namespaces))
        self._count, self._per_s, self._now_s = count, per_s, now_s
        self._moves = Moves(namespaces, "rebalance", LEAVE_WITHIN_S, now_s)
        self.asking: Callable[[], Collection[object]] = tuple
        self._balance = Balance()
        self._counted = 0  # connections in the row before
        self._task = PeriodicTask(self.tick, lambda: log.exception("rebalancing failed"), REST_S)
        self.start, self.leave = self._task.start, self._task.close

    def tick(self) -> float:
        """Notify the clients due now; return the seconds until the next tick."""
        before = self._balance.state
        count = self._balance.due(self._now_s(), self._count(), self._moves.under_way())
        asking = self.asking()
        if count:
            idle = (each for each in self._moves.connections() if each not in asking)
            self._moves.notify(list(islice(idle, count)))
        self._moves.end_late(asking)
        self._log_change(before)
        return NOTICE_EVERY_S if self._balance.state is State.MOVING or self._moves.under_way() else REST_S

    def receive(self, rows: LoadTable) -> None:
        """Take the rows of all processes."""
        own = self._count()
        # The others' counts are as old as a turn. In that time as many clients may have joined there as here.
        settled, self._counted = min(own, self._counted), own
        alike = {each: load for each, load in rows.loads.items() if load.serves == self._serves}
        before = self._balance.state
        others = [load.sessions for each, load in alike.items() if each != self._table.id]
        self._balance.decide(self._now_s(), settled, others, self._occasion(rows, [load.since_s for load in alike.values()]))
        self._log_change(before)
        self._task.hurry()

    # -- private ------------------------------------------------------------------------------------------------------

    def _row(self) -> Load:
        servers = {namespace.bus.server for namespace in self._namespaces.values()} - {""}
        return Load(
            self._count(), 0, "", version=__version__, max_files=descriptor_limit() or 0, server=",".join(sorted(servers))
        )

    def _occasion(self, rows: LoadTable, since_s: Sequence[int]) -> tuple[float, float] | None:
        """Return the newest occasion to balance, or None."""
        deployed_s = max(since_s, default=rows.now_s)
        is_settled = SETTLED_S <= rows.now_s - deployed_s < DEPLOY_S
        deploy = (deployed_s, self._per_s) if self._per_s and is_settled else None
        return max((each for each in (deploy, rows.request) if each is not None), default=None)

    def _log_change(self, before: State) -> None:
        state = self._balance.state
        if state is before:
            return
        if state is State.MOVING:
            log.info("rebalancing began", sessions=self._count(), share=self._balance.target)
        elif before is State.MOVING and state is State.RESTING:
            log.info("rebalancing ended", sessions=self._count(), share=self._balance.target)
        elif state is State.SPENT:
            log.warning(
                "rebalancing given up",
                sessions=self._count(),
                share=self._balance.target,
                reason="clients come back to this process: let the proxy choose the gateway with the fewest connections",
            )
