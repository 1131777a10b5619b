"""The connection of a client, as the gateway uses it. The transport implements it (transport/session.py)."""

from __future__ import annotations

from typing import Any, Protocol, cast

from headgate.delivery.client import Client, ClientConnection


class Connection(ClientConnection, Protocol):
    """One Engine.IO session: several clients (one per namespace) may share it.

    Attributes:
        sid: the Engine.IO session's id.
        owners: the clients that are joined over it.
        session: notes of the gateway, by namespace.
    """

    sid: str
    owners: tuple[Any, ...]
    session: dict[str, Any]

    def cork(self) -> None:
        """Let nothing out until `uncork`."""

    def uncork(self) -> None:
        """Let out what has waited since `cork`."""

    def end(self, reason: str, *, abort: bool = False, code: int = 1000, told: str = "", hard: bool = False) -> None:
        """End the session: `code` and `told` go to the peer in the close frame."""


def connection_of(client: Client) -> Connection:
    """Return a client's connection: every client that joins the gateway comes over the transport."""
    return cast(Connection, client.connection)
