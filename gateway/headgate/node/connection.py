"""The connection of a client as the gateway needs it: a session or a stream. Notices to clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from headgate.delivery.client import Client
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import notice_packet
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


def notify(client: Client, kind: str, body: Mapping[str, object], *, flush: bool = True) -> None:
    """Send a notice to a client, ahead of waiting events. Never waits."""
    client.connection.offer_control(message_frame(notice_packet(client.namespace, kind, body)), flush=flush)
