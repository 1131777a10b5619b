"""The connection of a client as the gateway needs it: a session or a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from headgate.delivery.client import Client
from headgate.transport.session import Session
from headgate.transport.socketio_face import SocketIOFace
from headgate.transport.stream import Stream

Connection: TypeAlias = Session | Stream


def connection_of(client: Client) -> Connection:
    """Return a client's connection. Every client of the gateway joins over the transport."""
    return cast(Connection, client.connection)


def environ_of(client: Client, sockets: SocketIOFace) -> Mapping[str, Any]:
    """Return the WSGI environment of a client's handshake, empty after the client has left."""
    connection = connection_of(client)
    return connection.environ if isinstance(connection, Stream) else sockets.environ_of(connection.sid)
