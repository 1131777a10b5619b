"""Connections, clients and namespaces that record the gateway's calls. No sockets, no Redis."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from headgate.auth.identity import Identity
from headgate.delivery.client import Client
from headgate.errors import Unauthorized, UnauthorizedReason
from headgate.node.access.authorizing import Authorizing
from headgate.node.namespace import Namespace
from headgate.node.presence.presence import Presence
from headgate.settings.settings import Settings


def presence_of(name: str) -> Presence:
    """Return the presence of a namespace without requests so far."""
    return Presence(name, "redis://127.0.0.1:1/0", Settings(), cast(Any, None))


def namespace_of(name: str, settings: Settings) -> Namespace:
    """Return a real namespace without a started bus."""
    return Namespace(name, "redis://127.0.0.1:1/0", settings, Authorizing(), presence_of(name))


class RecordedConnection:
    """A connection that notes the messages to it, and how it is ended."""

    def __init__(self, sid: str, done: list[tuple[Any, ...]]) -> None:
        self.sid = sid
        self.done = done
        self.closed = False
        self.owners: tuple[Any, ...] = ()

    def offer_control(self, frame: Any, *, flush: bool = True) -> None:
        self.done.append(("notice", self.sid))

    def end(self, reason: str, **options: Any) -> None:
        self.closed = True
        self.done.append(("end", self.sid, reason))


@dataclass(eq=False)
class RecordedClient:
    """A client, as far as the gateway looks at it."""

    session: str
    connection: RecordedConnection
    identity: Identity
    namespace: str = "notifications"
    auth: Any = None
    allowed: Any = None
    subscriptions: tuple[str, ...] = ()
    account: str = "ana"

    def real(self) -> Client:
        """As the gateway's types have it."""
        return cast(Client, self)


@dataclass
class RecordedNamespace:
    """A namespace with clients that have the subscriptions of a test, and a bus that says how it is."""

    clients: dict[str, Client] = field(default_factory=dict)
    bus: Any = None
    name: str = "notifications"
    subscribed: list[str] = field(default_factory=list)
    retention_s: float = 600.0
    presence: Any = field(default_factory=lambda: presence_of("notifications"))
    authorizing: Authorizing = field(default_factory=Authorizing)

    @property
    def subscriptions(self) -> Any:
        return self

    def end_each(self, client: Client, refusal: Any) -> list[tuple[str, Any]]:
        ended = [(pattern, error) for pattern in self.subscribed if (error := refusal(pattern)) is not None]
        self.subscribed = [pattern for pattern in self.subscribed if refusal(pattern) is None]
        return ended

    def leave(self, session: str, *, in_order: bool = True) -> None:
        self.clients.pop(session, None)

    def is_in(self, client: Client) -> bool:
        return self.clients.get(client.session) is client

    def check_in(self, client: Client) -> None:
        if not self.is_in(client):
            raise Unauthorized(UnauthorizedReason.LEFT)

    def real(self) -> Namespace:
        """As the gateway's types have it."""
        return cast(Namespace, self)


class RecordedSockets:
    """A face that knows the environment of each session."""

    def __init__(self) -> None:
        self.environ: dict[str, dict[str, Any]] = {}
        self.limits, self.engine = None, SimpleNamespace(cors=None)

    def environ_of(self, session_id: str) -> dict[str, Any]:
        return self.environ.get(session_id, {})


def joined(namespace: RecordedNamespace, session: str, done: list[tuple[Any, ...]], user: str = "ana") -> RecordedClient:
    """Put a client with a new connection into a namespace."""
    client = RecordedClient(session, RecordedConnection(session, done), Identity(user))
    client.connection.owners = (client,)
    namespace.clients[session] = client.real()
    return client
