"""The session of a client, as the gateway needs it."""

from __future__ import annotations

from typing import cast

from headgate.delivery.client import Client
from headgate.transport.session import Session


def connection_of(client: Client) -> Session:
    """Return a client's session: every client that joins the gateway comes over the transport."""
    return cast(Session, client.connection)
