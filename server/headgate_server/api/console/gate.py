"""The gateway for the console: the gate of gate.py, admission, and the clients of all gateways."""

from __future__ import annotations

from typing import Protocol

from headgate.auth.identity import Authenticator, Identity
from headgate.services.clients import ClientsPage, ConnectedClient, Reached
from headgate.settings.settings import Settings
from headgate_server.api.gate import Gate


class ConsoleGate(Gate, Protocol):
    """See the module."""

    @property
    def settings(self) -> Settings:
        """The settings in force, which a reload replaces."""
        ...

    @property
    def has_authenticator(self) -> bool:
        """Whether the application identifies callers itself."""
        ...

    def admit_console(self, admit: Authenticator) -> None:
        """Admit pages of the console with the identity from `admit`."""
        ...

    def check_revoked(self, identity: Identity) -> None:
        """Raise Unauthorized if an identity is revoked, BusUnavailable if that is not known yet. Never waits."""
        ...

    def revoke(self, *, user: str | None = None, token_id: str | None = None, for_s: int = 3600) -> None:
        """Refuse a user, or one token, on every gateway. May switch greenlets."""
        ...

    def clients(
        self,
        namespace: str | None = None,
        user: str | None = None,
        sort: str = "trouble",
        limit: int = 100,
        after: str | None = None,
    ) -> ClientsPage:
        """Return a page of the clients of all gateways. May switch greenlets."""
        ...

    def client(self, session: str) -> ConnectedClient | None:
        """Return the client of a session, with all its patterns. May switch greenlets."""
        ...

    def disconnect(self, *, session: str | None = None, user: str | None = None, reason: str = "", by: str = "") -> Reached:
        """Disconnect a client, or all clients of a user, which may reconnect. May switch greenlets."""
        ...
