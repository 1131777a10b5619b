"""The rebalancing: clients move from this gateway process to those that have fewer, after a deploy or when an operator asks.

In: the loads of all processes (redis/loads.py), looked at every LOOK_EVERY_S by one greenlet, off the hot path. Out: word to some
clients that they are to move (moves.py), at the pace that balance.py says.

Rules. 1. Only processes that serve the same namespaces count. 2. A deploy is an occasion SETTLED_S after the last process has
begun, until DEPLOY_S after that: so that nobody moves to a process that is about to be replaced. An operator's wish counts at
once. 3. Redis that cannot be reached costs a line in the log; nobody is told to move then.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from time import monotonic

import structlog

from headgate import __version__
from headgate.errors import HeadgateError
from headgate.node.namespace import Namespace
from headgate.redis.client import Client
from headgate.redis.loads import LEASE_S, Load, Look, leave, look, process_name
from headgate.runtime.rounds import Rounds
from headgate.transport.descriptors import descriptor_limit
from headgate.transport.socketio_face import SocketIOFace

from .balance import Balance, Occasion, State
from .moves import LEAVE_WITHIN_S, Moves

log = structlog.get_logger("headgate.rebalancing")

LOOK_EVERY_S = LEASE_S / 3
TELL_EVERY_S = 0.25
SETTLED_S = 30
DEPLOY_S = 900


class Rebalancing:
    """See the module.

    Args:
        namespaces: those that this gateway serves.
        sockets: know how many sessions this process has.
        per_s: newcomers per second that a process is to take after a deploy; 0: balance only for an operator.
        now_s: monotonic.
        name: returns what people know this process by.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Mapping[str, Namespace],
        sockets: SocketIOFace,
        per_s: float,
        now_s: Callable[[], float] = monotonic,
        name: Callable[[], str] = process_name,
    ) -> None:
        self._client = client
        self._id = secrets.token_hex(8)
        self._namespaces, self._serves = namespaces, ",".join(sorted(namespaces))
        self._sockets, self._per_s, self._now_s, self._name = sockets, per_s, now_s, name
        self._moves = Moves(namespaces, "rebalance", LEAVE_WITHIN_S, now_s)
        self._balance = Balance()
        self._since_s: int | None = None  # by Redis' clock
        self._look_at_s = 0.0
        self._looked = 0  # sessions at the look before
        self._rounds = Rounds(self.tick, lambda: log.exception("rebalancing failed"), LOOK_EVERY_S)
        self._logged = ""

    def start(self) -> None:
        """Begin. Idempotent."""
        if not self._rounds.begun:
            self._id = secrets.token_hex(8)  # of this process, whichever one made the gateway before a fork
            self._rounds.start()

    def leave(self) -> None:
        """Count no more, and move nobody any more: this gateway stops. Only the first call does something; waits for Redis."""
        if self._rounds.end():
            try:
                leave(self._client, self._id)
            except HeadgateError:
                log.debug("load not taken back")  # it ends with the lease

    def tick(self) -> float:
        """Look, if it is time for that, and tell those who are due; return the seconds until the next tick. Waits for Redis."""
        if self._now_s() >= self._look_at_s:
            self._look_at_s = self._now_s() + LOOK_EVERY_S
            self._look()
        before = self._balance.state
        count = self._balance.due(self._now_s(), self._sockets.count, self._moves.under_way())
        if count:
            self._moves.tell(list(islice(self._moves.connections(), count)))
        self._moves.end_late()
        self._tell_of(before)
        if self._balance.state is State.MOVING or self._moves.under_way():
            return TELL_EVERY_S
        return self._look_at_s - self._now_s()

    # -- private ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        own = self._sockets.count
        # The others' counts are up to LOOK_EVERY_S old. Those who have come here meanwhile may have come there, too.
        settled, self._looked = min(own, self._looked), own
        try:
            servers = {namespace.bus.server for namespace in self._namespaces.values()} - {""}
            told = Load(
                own, self._since_s or 0, self._serves, 0, self._name(), __version__, descriptor_limit() or 0,
                server=",".join(sorted(servers)),
            )  # fmt: skip
            found = look(self._client, self._id, told)
        except HeadgateError as error:
            if error.message != self._logged and not self._rounds.ended:
                self._logged = error.message
                log.warning("loads out of reach", error=error.message, effect="no client is moved to another gateway")
            return
        self._logged = ""
        if self._since_s is None:
            self._since_s = found.now_s
            return  # the next word has it
        alike = {each: load for each, load in found.loads.items() if load.serves == self._serves}
        before = self._balance.state
        others = [load.sessions for each, load in alike.items() if each != self._id]
        self._balance.look(self._now_s(), settled, others, self._occasion(found, [load.since_s for load in alike.values()]))
        self._tell_of(before)

    def _occasion(self, found: Look, since_s: Sequence[int]) -> Occasion | None:
        """Return the newest occasion to balance, or None."""
        deployed_s = max(since_s)
        is_settled = SETTLED_S <= found.now_s - deployed_s < DEPLOY_S
        occasions = [Occasion(deployed_s, self._per_s)] if self._per_s and is_settled else []
        if found.request is not None:
            occasions.append(Occasion(*found.request))
        return max(occasions, default=None)

    def _tell_of(self, before: State) -> None:
        state = self._balance.state
        if state is before:
            return
        if state is State.MOVING:
            log.info("rebalancing began", sessions=self._sockets.count, share=self._balance.target)
        elif before is State.MOVING and state is State.RESTING:
            log.info("rebalancing ended", sessions=self._sockets.count, share=self._balance.target)
        elif state is State.SPENT:
            log.warning(
                "rebalancing given up",
                sessions=self._sockets.count,
                share=self._balance.target,
                reason="clients come back to this process: let the proxy choose the gateway with the fewest connections",
            )
