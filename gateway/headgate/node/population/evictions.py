"""Evictions notify and disconnect clients with an expired or revoked identity, or when an operator requests it.

In: expired (auth/expiry.py) and revoked clients (access/access.py), requests (client_list.py). Out: a `status`
notice, a disconnect from the namespace, and the end of the connection if it joins no namespace again before the handshake
deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from headgate.auth.admission import PendingSessions
from headgate.delivery.client import Client
from headgate.errors import Unauthorized
from headgate.events.wire.packets import STATUS
from headgate.node.connection import connection_of, notify
from headgate.node.namespace import Namespace
from headgate.runtime.loop import one_round
from headgate.runtime.metrics import EVICTED
from headgate.settings.settings import Settings
from headgate.transport.frame_parser import POLICY
from headgate.transport.peer_address import address_of
from headgate.transport.session import Session
from headgate.transport.socketio_face import SocketIOFace
from headgate.transport.stream import Stream

# Evictions in a row before the loop runs.
_STRIDE = 64


class Evictions:
    """See the module. `pending` are the sessions in no namespace."""

    def __init__(self, sockets: SocketIOFace, namespaces: Mapping[str, Namespace], settings: Settings) -> None:
        self._sockets, self._namespaces, self._settings = sockets, namespaces, settings
        self.pending = PendingSessions()
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Apply another limit of sessions in no namespace."""
        # Development is one machine, where an address identifies no client.
        self.pending.per_address = 0 if settings.dev else settings.max_clients_per_address

    def disconnected(self, clients: Iterable[Client], reason: str) -> int:
        """End the connections of clients for an operator. They get the notice of clients that move, and come back.

        Returns how many clients. Lets the loop run.
        """
        status = {"moving": {"reason": "disconnected", "within_s": 0, "detail": reason}}
        ended = 0
        for client in self._still_in(clients):
            ended += 1
            EVICTED.labels(client.namespace, "disconnected").inc()
            connection = connection_of(client)
            for owner in connection.owners:  # it ends in every namespace
                notify(cast(Client, owner), STATUS, status)
            connection.end("disconnected", shown=f"disconnected: {reason}")
        return ended

    def refused(self, clients: Iterable[Client], why: Unauthorized) -> None:
        """Notify clients that they are no longer authorized, and disconnect them from their namespace. Lets the loop run."""
        for client in self._still_in(clients):
            EVICTED.labels(client.namespace, why.reason.value).inc()
            connection = connection_of(client)
            notify(client, STATUS, {"unauthorized": why.to_wire()})
            if isinstance(connection, Stream):
                connection.end(f"{why.code}: {why.reason}")
            else:
                self._sockets.disconnect(client.namespace, client.session)
                self.end_pending_later(connection, f"{why.code}: {why.reason}")

    def _still_in(self, clients: Iterable[Client]) -> Iterator[Client]:
        """Yield the clients that remain at their turn. Lets the loop run."""
        for count, client in enumerate(clients, 1):
            if self._namespaces[client.namespace].is_in(client):
                yield client
            if not count % _STRIDE:
                one_round()

    def end_pending_later(self, connection: Session, message: str) -> None:
        """Keep a connection in no namespace as long as before its first CONNECT, so that it can come back."""
        if not connection.closed and not connection.owners:
            environ = self._sockets.environ_of(connection.sid)
            self.pending.add(connection.sid, address_of(environ, self._settings.proxies))
        self._sockets.engine.deadlines.after(self._settings.handshake_deadline_s, _end_pending, connection, message)


def _end_pending(connection: Session, message: str) -> None:
    """End a connection in no namespace, after all its clients left or were disconnected. Runs in the hub."""
    if not connection.closed and not connection.owners:
        connection.end("outside every namespace", code=POLICY, shown=message)
