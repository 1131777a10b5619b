"""Access decides which clients may connect and what each may do.

In: logins, revocations from Redis, other grants. Out: identities, or an error with the reason; to the evictions, the clients
without access from now on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from headgate.auth.admission import Admission
from headgate.auth.api_keys import ApiKeys, key_of
from headgate.auth.expiry import Expiry
from headgate.auth.identity import Authenticator
from headgate.auth.repair import KeptKeys, read_revoked
from headgate.auth.revocation import TOKEN, USER, Decision, kind_of
from headgate.auth.revocation_watch import RevocationWatch
from headgate.delivery.client import Client
from headgate.errors import HeadgateError, Unauthorized, UnauthorizedReason
from headgate.node.cluster.cluster import Cluster
from headgate.node.connection import connection_of
from headgate.node.namespace import Namespace
from headgate.redis import api_keys
from headgate.redis.client import Client as RedisClient
from headgate.redis.client import drop_idle
from headgate.runtime.logging import wire_form
from headgate.runtime.metrics import REFUSED
from headgate.runtime.periodic import PeriodicTask
from headgate.runtime.rates import Rates
from headgate.services.publisher import DEFAULT_TIMEOUT_S
from headgate.settings.settings import Settings
from headgate.transport.frame_parser import POLICY
from headgate.transport.socketio_face import SocketIOFace

from .logins import Logins
from .origin import Hosts
from .regranting import CHECK_EVERY_S, Regranting

if TYPE_CHECKING:
    from headgate.node.population.evictions import Evictions

# Longest wait for revocations, and for changes of grants. Redis may be unreachable, and an authenticator may hang.
RIGHTS_WITHIN_S = 2.0

log = structlog.get_logger("headgate.access")


class Access:
    """See the module. `authenticator` is the application's, or None for tokens."""

    def __init__(
        self,
        settings: Settings,
        authenticator: Authenticator | None,
        sockets: SocketIOFace,
        namespaces: Mapping[str, Namespace],
        evictions: Evictions,
        cluster: Cluster,
    ) -> None:
        assert settings.redis_url is not None  # the gateway has checked it
        self._evictions, self._redis = evictions, cluster.redis
        self.hosts = Hosts(settings)
        self.expiry: Expiry[Client] = Expiry(partial(evictions.refused, why=Unauthorized(UnauthorizedReason.EXPIRED)))
        limits = settings.max_clients_per_user, settings.max_clients_per_address
        self.admission: Admission[Client] = Admission(*limits, self.expiry)
        for counts in (self.admission.users, self.admission.addresses):
            counts.wanted = cluster.table.add(counts)
        self.refusals = Refusals(settings.max_refusals)
        # No client is admitted before it has read the revocations, so it waits for no other part.
        self.revocations = RevocationWatch(settings.redis_url, cluster.redis, self._revoked, _read_once, also=cluster.questions)
        cluster.table.on_lost = self.revocations.renew  # a flush breaks no connection
        self._periodic_redis, self._kept = cluster.periodic_redis, KeptKeys()
        self._checks = PeriodicTask(self.check_rights, lambda: log.exception("rights not checked"), CHECK_EVERY_S)
        keys = ApiKeys(partial(api_keys.find_within, cluster.redis, DEFAULT_TIMEOUT_S), settings.admin_key)
        self.logins = Logins(settings, authenticator, self.revocations.check, api_keys=keys)
        cluster.share(self.logins.failed_rates)
        self.regranting = Regranting(sockets, namespaces, self.logins, self.admission, evictions, cluster.redis)

    def start(self) -> None:
        """Fetch the keys of tokens, and read the revocations. Idempotent."""
        self.logins.start()
        self.revocations.start()
        self._checks.start()

    def check_again(self) -> None:
        """End clients expired during a stall of this process, and read revocations and grants again. Never waits."""
        self.expiry.tick()
        self.revocations.renew()

    def wait_for_rights(self) -> None:
        """Wait for `check_again`, at most RIGHTS_WITHIN_S each for revocations and grants."""
        self.revocations.was_known.wait(timeout=RIGHTS_WITHIN_S)
        if self.regranting.checking is not None:
            self.regranting.checking.join(timeout=RIGHTS_WITHIN_S)

    def apply(self, settings: Settings) -> None:
        """Apply other keys, grants of anonymous clients, and limits."""
        self.logins.apply(settings)
        self.refusals.apply(settings.max_refusals)
        self.admission.apply(settings.max_clients_per_user, settings.max_clients_per_address)

    def close(self) -> None:
        """Stop. Idempotent."""
        self._checks.close()
        self.revocations.close()
        self.logins.close()
        self.expiry.close()

    def check_rights(self) -> float:
        """Check for ended explicit grants, and read all rights again if Redis has lost a key with some. Waits for Redis.

        Returns the seconds until the next check.
        """
        self.regranting.tick()
        with suppress(HeadgateError):  # the watch reports it
            if self._kept.has_lost(self._periodic_redis):
                self.revocations.renew()
        return CHECK_EVERY_S

    def _revoked(self, members: Iterable[str]) -> None:
        named = [kind_of(member) or (TOKEN, "") for member in members]
        if keys := [key_id for kind, name in named if kind == USER and (key_id := key_of(name)) is not None]:
            with suppress(HeadgateError):  # the clients are refused anyway
                api_keys.remove_again(self._redis, keys)
        of = self.admission
        clients = (each for kind, name in named for each in (of.of_token(name) if kind == TOKEN else of.of_user(name)))
        self._evictions.refused(clients, Unauthorized(UnauthorizedReason.REVOKED))


def _read_once(client: RedisClient, known: Iterable[Decision]) -> list[Decision]:
    """Return the revocations, as `read_revoked`. Closes the connection, because an idle gateway does not need it."""
    revoked = read_revoked(client, known)
    drop_idle(client)
    return revoked


# A page with an occasional refusal over hours is harmless.
FORGIVEN_PER_S = 1.0


class Refusals:
    """Counts the refused requests of each connection, and ends one with more than `limit`. `now_s` is monotonic."""

    def __init__(self, limit: int, now_s: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._now_s = now_s
        self._rates = Rates(FORGIVEN_PER_S, limit)

    def apply(self, limit: int) -> None:
        """Apply another limit. All counts start again."""
        if limit != self._limit:
            self._limit, self._rates = limit, Rates(FORGIVEN_PER_S, limit)

    def refuse(self, namespace: str, client: Client | None, error: HeadgateError) -> dict[str, Any]:
        """Count a refusal, and end the connection of a client with too many; return the error for the wire."""
        REFUSED.labels(namespace, error.code).inc()
        if client is not None and not error.retry and not client.connection.closed:
            connection = connection_of(client)
            if self._rates.spend(connection.sid, self._now_s()):
                connection.end("refused too often", code=POLICY, shown=f"limit_reached: refusals (at most {self._limit})")
        return wire_form(error)

    def forget(self, eio_sid: str) -> None:
        """Forget an ended connection. Idempotent."""
        self._rates.forget(eio_sid)
