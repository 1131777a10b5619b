"""The gateway of one process. It puts together Socket.IO in front, the namespaces, and the four parts between them.

In: an application's authenticator (otherwise tokens decide), settings, a Redis URL. Out: `wsgi_app`, which answers Socket.IO's
path and passes everything else on to the application; `start` and `close`; `ready`.

A client's life: HTTP (transport) → CONNECT (population/joining.py), for which access finds the identity → `welcome`, sent when
the subscriptions of the handshake are active → requests, each acknowledged (requests/requests.py) → leave, or a disconnect:
the identity has expired or was revoked (population/evictions.py), or the gateway stops (population/drain.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from headgate.auth.identity import Authenticator, Authorizer
from headgate.errors import BusUnavailable, UnknownHost
from headgate.node.presence.presence import Presence
from headgate.redis.budget import count_with
from headgate.redis.connections import ROUND_TRIPS, is_open, redacted_address
from headgate.runtime.logging import log_refusal
from headgate.runtime.metrics import HOSTS_REFUSED, PUBLISH_BREAKER, REDIS_ROUND_TRIPS, SCHEMA_VIOLATIONS
from headgate.services.publisher import publisher_of
from headgate.settings.settings import PREFIX, Settings
from headgate.transport.limits import TransportLimits
from headgate.transport.socketio_face import SocketIOFace

from .access.access import Access
from .access.authorizing import Authorizing
from .access.origin import origin_check, origins_with
from .cluster.cluster import Cluster
from .health import State, health
from .namespace import Namespace
from .population.evictions import Evictions
from .population.population import Population
from .requests.requests import Requests
from .requests.streams import PATHS

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.transport.http_answers import Answer
    from headgate.transport.http_routes import RoutedRequest

log = structlog.get_logger("headgate.gateway")

# The names, ids and escapes that a message adds to its payload. A larger message ends the connection (1009). A payload above its
# limit in a smaller message is refused in the acknowledgement, and the connection stays.
ENVELOPE_BYTES = 4096


class Gateway:
    """See the module. `redis_url` must be set in `settings`."""

    def __init__(self, settings: Settings, authenticator: Authenticator | None = None) -> None:
        url = settings.redis_url
        if url is None:
            raise BusUnavailable("no Redis: set HEADGATE_REDIS_URL, or start with `headgate serve`, which brings one")
        warn_of_open_redis(url)
        REDIS_ROUND_TRIPS.put(ROUND_TRIPS)
        count_with(lambda outcome: PUBLISH_BREAKER.labels(outcome).inc())
        self.settings, self.authorizing = settings, Authorizing()
        self.publisher = publisher_of(settings, url, lambda namespace, _: SCHEMA_VIOLATIONS.labels(namespace).inc())
        self._sockets = sockets = _sockets(settings)
        sockets.reuse_greenlets(authenticator is None)
        self.namespaces = namespaces = {
            name: Namespace(name, url, settings, self.authorizing, Presence(name, url, settings, self.publisher.publish))
            for name in settings.namespaces
        }
        evictions = Evictions(sockets, namespaces, settings)
        self.cluster = Cluster(settings, namespaces, self.state)
        self.access = Access(settings, authenticator, sockets, namespaces, evictions, self.cluster)
        self.population = Population(settings, sockets, namespaces, self.access, evictions, self.cluster)
        self.requests = Requests(
            settings, sockets, namespaces, self.access, self.population.joining, self.publisher, self.cluster
        )
        self.population.spare(self.requests.page_requests.asking)

    # -- the gateway's life ------------------------------------------------------------------------------------------

    def set_authenticator(self, authenticator: Authenticator) -> None:
        """Let the application identify handshakes, in place of tokens. Call it before clients connect."""
        self.access.logins.authenticator = authenticator
        self._sockets.reuse_greenlets(False)

    def set_authorizer(self, authorizer: Authorizer | None) -> None:
        """Let the application decide each pattern as well (access/authorizing.py). Call it before clients connect."""
        self.authorizing.authorizer = authorizer
        if authorizer is not None:
            self._sockets.reuse_greenlets(False)

    def start(self) -> None:
        """Listen to the bus and to revocations, register with the other gateways, fetch the keys of tokens. Idempotent."""
        self.cluster.start()
        self.population.start()
        self.access.start()
        for namespace in self.namespaces.values():
            namespace.start()

    def not_ready(self) -> list[str]:
        """Return lines for the operator about why clients are refused, and the remedy. Empty if Redis is usable."""
        for namespace in self.namespaces.values():
            if not namespace.bus.up and namespace.bus.last_error is not None:
                message, *advice = namespace.bus.last_error.lines()
                return [f"not ready, clients are refused for now: {message}", *advice]
        return []

    def own(self, letters: str) -> None:
        """Set the prefix of session ids that names this worker. Call it before clients connect."""
        self._sockets.engine.owner = letters

    @property
    def sessions(self) -> int:
        """The number of sessions, joined or not."""
        return self._sockets.count

    @property
    def draining(self) -> bool:
        """Whether new clients are refused because this gateway is about to stop."""
        return self.population.drain.begun

    def retire(self) -> bool:
        """Refuse new clients from now on. Return True if certainly no other gateway serves any of these namespaces.

        Asks Redis, for about two seconds at most. Without an answer the result is False.
        """
        self.population.retire()
        return self.cluster.table.retire()

    def reload(self, wanted: Settings) -> tuple[list[str], list[str]]:
        """Apply other settings, as far as a running gateway can (`changes`), and read keys and schemas again.

        Returns the HEADGATE_ names of differing settings, first those in force now, then those that need a restart. If the file
        of keys is faulty, the previous keys stay active and the fault is logged. Raises HeadgateError, without a change, for
        invalid schemas.
        """
        settings, applied, needs_restart = changes(self.settings, wanted, () if self.access.logins.takes_tokens else OF_TOKENS)
        apply_schemas = self.publisher.prepare_schemas(settings.schemas, settings.schema_check_in_force())
        apply_schemas()
        self.settings = settings
        self.cluster.apply(settings)
        self.access.apply(settings)
        self.population.apply(settings)
        for namespace in self.namespaces.values():
            namespace.subscriptions.settings = settings
        return applied, needs_restart

    def drain(self, within_s: float, *, alone: bool = False) -> None:
        """Notify clients to move to another gateway, refuse new ones, and end the remaining connections one after the other.

        A client that waits for the answer of a function moves after it. If this gateway is `alone`, all move at once, after the
        last answer. The gateway is no longer ready. Waits about `within_s` seconds at most, and not at all without clients and
        functions. `close` comes next.
        """
        self.population.drain.run(within_s, alone=alone)

    def close(self) -> None:
        """End every session and stop listening. Idempotent."""
        self._sockets.engine.end_all()
        self.requests.close()
        self.population.close()
        self.access.close()
        self.cluster.close()
        for namespace in self.namespaces.values():
            namespace.close()
        self.publisher.close()

    def wsgi_app(self, application: WSGIApplication, own: frozenset[str] = frozenset()) -> WSGIApplication:
        """Return a WSGI application that answers Socket.IO's path and the streams'. `application` gets `own` and the rest."""
        sockets, paths = self._sockets.wsgi_app(application), frozenset(PATHS) - own

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            part = self.requests.streams.answer if environ.get("PATH_INFO") in paths else sockets
            return part(environ, start_response)

        return self.access.hosts.guard(answer, _host_refused)

    def answers_to(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is to one of our hosts. `wsgi_app` refuses the others."""
        try:
            self.access.hosts.check(environ)
        except UnknownHost:
            return False
        return True

    def handshake(self, request: RoutedRequest) -> Answer | None:
        """Answer a request for a WebSocket below WSGI (transport/http_routes.py); None leaves any other to the application.

        None also means that a session has taken over the socket. Raises ConnectionResetError: the client is gone.
        """
        if "transport=websocket" not in request.head.query or not self.answers_to(request.environ):
            return None
        return self._sockets.engine.handshake(request)

    def ready(self) -> Mapping[str, object]:
        """Return the gateway's health (health.py). Never waits."""
        return health(self.namespaces, self.state())

    def state(self) -> State:
        """Return the state of this process. Never waits."""
        revocations, fault = self.access.revocations, self.access.revocations.last_error
        return State(
            sessions=self.sessions,
            draining=self.draining,
            admission=self.population.shedding.word(),
            paused=self.cluster.pauses.names(),
            revocations_known=revocations.known,
            revocations_error=None if fault is None else fault.message,
        )


# Settings that take effect at once. A limit counts from now on, and clients above it stay. Sessions and clients keep the bounds
# from their start. A test compares docs/operations/install.md with this list.
RELOADED = (
    "log_level",
    "token_secret",
    "token_keys",
    "anonymous_subscribe",
    "anonymous_namespaces",
    "failed_logins_burst",
    "max_clients",
    "max_clients_per_user",
    "max_clients_per_address",
    "max_subscriptions",
    "publish_per_s",
    "read_per_s",
    "schemas",
    "schema_check",
)
# Of these, the ones that need a restart if tokens were not accepted before.
OF_TOKENS = ("token_secret", "token_keys")


def changes(current: Settings, wanted: Settings, excepted: Sequence[str] = ()) -> tuple[Settings, list[str], list[str]]:
    """Return the settings that can take effect now, and the names of `reload`. `excepted` settings need a restart here."""
    names = [each.name for each in dataclasses.fields(Settings)]
    differ = [name for name in names if getattr(wanted, name) != getattr(current, name)]
    now = [name for name in differ if name in RELOADED and name not in excepted]
    later = [name for name in differ if name not in now]
    settings = dataclasses.replace(current, **{name: getattr(wanted, name) for name in now})
    return settings, [PREFIX + name.upper() for name in now], [PREFIX + name.upper() for name in later]


def warn_of_open_redis(url: str) -> None:
    """Log a warning if Redis is on another machine and has no password."""
    if is_open(url):
        log.warning(
            "Redis without a password", at=redacted_address(url), effect="every program that reaches it may publish and revoke"
        )


def _sockets(settings: Settings) -> SocketIOFace:
    return SocketIOFace(
        namespaces=settings.namespaces,
        limits=TransportLimits(
            max_message_bytes=2 * settings.max_payload_bytes + ENVELOPE_BYTES, **settings.values_for(TransportLimits)
        ),
        is_allowed=origin_check(settings),
        allowing=partial(origins_with, settings),
        names_namespaces=settings.dev,
    )


def _host_refused(error: UnknownHost) -> None:
    HOSTS_REFUSED.inc()
    log_refusal(error)
