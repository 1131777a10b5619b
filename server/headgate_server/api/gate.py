"""The part of `headgate.flask.extension` that routes use. The extension describes it. No I/O.

Tests use a recording one for a bus that is down, refuses, or answers without Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate.auth.identity import Handshake, Identity
from headgate.errors import HeadgateError
from headgate.events.event import Event, JsonText

if TYPE_CHECKING:
    from headgate.auth.identity import Authenticator
    from headgate.redis.inbox import InboxPage
    from headgate.services.clients import ClientsPage, ConnectedClient, Reached
    from headgate.services.publisher import PresencePage, Receipt
    from headgate.settings.settings import Settings


class Gate(Protocol):
    """See the module. All methods except `ready`, `publishes_at_once` and `begin_publish` may switch greenlets, `identify` only
    if its authenticator does.
    """

    def publish(
        self, topic: str, data: object, id: str | None = None, namespace: str | None = None, *, by: str | None = None
    ) -> Receipt: ...
    def publish_each(
        self,
        events: Sequence[tuple[str, object, str | None]],
        namespace: str | None = None,
        *,
        by: str | None = None,
        all_or_none: bool = False,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> Sequence[Receipt | HeadgateError]: ...
    def publishes_at_once(self, handshake: Handshake) -> Identity | None: ...
    def begin_publish(
        self,
        event: tuple[str, JsonText, str | None],
        namespace: str,
        done: Callable[[Receipt | HeadgateError], object],
        *,
        by: str,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> None: ...
    def identify(self, handshake: Handshake) -> Identity: ...
    def check_authorized(self, identity: Identity, pattern: str, action: str) -> None: ...
    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]: ...
    def current_inbox(
        self, read: Callable[[], InboxPage], had: tuple[str, int] | None = None, namespace: str | None = None
    ) -> InboxPage: ...
    def presence_page(
        self, topic: str, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> PresencePage: ...
    def ready(self) -> Mapping[str, object]: ...


class ConsoleGate(Gate, Protocol):
    """Also what the console uses: admission, and the clients of all gateways. `settings` are those in force after a reload."""

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


class PeerWorkers(Protocol):
    """The workers on a shared port: `app.extensions["headgate.workers"]` if there are several (headgate.workers.peer_workers)."""

    def health(self) -> Mapping[str, object]: ...
    def exposition(self) -> tuple[str, bytes]: ...
