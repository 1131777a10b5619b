"""The moves. Clients get a notice to reconnect, and connections that do not leave soon after are ended.

In: connections, at the turn that the drain (drain.py) or the rebalancing (rebalancing.py) gives them. Out: a `status` notice to
every client of the connection; the end of the connection if it is still there at the end of its time. A client leaves at a random
moment of that time and comes back at once, with its cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from time import monotonic
from typing import cast

from headgate.delivery.client import Client
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import STATUS, notice_packet
from headgate.node.connection import Connection, connection_of
from headgate.node.namespace import Namespace
from headgate.runtime.metrics import MOVED

# The time for a client to leave after its notice. It is short, because the caller spreads the notices already.
LEAVE_WITHIN_S = 1.0


class Moves:
    """See the module. Clients leave within `within_s`, and get `reason`, as do the log and the metrics. `now_s` is monotonic."""

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
