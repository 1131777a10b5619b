"""The population of clients, which join or are refused for lack of room, and are moved, evicted and listed.

In: sessions and CONNECTs; the beats of the loop; the stop of the gateway. Out: clients in their namespaces; notices to those that
must move; the answers to questions about them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from headgate.node.access.access import Access
from headgate.node.cluster.cluster import Cluster
from headgate.node.namespace import Namespace
from headgate.runtime.watchdog import Watchdog
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import SocketIOFace

from .client_list import ClientList
from .drain import Drain
from .evictions import Evictions
from .joining import Joining
from .rebalancing import Rebalancing
from .shedding import Shedding

# After a pause of this length, the rights of clients are checked before they get the events of that time.
STOOD_STILL_S = 2.0


class Population:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        sockets: SocketIOFace,
        namespaces: Mapping[str, Namespace],
        access: Access,
        evictions: Evictions,
        cluster: Cluster,
    ) -> None:
        self._namespaces, self._sockets, self._access, self.evictions = namespaces, sockets, access, evictions
        self.drain = Drain(namespaces)
        self.shedding = Shedding(settings.max_clients, self.count)
        self._watchdog = Watchdog(self._beat)
        self._rebalancing = Rebalancing(cluster.table, namespaces, self.connections, settings.rebalance_per_s)
        self.clients = ClientList(settings, namespaces, sockets, access, evictions, cluster.table)
        cluster.answers.add(self.clients.kinds())
        self.joining = Joining(settings, sockets, access, evictions, self.drain, self.shedding, cluster)
        sockets.hooks = self.joining

    def spare(self, asking: Callable[[], Collection[object]]) -> None:
        """Let connections that wait for the answer of a function (`asking`) move only after it."""
        self.drain.asking = self._rebalancing.asking = asking

    def start(self) -> None:
        """Watch the loop and the loads of all processes. Idempotent."""
        self._watchdog.start()
        self._rebalancing.start()

    def apply(self, settings: Settings) -> None:
        """Apply other limits. Clients above them stay."""
        self.shedding.max_clients = settings.max_clients
        self.joining.apply(settings)
        self.evictions.apply(settings)

    def count(self) -> int:
        """Return the number of clients."""
        return sum(len(namespace.clients) for namespace in self._namespaces.values())

    def connections(self) -> int:
        """Return the number of sessions, joined or not, and of open streams and polls."""
        return self._sockets.count + self.joining.streams

    def retire(self) -> None:
        """Refuse new clients from now on, and take none from other processes. Waits for Redis."""
        self.drain.begun = True
        self._rebalancing.leave()

    def close(self) -> None:
        """Stop. Idempotent."""
        self._watchdog.close()
        self._rebalancing.leave()

    def _beat(self, lag_s: float) -> None:
        """Check for a stall. Runs in the hub, before any waiting bytes are read."""
        self.shedding.beat(lag_s)
        if lag_s >= STOOD_STILL_S:
            self._access.check_again()
            for namespace in self._namespaces.values():
                namespace.bus.hold(self._access.wait_for_rights)
