"""The connection of a client, as the gateway needs it: a session, or a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from headgate.delivery.client import Client
from headgate.transport.session import Session
from headgate.transport.socketio_face import SocketIOFace
from headgate.transport.stream import Stream

Connection: TypeAlias = Session | Stream


def connection_of(client: Client) -> Connection:
    """Return a client's connection: every client that joins the gateway comes over the transport."""
    return cast(Connection, client.connection)


def environ_of(client: Client, sockets: SocketIOFace) -> Mapping[str, Any]:
    """Return the WSGI environment with which a client has come; nothing of one that has left."""
    connection = connection_of(client)
    return connection.environ if isinstance(connection, Stream) else sockets.environ_of(connection.sid)
