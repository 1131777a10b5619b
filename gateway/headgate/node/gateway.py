"""The gateway: puts together Socket.IO in front, the namespaces behind, and the parts between. One per process.

In: an application's authenticator (else tokens decide), settings, a Redis URL. Out: `wsgi_app`, which answers Socket.IO's
path and passes everything else on to the application; `start` and `close`; `ready`.

A client's life: HTTP (transport) → CONNECT (joining.py), for which logins.py finds the identity → `welcome`, sent when the
subscriptions that came with the handshake are active → requests, each acknowledged (handlers.py) → leave (joining.py), or be
disconnected: its identity has expired or was revoked (evictions.py), or the gateway stops (drain.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from headgate import handled
from headgate.auth.admission import Admission, PendingSessions
from headgate.auth.api_keys import ApiKeys
from headgate.auth.expiry import Expiry
from headgate.auth.identity import Authenticator, Handshake, Identity
from headgate.auth.places import QUIET_CLIENTS, Places
from headgate.auth.regrants import Regrants, read_regrant, read_regrants
from headgate.auth.revocation_watch import Listening, RevocationWatch
from headgate.delivery.client import Client
from headgate.errors import BusUnavailable, UnknownHost
from headgate.metrics import PUBLISH_BREAKER, REDIS_ROUND_TRIPS, SCHEMA_VIOLATIONS
from headgate.presence.presence import Presence
from headgate.publisher import Publisher
from headgate.redis import api_keys, pauses, vitals
from headgate.redis.budget import count_with
from headgate.redis.client import ROUND_TRIPS, database_number, open_client
from headgate.redis.client import Client as RedisClient
from headgate.redis.connections import is_open, redacted_address
from headgate.redis.keys import questions_channel
from headgate.redis.loads import process_name
from headgate.redis.registry import name_of, remembered
from headgate.runtime.loop import spawn
from headgate.runtime.watchdog import Watchdog
from headgate.settings import Settings
from headgate.transport.limits import TransportLimits
from headgate.transport.socketio_face import SocketIOFace

from .access.authorizing import Authorizing
from .access.logins import Logins
from .access.origin import Hosts, origin_check, origins_with
from .access.places_watch import PlacesWatch
from .access.regranting import Regranting
from .cluster.answers import Answering, Answers
from .cluster.pauses import Pauses, PauseWatch
from .cluster.rates_watch import RatesWatch
from .cluster.registration import Registration
from .cluster.statsd_push import StatsdPush
from .cluster.telling import Telling
from .cluster.tracer import Tracer
from .cluster.upkeep import Upkeep
from .cluster.vitals_watch import Measure, VitalsWatch
from .health import Health, health
from .namespace import Namespace
from .population.client_list import ClientList
from .population.drain import Drain
from .population.evictions import Evictions
from .population.joining import Joining
from .population.people import People
from .population.rebalancing import Rebalancing
from .population.refusals import Refusals
from .population.shedding import Shedding
from .reloading import OF_TOKENS, Changed, Reloading
from .requests.handlers import Handlers
from .requests.handling import Handling
from .requests.presence_requests import PresenceRequests
from .requests.publish_queue import PublishQueue
from .requests.streams import PATHS, Streams

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.transport.http_answers import Answer
    from headgate.transport.http_routes import RoutedRequest

log = structlog.get_logger("headgate.gateway")

# Between a payload and the message around it: names, ids, escapes. A message above this ends the connection (1009); a payload
# above its limit but below this is refused in the acknowledgement, and the connection lives.
ENVELOPE_BYTES = 4096
# What a gateway asks of Redis for a request; and what its parts say and ask now and then, over one connection, so that one that
# gets no answer holds up the others no longer.
COMMAND_TIMEOUT_S, ROUND_TIMEOUT_S = 2.0, 1.0


class Gateway:
    """See the module. `redis_url` must be set in `settings`."""

    def __init__(self, settings: Settings, authenticator: Authenticator | None = None) -> None:
        if settings.redis_url is None:
            raise BusUnavailable("no Redis: set HEADGATE_REDIS_URL, or start with `headgate serve`, which brings one")
        self.settings = settings
        warn_of_open_redis(settings.redis_url)
        REDIS_ROUND_TRIPS.put(ROUND_TRIPS)
        count_with(lambda counted: PUBLISH_BREAKER.labels(counted.value).inc())
        self.publisher = Publisher(
            settings.redis_url,
            max_payload_bytes=settings.max_payload_bytes,
            schemas=settings.schemas,
            schema_check=settings.schema_check_in_force(),
            on_schema_violation=lambda namespace, _: SCHEMA_VIOLATIONS.labels(namespace).inc(),
        )
        self._commands = open_client(settings.redis_url, timeout_s=COMMAND_TIMEOUT_S)
        self._rounds = rounds = open_client(settings.redis_url, timeout_s=ROUND_TIMEOUT_S, max_connections=1)
        self.registration = Registration(rounds, settings.namespaces, process_name)
        self.authorizing = Authorizing()
        self.namespaces = {
            name: Namespace(name, settings.redis_url, settings, self.registration.renew, self.authorizing)
            for name in settings.namespaces
        }
        self.publish_queues = {
            name: PublishQueue(self.publisher, namespace.receipts.published) for name, namespace in self.namespaces.items()
        }
        self.presences = {name: Presence(name, settings.redis_url, settings, self.publisher.publish) for name in self.namespaces}
        self._upkeep = Upkeep(rounds, settings, self._hear_retention)
        self._tracer = Tracer(rounds, self.namespaces)
        self._reloading = Reloading(
            settings,
            lambda new: self.publisher.prepare_schemas(new.schemas, new.schema_check_in_force()),
            (
                lambda new: self._shedding.use(new.max_clients, new.shed_lag_s),
                lambda new: self._logins.use(new),
                lambda new: self._joining.use(new),
                lambda new: refusals.use(new.max_refusals),
                lambda new: admission.use(new.max_clients_per_user, new.max_clients_per_address),
                lambda new: pending.use(0 if new.dev else new.max_clients_per_address),
                lambda new: self.rates_watch.use(new),
                *(namespace.use for namespace in self.namespaces.values()),
            ),
        )
        self._vitals_watch = VitalsWatch(rounds, Measure(self.namespaces, self._state))
        self._statsd_push = None if settings.statsd is None else StatsdPush(settings.statsd, settings.statsd_prefix)
        for name in self.namespaces:
            remembered(self._commands).resolve(name)  # this gateway serves it: no publisher in this process has to ask
        self._shedding = Shedding(settings.max_clients, settings.shed_lag_s, self._count_clients)
        self._watchdog = Watchdog(self._shedding.beat)
        self.pauses = Pauses()
        self._pause_watch = PauseWatch(rounds, self.pauses)
        self._rebalancing = Rebalancing(
            rounds, self.namespaces, lambda: self.sessions, settings.rebalance_per_s, name=process_name
        )
        self._hosts = Hosts(settings)
        self._drain = Drain(self.namespaces)
        self._sockets = SocketIOFace(
            namespaces=settings.namespaces,
            limits=_transport_limits(settings),
            allowed_origins="*" if "*" in settings.allowed_origins else origin_check(settings),
            allowing=partial(origins_with, settings),
            names_namespaces=settings.dev,
        )
        self._sockets.reuse_greenlets(authenticator is None)
        self.authorizing.on_application = partial(self._sockets.reuse_greenlets, False)
        places = Places(settings.max_clients_per_user)
        addresses = Places(settings.max_clients_per_address, name="clients_per_address", quiet=QUIET_CLIENTS)
        admission: Admission[Client] = Admission(places, addresses)
        self._telling = Telling(rounds)
        self.rates_watch = RatesWatch(self._telling)
        for namespace in self.namespaces.values():
            self.rates_watch.share(namespace.reads)
        places_watch = PlacesWatch(self._telling, places, admission.counts, addresses, admission.counts_at)
        # Development is one machine: there an address says nothing about who it is.
        pending = PendingSessions(0 if settings.dev else settings.max_clients_per_address)
        evictions = Evictions(self._sockets, self.namespaces, settings, admission, pending)
        self._expiry: Expiry[Client] = Expiry(evictions.expired)
        clients = ClientList(self.namespaces, admission, self._sockets, settings, lambda: name_of(self.registration.id))
        regrants = Regrants()
        questions = questions_channel(database_number(self._commands))
        self._revocation_watch = RevocationWatch(
            settings.redis_url,
            self._commands,  # nobody is let in before it has read, so it waits for no other part
            evictions.revoked,
            also=Listening(questions, self._begin_questions, lambda message: self._answers.hear(message)),
        )
        keys = ApiKeys(partial(api_keys.find, self._commands), settings.admin_key)
        self._logins = Logins(settings, authenticator, self._revocation_watch.check, api_keys=keys, regranted=regrants.apply)
        self.rates_watch.share(self._logins.failed_rates)
        presence = PresenceRequests(self.presences, self.pauses, self.authorizing)
        self._regranting = Regranting(
            self._sockets,
            self.namespaces,
            logins=self._logins,
            admission=admission,
            expiry=self._expiry,
            evictions=evictions,
            presence=presence,
            authorizing=self.authorizing,
            regrants=regrants,
            read=partial(read_regrant, self._commands),
        )
        self._people = People(clients, admission, evictions, self._regranting, settings.max_payload_bytes)
        handling = Handling(self.namespaces)
        kinds = {
            **self._people.kinds(),
            handled.KIND: Answering(handled.HandledQuestion, handling.find),
            vitals.KIND: Answering(type(None), lambda _: (), lambda _: self._vitals_watch.hear()),
            pauses.KIND: Answering(type(None), lambda _: (), lambda _: self._pause_watch.hurry()),
        }
        self._answers = Answers(self._commands, lambda: self.registration.id, kinds)
        refusals = Refusals(settings.max_refusals)
        self._joining = Joining(
            self._sockets,
            self.namespaces,
            settings,
            logins=self._logins,
            admission=admission,
            pending=pending,
            expiry=self._expiry,
            evictions=evictions,
            refusals=refusals,
            drain=self._drain,
            shedding=self._shedding,
            pauses=self.pauses,
            gone=presence.gone,
            next_look=places_watch.next_look,
        )
        self._sockets.hooks = self._joining
        handlers = Handlers(
            self._sockets,
            logins=self._logins,
            refusals=refusals,
            publisher=self.publisher,
            publish_queues=self.publish_queues,
            commands=self._commands,
            pauses=self.pauses,
            presence=presence,
            vitals=self._vitals_watch.answer,
            regranting=self._regranting,
            handling=handling,
        )
        limits = _transport_limits(settings)
        self._streams = Streams(self.namespaces, settings, self._joining, handlers, limits, self._sockets.origin_refused)
        for namespace in self.namespaces.values():
            self._sockets.route(
                namespace.name,
                connect=partial(self._joining.connect, namespace),
                disconnect=partial(self._joining.leave, namespace),
                requests=handlers.requests(namespace),
                unknown=partial(handlers.unknown, namespace),
            )

    # -- the gateway's life ------------------------------------------------------------------------------------------

    @property
    def authenticator(self) -> Authenticator:
        """Says whose a handshake is; set it before clients come."""
        return self._logins.authenticator

    @authenticator.setter
    def authenticator(self, authenticator: Authenticator) -> None:
        self._logins.authenticator = authenticator
        self._sockets.reuse_greenlets(False)

    def admit_console(self, admit: Authenticator) -> None:
        """Let pages of the console in as whom `admit` says; they say of themselves what they are. Set it before clients come."""
        self._logins.console = admit

    def identify(self, handshake: Handshake) -> Identity:
        """Return the identity behind a request, as a CONNECT would have it. Raises as `Logins.identify` does."""
        return self._logins.identify(handshake, again=True)

    def check_revoked(self, identity: Identity) -> None:
        """Refuse an identity that is revoked. Raises as `RevocationWatch.check`."""
        self._revocation_watch.check(identity)

    def answers_to(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is to a name of ours; `wsgi_app` refuses the others."""
        try:
            self._hosts.check(environ)
        except UnknownHost:
            return False
        return True

    def start(self) -> None:
        """Listen to the bus and to revocations, register with the other gateways, fetch the keys of tokens. Idempotent."""
        self._watchdog.start()
        self.registration.start()
        self._pause_watch.start()
        self._telling.start()
        self._rebalancing.start()
        self._upkeep.start()
        self._tracer.start()
        self._vitals_watch.start()
        if self._statsd_push is not None:
            self._statsd_push.start()
        self._logins.start()
        self._regranting.start()
        self._revocation_watch.start()
        for presence in self.presences.values():
            presence.start()
        for namespace in self.namespaces.values():
            namespace.bus.start()

    def not_ready(self) -> list[str]:
        """Return lines for the operator: why clients are refused, and what to do; no lines: Redis can be used."""
        for namespace in self.namespaces.values():
            if not namespace.bus.up and namespace.bus.last_error is not None:
                message, *advice = namespace.bus.last_error.lines()
                return [f"not ready, clients are refused for now: {message}", *advice]
        return []

    def own(self, letters: str) -> None:
        """Let the ids of sessions begin with letters that name this worker, before clients come."""
        self._sockets.own(letters)

    @property
    def sessions(self) -> int:
        """How many sessions there are, clients or not yet."""
        return self._sockets.count

    @property
    def draining(self) -> bool:
        """Whether new clients are refused because this gateway is about to stop."""
        return self._drain.begun

    def retire(self) -> bool:
        """Refuse new clients from now on; return whether it is known that no other gateway serves any of these namespaces.

        Asks Redis, for two seconds at most or so. Where it does not say, nothing is known.
        """
        self._drain.begin()
        self._rebalancing.leave()
        return self.registration.leave()

    def reload(self, wanted: Settings) -> Changed:
        """Apply other settings, as far as that can be while it runs (reloading.py), and read keys and schemas anew.

        With a fault in the file of keys the previous keys stay active, and the log says so.

        Raises:
            HeadgateError: the schemas are wrong; nothing has changed.
        """
        changed = self._reloading.reload(wanted, () if self._logins.takes_tokens else OF_TOKENS)
        self.settings = self._reloading.settings
        return changed

    def drain(self, within_s: float) -> None:
        """Let clients move to another gateway: tell them, refuse new ones, and end the connections that stay, in turn.

        Not ready from now on. Waits at most about `within_s` seconds, and not at all without clients; `close` comes after.
        """
        self._drain.run(within_s)

    def close(self) -> None:
        """End every session and stop listening. Idempotent."""
        self._sockets.close()
        self._streams.close()
        if self._statsd_push is not None:
            self._statsd_push.close()
        self._watchdog.close()
        self.registration.leave()
        self._pause_watch.close()
        self._telling.close()
        self._rebalancing.leave()
        self._upkeep.close()
        self._tracer.close()
        self._vitals_watch.close()
        self._revocation_watch.close()
        self._answers.close()
        self._regranting.close()
        self._logins.close()
        self._expiry.close()
        for presence in self.presences.values():
            presence.close()
        for namespace in self.namespaces.values():
            namespace.close()
        self.publisher.close()
        self._commands.close()
        self._rounds.close()

    def wsgi_app(self, application: WSGIApplication, own: frozenset[str] = frozenset()) -> WSGIApplication:
        """Return a WSGI application: Socket.IO's path and the streams' are ours, the rest and `own` is `application`'s."""
        sockets, paths = self._sockets.wsgi_app(application), frozenset(PATHS) - own

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            part = self._streams.answer if environ.get("PATH_INFO") in paths else sockets
            return part(environ, start_response)

        return self._hosts.guard(answer)

    def handshake(self, request: RoutedRequest) -> Answer | None:
        """Answer a request for a WebSocket below WSGI (transport/http_routes.py); leave any other to the application.

        None also when its socket is a session's now.

        Raises:
            ConnectionResetError: the client is gone.
        """
        if "transport=websocket" not in request.head.query or not self.answers_to(request.environ):
            return None
        return self._sockets.handshake(request)

    def ready(self) -> Health:
        """Return the gateway's health (health.py). Never waits."""
        watch = self._revocation_watch
        fault = watch.last_error
        return health(
            self.namespaces,
            revocations_known=watch.known,
            draining=self.draining,
            admission=self._shedding.word(),
            paused=self.pauses.names(),
            revocations_error=None if fault is None else fault.message,
        )

    def _hear_retention(self, namespace: str, retention_s: float) -> None:
        self.namespaces[namespace].retention_s = retention_s

    def _state(self) -> tuple[int, bool, str, list[str], bool]:
        """Return what vitals tell of this process as a whole."""
        known = self._revocation_watch.known
        return self.sessions, self.draining, self._shedding.word(), self.pauses.names(), known

    def _begin_questions(self, client: RedisClient) -> None:
        """Questions are heard from now on: read what may have been missed. Waits for Redis."""
        self._pause_watch.hurry()
        changed = self._regranting.regrants.replace(read_regrants(client))
        if changed:
            spawn(self._regranting.regrant_all, changed)

    def _count_clients(self) -> int:
        return sum(len(namespace.clients) for namespace in self.namespaces.values())


def warn_of_open_redis(url: str) -> None:
    """Log it if Redis is on another machine and has no password."""
    if is_open(url):
        log.warning(
            "Redis without a password", at=redacted_address(url), effect="whoever reaches it publishes, reads and revokes"
        )


def _transport_limits(settings: Settings) -> TransportLimits:
    return TransportLimits(
        max_message_bytes=2 * settings.max_payload_bytes + ENVELOPE_BYTES, **settings.values_for(TransportLimits)
    )
