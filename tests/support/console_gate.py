"""A gateway as the console sees it, without Redis, which records, and keeps the admitted users."""

from dataclasses import dataclass, field
from typing import Any

from headgate.auth.identity import Authenticator, Handshake, Identity
from headgate.errors import InvalidRequest, Unauthorized
from headgate.services.clients import ClientsPage, ConnectedClient, Reached
from headgate.settings.settings import DEFAULTS, Settings
from tests.support.recording_gate import RecordingGate


@dataclass
class ConsoleGate(RecordingGate):
    """`settings`: those in force. `identities`: whose a request with a cookie `app=…` is, where an application identifies."""

    settings: Settings = DEFAULTS
    identities: dict[str, Identity] | None = None
    admitted: list[Authenticator] = field(default_factory=list)
    connected: list[ConnectedClient] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    revoked: dict[str, int] = field(default_factory=dict)

    @property
    def has_authenticator(self) -> bool:
        return self.identities is not None

    def admit_console(self, admit: Authenticator) -> None:
        self.admitted.append(admit)

    def check_revoked(self, identity: Identity) -> None:
        if identity.token_id in self.revoked:
            raise Unauthorized("revoked")

    def revoke(self, *, user: str | None = None, token_id: str | None = None, for_s: int = 3600) -> int:
        assert token_id is not None
        self.revoked[token_id] = for_s
        return 1

    def clients(self, *args: Any, **wanted: Any) -> ClientsPage:
        self.asked.append(wanted)
        return ClientsPage(tuple(self.connected), len(self.connected), None, ("other/7",))

    def client(self, session: str, **_: Any) -> ConnectedClient | None:
        return next((each for each in self.connected if each.session == session), None)

    def disconnect(self, **wanted: Any) -> Reached:
        if (wanted["session"] is None) == (wanted["user"] is None):
            raise InvalidRequest("disconnect takes either a session or a user")
        self.asked.append(wanted)
        return Reached(len(self.connected), ())

    def identify(self, handshake: Handshake) -> Identity:
        cookie: Any = handshake.environ.get("HTTP_COOKIE", "")
        found = (self.identities or {}).get(str(cookie).removeprefix("app="))
        if found is None:
            raise Unauthorized("not_accepted")
        return found
