"""Lets clients join and leave. A session opens, CONNECT is answered, `welcome` follows, and the client leaves.

In: the hooks of the server around a session, and Socket.IO's connect and disconnect. Out: a client in its namespace with the
subscriptions of its handshake active, or a refusal; its places freed when it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from headgate.auth.client_counts import CountsPending
from headgate.auth.identity import ANONYMOUS, Handshake, Identity
from headgate.delivery.client import Client
from headgate.errors import AuthorizeFailed, BusUnavailable, Forbidden, HeadgateError, InvalidRequest, LimitReached, Unauthorized
from headgate.events.wire.packets import STATUS, WELCOME
from headgate.events.wire.requests import Position, Subscription, check_text, read_resume
from headgate.node.access.access import Access
from headgate.node.cluster.cluster import Cluster
from headgate.node.connection import connection_of, notify
from headgate.node.namespace import Namespace
from headgate.redis.log import RECONNECT_S
from headgate.redis.pauses import CONNECTS
from headgate.runtime.logging import wire_form
from headgate.runtime.loop import sleep, spawn
from headgate.runtime.metrics import REFUSED, SESSIONS_REFUSED
from headgate.settings.settings import Settings
from headgate.transport.peer_address import address_of
from headgate.transport.session import Session
from headgate.transport.session_state import Reason
from headgate.transport.socketio_face import ConnectRefused, OneTooMany, SocketIOFace
from headgate.transport.stream import Stream

from .drain import Drain
from .evictions import Evictions
from .shedding import Shedding

HEARTBEAT_S = 10
CHECK_KEY_S = 1.0  # between two checks of a stream's key; ApiKeys cache each key as long
# A read of the other processes' counts may have begun before this client came. The next one includes it.
MAX_COUNT_TURNS = 4
TURN_WAIT_S = 1.0  # for each of them
# Patterns that a CONNECT may hold. Each has a separate result, so a client with more than its limit is not turned away.
MAX_ASKED = 1024
KEPT_OF_ENVIRON = (
    "HTTP_AUTHORIZATION",
    "HTTP_COOKIE",
    "HTTP_FORWARDED",
    "HTTP_HOST",
    "HTTP_ORIGIN",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PROTO",
    "REMOTE_ADDR",
    "wsgi.url_scheme",
)


class Joining:
    """See the module. `streams` is how many of the clients are streams."""

    def __init__(
        self,
        settings: Settings,
        sockets: SocketIOFace,
        access: Access,
        evictions: Evictions,
        drain: Drain,
        shedding: Shedding,
        cluster: Cluster,
    ) -> None:
        self._sockets, self._evictions, self._pending = sockets, evictions, evictions.pending
        self._logins, self._admission, self._refusals = access.logins, access.admission, access.refusals
        self._drain, self._shedding, self._pauses, self._table = drain, shedding, cluster.pauses, cluster.table
        self.streams = 0
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Apply other limits."""
        self._settings = settings
        self._limits = msgspec.Raw(msgspec.json.encode(settings.limits()))  # the same in each welcome

    def _limits_in(self, namespace: Namespace) -> msgspec.Raw:
        """Return the limits for a welcome, with the retention of the log if it is too short for a client to come back."""
        if namespace.retention_s >= RECONNECT_S:
            return self._limits
        limits = {**self._settings.limits(), "log_retention_s": round(namespace.retention_s, 1)}
        return msgspec.Raw(msgspec.json.encode(limits))

    def opening(self, eio_sid: str, environ: Mapping[str, Any]) -> OneTooMany | None:
        """Count a session until it joins, because it costs as much as a client, which has a limit per address."""
        try:
            self._pauses.check(CONNECTS)
            self._shedding.check_session(self._sockets.count - 1)
        except HeadgateError as error:
            return OneTooMany(error, "503 Service Unavailable")
        try:
            self._pending.open(eio_sid, address_of(environ, self._settings.proxies))
        except LimitReached as error:
            SESSIONS_REFUSED.inc()
            return OneTooMany(error)
        return None

    def over(self, eio_sid: str) -> None:
        """Forget an ended session."""
        self._pending.forget(eio_sid)
        self._refusals.forget(eio_sid)

    def connect(
        self, namespace: Namespace, connection: Session, session: str, environ: dict[str, Any], auth: object
    ) -> Callable[[], None]:
        """Authenticate and admit a client; return the function that welcomes it after its CONNECT packet.

        Raises ConnectRefused with `{code, message, retry, …}`.
        """
        try:
            self._check_open(namespace)
            if auth is not None and type(auth) is not dict and not isinstance(auth, Mapping):  # the usual one first: 0.4 µs
                raise InvalidRequest("auth: expected an object")
            check_text(auth)
            shown: Mapping[str, Any] = auth or {}
            point = read_resume(shown.get("resume"))
            wanted = shown.get("subscriptions") or []
            wanted = wanted if isinstance(wanted, list) else [wanted]
            identity, address = self._let_in(Handshake(namespace.name, shown, environ), len(wanted), point, again=False)
        except HeadgateError as error:
            REFUSED.labels(namespace.name, error.code).inc()
            wire = wire_form(error)
            raise ConnectRefused(wire["message"], wire) from error
        client = self._take_in(namespace, session, identity, connection, address)
        if self._logins.is_application:
            client.auth = {name: value for name, value in shown.items() if name not in ("subscriptions", "resume")}
        return partial(self._joined, namespace, connection, client, wanted, point)

    def open_stream(
        self,
        namespace: Namespace,
        stream: Stream,
        handshake: Handshake,
        wanted: list[Any],
        point: Position | None,
        *,
        is_strict: bool = True,
        stays: bool = True,
    ) -> Client:
        """Admit a stream's client, and welcome it. May switch greenlets.

        Args:
            is_strict: only with all its subscriptions.
            stays: it is here for longer than one request. Otherwise it has nowhere to move, and a drain does not refuse it.

        Raises HeadgateError as for any client, or if a subscription is refused. `leave` must follow.
        """
        try:
            self._check_open(namespace, stays=stays)
            identity, address = self._let_in(handshake, len(wanted), point, again=True, stays=stays)
            self._charge(namespace, identity, address)
            stream.cork()
            client = self._take_in(namespace, stream.sid, identity, stream, address)
            self.streams += 1
            if self._logins.is_application:
                client.auth = handshake.auth
            self._welcome(namespace, client, wanted, point, is_strict=is_strict)
        except HeadgateError as error:
            REFUSED.labels(namespace.name, error.code).inc()
            raise
        stream.uncork(at_once=True)  # in one piece with the welcome
        if identity.scopes is not None:
            spawn(self._watch_key, client, handshake)
        return client

    def _watch_key(self, client: Client, handshake: Handshake) -> None:
        """Disconnect the client of an API key once it is revoked. Waits while the client is here."""
        while not client.connection.closed:
            sleep(CHECK_KEY_S)
            try:
                self._logins.check_key(handshake)
            except Unauthorized as error:
                self._evictions.refused([client], error)
            except HeadgateError:
                continue  # Redis is unreachable, and so are its events

    def _charge(self, namespace: Namespace, identity: Identity, address: str | None) -> None:
        """Count a stream as a read, because a client that polls joins with each request."""
        account = identity.user if identity.user != ANONYMOUS else f"\0{address}"
        if wait_s := namespace.search.reads.spend(account, monotonic()):
            raise LimitReached("read_per_s", namespace.search.reads.per_s, wait_s)

    def _check_open(self, namespace: Namespace, *, stays: bool = True) -> None:
        if stays:
            self._drain.check()
        self._pauses.check(CONNECTS, namespace.name)
        if namespace.bus.epoch is None:
            raise namespace.bus.last_error or BusUnavailable("the gateway has not reached Redis yet")

    def _let_in(
        self, handshake: Handshake, subscriptions: int, point: Position | None, *, again: bool, stays: bool = True
    ) -> tuple[Identity, str | None]:
        """Return the identity of a client if there is room for it, and the address that it counts for."""
        self._shedding.check_client(returning=point is not None)
        most = max(MAX_ASKED, self._settings.max_subscriptions)
        if subscriptions > most:
            raise LimitReached("connect_subscriptions", most)
        address = address_of(handshake.environ, self._settings.proxies)
        identity = self._logins.identify(handshake, again=again, address=address)
        if self._settings.dev and identity.user == ANONYMOUS:
            address = None  # not counted
        changes = self._logins.changes
        has_waited = self._find_place(identity.user, address)
        # The waits, also those of a login, were long enough for the gateway to change.
        if stays:
            self._drain.check()  # a client that joins after the notice would never get it
        self._pauses.check(CONNECTS, handshake.namespace)
        self._shedding.check_client(returning=point is not None)  # others may have joined
        if not has_waited:
            return identity, address
        if self._logins.has_changed(identity.user, changes):
            return self._let_in(handshake, subscriptions, point, again=again, stays=stays)
        # From now on a change of the user's rights reaches this client.
        return self._logins.as_of_now(identity), address

    def _take_in(
        self, namespace: Namespace, session: str, identity: Identity, connection: Session | Stream, address: str | None
    ) -> Client:
        client = namespace.join(session, identity, connection, address)
        self._admission.join(client, address)
        connection.owners = (*connection.owners, client)
        return client

    def _find_place(self, user: str, address: str | None) -> bool:
        """Refuse a client beyond a limit. Waits for a few turns of the shared table if it depends on other processes.

        Returns whether it has waited.

        Raises LimitReached as `Admission.check`.
        """
        for turn in range(MAX_COUNT_TURNS):
            try:
                self._admission.check(user, address)
            except CountsPending:
                if not self._table.next_turn(TURN_WAIT_S):
                    raise
            else:
                return turn > 0
        self._admission.check(user, address)
        return True

    def _joined(
        self, namespace: Namespace, connection: Session, client: Client, wanted: list[Any], point: Position | None
    ) -> None:
        """Activate the subscriptions of the handshake, then welcome. The CONNECT packet is queued already."""
        self._pending.forget(connection.sid)
        # Keep only what an authenticator may need when this connection joins again or another namespace, of 3 KB per client.
        self._sockets.trim_environ(connection.sid, KEPT_OF_ENVIRON)
        # The connection is corked, so the welcome goes before any gap and any event from the log or the bus.
        try:
            self._welcome(namespace, client, wanted, point)
        except Unauthorized:
            pass  # disconnected while Redis was asked
        except Exception as error:
            # The client comes back with the same point. An event queued after the welcome must not arrive without it and move
            # the point.
            connection.queue.discard(client)
            if not isinstance(error, HeadgateError):
                connection.end("not welcomed")
                raise
            REFUSED.labels(namespace.name, error.code).inc()
            connection.end("bus unavailable")

    def _welcome(
        self,
        namespace: Namespace,
        client: Client,
        wanted: list[Any],
        point: Position | None,
        *,
        is_strict: bool = False,
    ) -> None:
        """Make the subscriptions of a handshake active, and welcome their client. May switch greenlets.

        Raises HeadgateError as `Namespace.resume`, or with `is_strict` if a subscription is refused.
        """
        identity = client.identity
        outcomes = namespace.subscriptions.add_all(client, wanted)
        if is_strict and (first := next((each for each in outcomes if isinstance(each, HeadgateError)), None)):
            raise first
        results = self._results(namespace, client, wanted, outcomes)
        resumed, start = namespace.resume(client, point)  # may wait, so the feed's position is read after it
        is_regranted = client.identity is not identity
        if is_regranted:
            results = [_as_it_is(client, result) for result in results]
        welcome = {
            "session": client.session,
            "user": client.identity.user,
            **({} if (own := client.identity.own_topics) is None else {"own": own.removesuffix("#")}),
            "epoch": namespace.bus.epoch,
            "offset": namespace.position(client, start),
            "limits": self._limits_in(namespace),
            "resumed": resumed,
            "from": None if start is None else {"epoch": start.epoch, "offset": start.offset},
            "subscriptions": results,
            "heartbeat_s": HEARTBEAT_S,
        }
        notify(client, WELCOME, welcome, flush=False)
        if is_regranted:  # the notice came before the welcome, where it is ignored
            notify(client, STATUS, {"granted": True}, flush=False)
        if not namespace.bus.up:
            notify(client, STATUS, {"bus": "down"}, flush=False)

    def _results(
        self, namespace: Namespace, client: Client, wanted: list[Any], outcomes: list[Subscription | HeadgateError]
    ) -> list[dict[str, Any]]:
        """Return the welcome's result for each subscription. A refused one does not affect the others."""
        results: list[dict[str, Any]] = []
        is_over = False
        for request, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, HeadgateError):
                pattern = request.get("pattern") if isinstance(request, Mapping) else None
                pattern = pattern if isinstance(pattern, str) else None
                # The first welcome states the limits, so everything above them counts as one refusal.
                counted = None if is_over and isinstance(outcome, LimitReached) else client
                is_over = is_over or isinstance(outcome, LimitReached)
                results.append(
                    {"pattern": pattern, "ok": False, "error": self._refusals.refuse(namespace.name, counted, outcome)}
                )
            else:
                results.append({**outcome.answer, "ok": True})
        return results

    def leave(self, namespace: Namespace, session: str, reason: str) -> None:
        """Forget a client after it left or was disconnected. Idempotent."""
        client = namespace.clients.get(session)
        if client is not None:
            connection = connection_of(client)
            connection.owners = tuple(owner for owner in connection.owners if owner is not client)
            self._admission.leave(client)
            self.streams -= isinstance(connection, Stream)
            namespace.leave(session, in_order=reason == Reason.CLIENT_DISCONNECT)
            if reason == Reason.CLIENT_DISCONNECT and not isinstance(connection, Stream):
                # It is no longer counted, so its connection must not stay forever.
                self._evictions.end_pending_later(connection, f"no CONNECT within {self._settings.handshake_deadline_s:g} s")


def _as_it_is(client: Client, result: dict[str, Any]) -> dict[str, Any]:
    """Return the present result of a subscription. The client's grants have changed since, and may have ended it."""
    pattern = result["pattern"]
    if not result["ok"] or pattern in client.subscriptions:
        return result
    # Within the grants, `authorize` ended it, perhaps by raising. The next answer shows which.
    error = AuthorizeFailed if client.identity.may_subscribe(pattern) else Forbidden
    return {"pattern": pattern, "ok": False, "error": error("subscribe to", pattern).to_wire()}
