"""The gateway as the console uses it, with admission and the clients of all gateways (headgate.flask.extension)."""

from __future__ import annotations

from typing import Protocol

from headgate.auth.identity import Authenticator, Identity
from headgate.services.clients import ClientsPage, ConnectedClient, Reached
from headgate.settings.settings import Settings
from headgate_server.api.gate import Gate


class ConsoleGate(Gate, Protocol):
    """See the module. `settings` are those in force, which a reload replaces."""

    @property
    def settings(self) -> Settings: ...
    @property
    def has_authenticator(self) -> bool: ...
    def admit_console(self, admit: Authenticator) -> None: ...
    def check_revoked(self, identity: Identity) -> None: ...
    def revoke(self, *, user: str | None = None, token_id: str | None = None, for_s: int = 3600) -> int: ...
    def clients(
        self,
        namespace: str | None = None,
        user: str | None = None,
        sort: str = "trouble",
        limit: int = 100,
        after: str | None = None,
    ) -> ClientsPage: ...
    def client(self, session: str) -> ConnectedClient | None: ...
    def disconnect(self, *, session: str | None = None, user: str | None = None, reason: str = "", by: str = "") -> Reached: ...
