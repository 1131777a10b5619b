"""The gateway: Socket.IO handlers in front, namespaces behind. One per process.

In: an application's authenticator (else tokens decide), settings, a Redis URL. Out: `wsgi_app`, which answers Socket.IO's
path and passes everything else on to the application; `start` and `close`; `ready`.

A client's life: HTTP (transport) → CONNECT with `auth` → authenticator, revocations, admission → `welcome`, sent when the
subscriptions that came with the handshake are in force → requests, each acknowledged → leave, or be put out: its identity
has expired or was revoked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from random import shuffle
from time import monotonic, time
from traceback import extract_tb, format_exception_only
from typing import Any

import structlog
from socketio.exceptions import ConnectionRefusedError as Refusal

from headgate.auth.admission import SESSION_RETRY_S, Admission, FailedLogins, LoginsThrottled, Outsiders
from headgate.auth.audit import audit
from headgate.auth.expiry import Expiry
from headgate.auth.identity import ANONYMOUS, Authenticator, Handshake, Identity
from headgate.auth.jwks import Jwks
from headgate.auth.revocation import TOKEN, kind_of, revoked
from headgate.auth.revocation_watch import RevocationWatch
from headgate.auth.tokens import Tokens, configured_keys, refusal, token_authenticator
from headgate.delivery.client import Client
from headgate.errors import (
    BusUnavailable,
    Forbidden,
    HeadgateError,
    InvalidRequest,
    LimitReached,
    PayloadTooLarge,
    SettingsError,
    Unauthorized,
    UnknownHost,
    leaving,
)
from headgate.event import check_event_id
from headgate.metrics import HOSTS_REFUSED, LOGINS_THROTTLED, PUT_OUT, REFUSED, SESSIONS_REFUSED
from headgate.protocol.frames import message_frame
from headgate.protocol.packets import (
    PUBLISH,
    REFRESH,
    REPLAY,
    SEEN,
    STATUS,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WELCOME,
    notice_packet,
    ok,
    refused,
)
from headgate.protocol.requests import check_text, read_refresh, read_resume, read_seen
from headgate.publisher import Publisher
from headgate.redis.client import is_open, open_client, place
from headgate.redis.registry import remembered
from headgate.redis.seen import mark_seen
from headgate.runtime.logging import told
from headgate.runtime.loop import Share, sleep
from headgate.runtime.rates import Rates
from headgate.runtime.watchdog import Watchdog
from headgate.settings import Settings
from headgate.socketio import Server, TransportLimits, WSGIApp
from headgate.topic import check_topic
from headgate.transport.frame_parser import POLICY
from headgate.transport.peer_address import address_of
from headgate.transport.server import FastPacket, Members, OneTooMany
from headgate.transport.session import CLIENT_DISCONNECT

from .namespace import Namespace
from .origin import Hosts, origin_check
from .registration import Registration

log = structlog.get_logger("headgate.gateway")

# Between a payload and the message around it: names, ids, escapes. A message above this ends the connection (1009); a payload
# above its limit but below this is refused in the acknowledgement, and the connection lives.
ENVELOPE_BYTES = 4096
HEARTBEAT_S = 10
# A publish is tried twice: a browser has its answer within about four seconds, also when Redis says nothing.
PUBLISH_TIMEOUT_S = 2.0
_KEPT_OF_ENVIRON = (
    "HTTP_AUTHORIZATION",
    "HTTP_COOKIE",
    "HTTP_HOST",
    "HTTP_ORIGIN",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PROTO",
    "REMOTE_ADDR",
    "wsgi.url_scheme",
)
# How long tokens are read, whosever they are, before everybody else has a turn.
TOKENS_SHARE_S = 0.001
# A page that is refused something now and then, for hours, means no harm.
REFUSALS_FORGIVEN_PER_S = 1.0
# Putting many out at once: let the loop run after so many.
_PUT_OUT_STRIDE = 64
# Reasons that are no failed login.
_OUR_FAULT = ("authenticator_failed", "no_authenticator")
# Of an authenticator that failed.
_LOGGED_FRAMES = 5
# While clients move: how often to look whether the next one has left by itself.
_DRAIN_LOOK_S = 0.05


class _SocketServer(Server):
    """python-socketio with hooks: what comes before a session, follows the CONNECT packet, and comes after."""

    accept_binary = False
    acknowledges_ahead = True  # a client that is behind must hear that it has subscribed; what it misses, it is told
    on_opening: Callable[[str, Mapping[str, Any]], OneTooMany | None]
    on_joined: Callable[[str, str, str], None]
    on_over: Callable[[str], None]

    def opening(self, eio_sid: str, environ: Mapping[str, Any]) -> OneTooMany | None:
        return self.on_opening(eio_sid, environ)

    def joined(self, eio_sid: str, namespace: str, sid: str) -> None:
        self.on_joined(eio_sid, namespace, sid)

    def over(self, eio_sid: str) -> None:
        self.on_over(eio_sid)


class Gateway:
    """See the module. `redis_url` must be set in `settings`."""

    def __init__(self, settings: Settings, authenticator: Authenticator | None = None) -> None:
        if settings.redis_url is None:
            raise BusUnavailable("no Redis: set HEADGATE_REDIS_URL, or start with `headgate serve`, which brings one")
        self.settings = settings
        warn_of_open_redis(settings.redis_url)
        self.draining = False
        self._tokens = None if authenticator else Tokens.configured(settings)
        self._by_token = token_authenticator(self._tokens, settings)
        self.authenticator: Authenticator = authenticator or self._by_token
        self._jwks: Jwks | None = None
        if self._tokens is not None and settings.token_jwks_url is not None:
            self._jwks = Jwks(settings.token_jwks_url, self._tokens.use_fetched)
            self._tokens.may_come = self._jwks.may_bring
        # Reading a token takes up to 1 ms, and a hundred may come at once. An application's own authenticator may wait.
        self._reading_tokens: Any = Share(TOKENS_SHARE_S) if authenticator is None else nullcontext()
        self._admission: Admission[Client] = Admission(settings.max_clients_per_user, settings.max_clients_per_address)
        # Development is one machine: there an address says nothing about who it is.
        self._outsiders = Outsiders(0 if settings.dev else settings.max_clients_per_address)
        self._failed_logins = FailedLogins(settings.failed_logins_per_s, 0 if settings.dev else settings.failed_logins_burst)
        self._hosts = Hosts(settings)
        self._refusals = Rates(REFUSALS_FORGIVEN_PER_S, settings.max_refusals)
        self._expiry: Expiry[Client] = Expiry(self._expired)
        self._revocation_watch = RevocationWatch(settings.redis_url, self._revoked)
        self.publisher = Publisher(settings.redis_url, max_payload_bytes=settings.max_payload_bytes, timeout_s=PUBLISH_TIMEOUT_S)
        self._watchdog = Watchdog()
        self._commands = open_client(settings.redis_url, timeout_s=PUBLISH_TIMEOUT_S)
        self.registration = Registration(settings.redis_url, settings.namespaces)
        self.namespaces = {
            name: Namespace(name, settings.redis_url, settings, self.registration.renew) for name in settings.namespaces
        }
        for name in self.namespaces:
            remembered(self._commands).settle(name)  # by us: no publisher in this process need ask
        self._server = _SocketServer(
            async_handlers=False,
            client_manager=Members(),
            serializer=FastPacket,
            namespaces=[f"/{name}" for name in settings.namespaces],
            cors_allowed_origins="*" if "*" in settings.allowed_origins else origin_check(settings),
            transport_limits=_transport_limits(settings),
            http_compression=False,
            logger=False,
        )
        self._server.on_opening = self._opening
        self._server.on_joined = self._joined
        self._server.on_over = self._over
        for name in self.namespaces:
            self._route(name)

    def start(self) -> None:
        """Listen to the bus and to revocations, register with the other gateways, fetch the keys of tokens. Idempotent."""
        self._watchdog.start()
        self.registration.start()
        if self._jwks is not None and self.authenticator is self._by_token:
            self._jwks.start()
        self._revocation_watch.start()
        for namespace in self.namespaces.values():
            namespace.bus.start()

    def retire(self) -> bool:
        """Let nobody new in from now on; return whether it is known that no other gateway serves any of these namespaces.

        Asks Redis, for two seconds at most or so. Where it does not say, nothing is known.
        """
        self.draining = True
        return self.registration.leave()

    def reload_keys(self) -> None:
        """Read the file of keys anew, and ask for the issuer's. With a fault in the file the keys before stay in force."""
        if self._jwks is not None:
            self._jwks.refresh()
        if self._tokens is None:
            return
        try:
            keys = configured_keys(self.settings)
        except SettingsError as error:
            log.error("token keys not reloaded", faults=list(error.faults))
            return
        self._tokens.configure(keys)
        log.info("token keys reloaded", keys=len(keys))

    def drain(self, within_s: float) -> None:
        """Let clients move to another gateway: tell them, let nobody new in, and end what has not left by itself, in turn.

        Not ready from now on. Waits at most about `within_s` seconds, and not at all when there is nobody; `close` comes after.
        """
        self.draining = True
        clients = [client for namespace in self.namespaces.values() for client in namespace.clients.values()]
        shuffle(clients)
        moving = {"moving": {"reason": "restart", "within_s": within_s}}
        frames = {name: message_frame(notice_packet(name, STATUS, moving)) for name in self.namespaces}
        began_s = monotonic()
        for count, client in enumerate(clients, 1):
            client.connection.offer_control(frames[client.namespace])
            if not count % _PUT_OUT_STRIDE:
                sleep()
        for count, client in enumerate(clients, 1):
            while client.session in self.namespaces[client.namespace].clients:
                left_s = began_s + within_s * count / len(clients) - monotonic()
                if left_s <= 0:
                    connection: Any = client.connection
                    connection.end("restart")
                    break
                sleep(min(left_s, _DRAIN_LOOK_S))

    def close(self) -> None:
        """End every session and stop listening. Idempotent."""
        self._server.eio.disconnect()
        self._watchdog.close()
        self.registration.close()
        self._revocation_watch.close()
        if self._jwks is not None:
            self._jwks.close()
        self._expiry.close()
        for namespace in self.namespaces.values():
            namespace.close()
        self.publisher.close()
        self._commands.close()

    def wsgi_app(self, application: Any) -> Any:
        """Return a WSGI application: Socket.IO's path is ours, the rest is `application`'s. Both under our names only."""
        inner = WSGIApp(self._server, application)

        def known_host(environ: Mapping[str, Any], start_response: Any) -> Any:
            try:
                self._hosts.check(environ)
            except UnknownHost as error:
                HOSTS_REFUSED.inc()
                body = json.dumps({"error": error.to_wire()}).encode()
                headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
                start_response("421 Misdirected Request", headers)
                return [body]
            return inner(environ, start_response)

        return known_host

    def ready(self) -> dict[str, Any]:
        """Return `{ready, bus, revocations, namespaces: {name: {bus, epoch, offset, clients, error?}}}`. Never waits.

        Ready means that events flow and that who comes is let in, for which it must be known what is revoked.
        """
        states: dict[str, Any] = {}
        for name, namespace in self.namespaces.items():
            bus = namespace.bus
            states[name] = {
                "bus": "up" if bus.up else "down",
                "epoch": bus.epoch,
                "offset": bus.offset,
                "clients": len(namespace.clients),
            }
            if bus.last_error is not None:
                states[name]["error"] = bus.last_error.message
        up = all(namespace.bus.up for namespace in self.namespaces.values())
        known = self._revocation_watch.known
        return {
            "ready": up and known and not self.draining,
            "bus": "up" if up else "down",
            "revocations": known,
            "namespaces": states,
        }

    # -- handlers, in the order of a client's life ----------------------------------------------------------------

    def _route(self, name: str) -> None:
        path = f"/{name}"
        server, namespace = self._server, self.namespaces[name]

        def acknowledged(request: Callable[[Namespace, Client, Any], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
            def answer(session: str, *arguments: Any) -> dict[str, Any]:
                return self._answer(namespace, session, arguments, request)

            return answer

        server.on("connect", lambda session, environ, auth: self._connect(namespace, session, environ, auth), namespace=path)
        server.on("disconnect", lambda session, reason: self._leave(namespace, session, reason), namespace=path)
        server.on(SUBSCRIBE, acknowledged(self._subscribe), namespace=path)
        server.on(UNSUBSCRIBE, acknowledged(self._unsubscribe), namespace=path)
        server.on(REPLAY, acknowledged(lambda namespace, client, body: namespace.replay(client, body)), namespace=path)
        server.on(PUBLISH, acknowledged(self._publish), namespace=path)
        server.on(REFRESH, acknowledged(self._refresh), namespace=path)
        server.on(SEEN, acknowledged(self._seen), namespace=path)
        server.on("*", lambda name, session, *_: self._unknown(namespace, session, name), namespace=path)

    def _opening(self, eio_sid: str, environ: Mapping[str, Any]) -> OneTooMany | None:
        """Count a session until it joins. Who never does costs as much as a client, which has a limit per address."""
        try:
            self._outsiders.open(eio_sid, address_of(environ, self.settings.proxies))
        except LimitReached as error:
            SESSIONS_REFUSED.inc()
            return OneTooMany(error.message, error.retry_after_s or SESSION_RETRY_S)
        return None

    def _over(self, eio_sid: str) -> None:
        self._outsiders.forget(eio_sid)
        self._refusals.forget(eio_sid)

    def _connect(self, namespace: Namespace, session: str, environ: dict[str, Any], auth: Any) -> None:
        """Authenticate; what is refused is told as connect_error with `{code, message, retry, …}` in `data`."""
        try:
            self._check_staying()
            if namespace.bus.epoch is None:
                raise namespace.bus.last_error or BusUnavailable("the gateway has not reached Redis yet")
            if auth is not None and not isinstance(auth, Mapping):
                raise InvalidRequest("auth: expected an object")
            check_text(auth)
            point = read_resume((auth or {}).get("resume"))
            wanted = (auth or {}).get("subscriptions") or []
            wanted = wanted if isinstance(wanted, list) else [wanted]
            if len(wanted) > self.settings.max_subscriptions:
                raise LimitReached("subscriptions", self.settings.max_subscriptions)
            identity = self.identify(Handshake(namespace.name, auth or {}, environ))
            self._check_staying()  # who joins after the others were told would never be
            counted = not (self.settings.dev and identity.user == ANONYMOUS)
            address = address_of(environ, self.settings.proxies) if counted else None
            self._admission.check(identity.user, address)
        except HeadgateError as error:
            REFUSED.labels(namespace.name, error.code).inc()
            wire = told(error)
            raise Refusal(wire["message"], wire) from error
        connection = self._server.eio.sockets[self._server.manager.eio_sid_from_sid(session, f"/{namespace.name}")]
        client = namespace.join(session, identity, connection, address)
        self._admission.join(client, address)
        self._expiry.set(client, identity.expires_at)
        connection.owners = (*connection.owners, client)
        connection.session[namespace.name] = (client, wanted, point)  # until `_joined`, behind the CONNECT packet

    def _check_staying(self) -> None:
        if self.draining:
            raise leaving()

    def _joined(self, eio_sid: str, path: str, session: str) -> None:
        """The CONNECT packet is out: make the handshake's subscriptions active, then say welcome."""
        self._outsiders.forget(eio_sid)
        connection = self._server.eio.sockets.get(eio_sid)
        if connection is None:
            return
        namespace = self.namespaces[path.removeprefix("/")]
        client, wanted, point = connection.session.pop(namespace.name)
        # Of 3 KB per client, what an authenticator may ask for when this connection joins once more, or another namespace.
        environ = self._server.environ.get(eio_sid, {})
        self._server.environ[eio_sid] = {name: environ[name] for name in _KEPT_OF_ENVIRON if name in environ}
        connection.cork()  # welcome goes first: before a gap, and before what the log or the bus brings meanwhile
        try:
            results = self._subscribe_all(namespace, client, wanted)
            resumed = namespace.resume(client, point)  # may wait: where the feed stands is read behind it
            welcome = {
                "session": session,
                "user": client.identity.user,
                "epoch": namespace.bus.epoch,
                "offset": namespace.bus.offset,
                "limits": self.settings.limits(),
                "resumed": resumed,
                "subscriptions": results,
                "heartbeat_s": HEARTBEAT_S,
            }
            connection.offer_control(message_frame(notice_packet(namespace.name, WELCOME, welcome)))
            if not namespace.bus.up:
                connection.offer_control(message_frame(notice_packet(namespace.name, STATUS, {"bus": "down"})))
        except Unauthorized:
            pass  # put out while Redis was asked
        except HeadgateError as error:
            REFUSED.labels(namespace.name, error.code).inc()
            connection.end("bus unavailable")  # it comes back, with the same point
        finally:
            connection.uncork()

    def _subscribe_all(self, namespace: Namespace, client: Client, wanted: list[Any]) -> list[dict[str, Any]]:
        """Make the handshake's subscriptions active; one that is refused does not cost the others theirs."""
        results: list[dict[str, Any]] = []
        for request, outcome in zip(wanted, namespace.subscribe_all(client, wanted), strict=True):
            if isinstance(outcome, HeadgateError):
                pattern = request.get("pattern") if isinstance(request, Mapping) else None
                pattern = pattern if isinstance(pattern, str) else None
                results.append({"pattern": pattern, "ok": False, "error": self._refuse(namespace, client, outcome)})
            else:
                results.append({"pattern": outcome, "ok": True})
        return results

    def _refuse(self, namespace: Namespace, client: Client | None, error: HeadgateError) -> dict[str, Any]:
        """Count a refusal, and end the connection of a client that has been refused too often; return the error for the wire."""
        REFUSED.labels(namespace.name, error.code).inc()
        if client is not None and not error.retry and not client.connection.closed:
            connection: Any = client.connection
            if self._refusals.spend(connection.sid, monotonic()):
                limit = self.settings.max_refusals
                connection.end("refused too often", code=POLICY, told=f"limit_reached: refusals (at most {limit})")
        return told(error)

    def _answer(
        self,
        namespace: Namespace,
        session: str,
        arguments: tuple[Any, ...],
        request: Callable[[Namespace, Client, Any], dict[str, Any]],
    ) -> dict[str, Any]:
        client = namespace.clients.get(session)
        try:
            if client is None:
                raise Unauthorized("left", "this session has left")
            if len(arguments) != 1 or not isinstance(arguments[0], Mapping):
                raise InvalidRequest("expected one object as the argument")
            # What is published is checked as it is encoded, and has an error of its own.
            check_text({name: value for name, value in arguments[0].items() if name != "data"})
            return ok(**request(namespace, client, arguments[0]))
        except HeadgateError as error:
            return refused(self._refuse(namespace, client, error))

    def _unknown(self, namespace: Namespace, session: str, name: str) -> dict[str, Any]:
        return refused(self._refuse(namespace, namespace.clients.get(session), _unknown_request(name)))

    def _subscribe(self, namespace: Namespace, client: Client, body: Any) -> dict[str, Any]:
        pattern = namespace.subscribe(client, body)
        return {"pattern": pattern, "epoch": namespace.bus.epoch, "offset": namespace.place(client)}

    def _unsubscribe(self, namespace: Namespace, client: Client, body: Any) -> dict[str, Any]:
        return {"pattern": namespace.unsubscribe(client, body)}

    def _publish(self, namespace: Namespace, client: Client, body: Any) -> dict[str, Any]:
        unknown = set(body) - {"topic", "data", "id"}
        if unknown or "data" not in body:
            raise InvalidRequest("publish takes {topic, data, id?}")
        topic = check_topic(body.get("topic"))
        if not client.identity.may_publish(topic):
            raise Forbidden("publish to", topic)
        event_id = check_event_id(body["id"]) if body.get("id") is not None else None
        try:
            receipt = self.publisher.publish(topic, body["data"], id=event_id, namespace=namespace.name, by=client.identity.user)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(error.size, error.limit, "gateway") from error
        return {"id": receipt.id, "epoch": receipt.epoch, "offset": receipt.offset, "duplicate": receipt.duplicate}

    def _seen(self, namespace: Namespace, client: Client, body: Any) -> dict[str, Any]:
        ids = read_seen(body)
        if client.identity.user == ANONYMOUS:
            raise Forbidden("say what was seen by", ANONYMOUS)
        mark_seen(self._commands, namespace.name, client.identity.user, ids)
        return {"seen": len(ids)}

    def _leave(self, namespace: Namespace, session: str, reason: str) -> None:
        client = namespace.clients.get(session)
        if client is not None:
            connection: Any = client.connection
            connection.owners = tuple(owner for owner in connection.owners if owner is not client)
            self._admission.leave(client)
            self._expiry.forget(client)
            namespace.leave(session)
            if reason == CLIENT_DISCONNECT:
                # It is counted no more, so its connection may not stay for ever either.
                self._end_outsider_later(connection, f"no CONNECT within {self.settings.handshake_deadline_s:g} s")

    # -- identities that change or end ----------------------------------------------------------------------------

    def _refresh(self, namespace: Namespace, client: Client, body: Any) -> dict[str, Any]:
        """Put another token of the same user in force; what it no longer grants ends, with a notice ahead of the answer."""
        token = read_refresh(body)
        eio_sid = self._server.manager.eio_sid_from_sid(client.session, f"/{namespace.name}")
        identity = self.identify(Handshake(namespace.name, {"token": token}, self._server.environ.get(eio_sid, {})))
        if namespace.clients.get(client.session) is not client:
            raise Unauthorized("left", "this session has left")
        if identity.user != client.identity.user:
            raise Unauthorized("another_user", "the token is another user's")
        self._admission.renew(client, identity)
        self._expiry.set(client, identity.expires_at)
        ended = namespace.end_subscriptions(client, lambda pattern: not identity.may_subscribe(pattern))
        if ended:
            notice = [{"pattern": pattern, "error": Forbidden("subscribe to", pattern).to_wire()} for pattern in ended]
            client.connection.offer_control(message_frame(notice_packet(namespace.name, STATUS, {"ended": notice})))
        left_s = None if identity.expires_at is None else max(0, int(identity.expires_at - time()))
        return {"user": identity.user, "expires_in_s": left_s}

    def _expired(self, clients: Iterable[Client]) -> None:
        self._put_out(clients, refusal("expired"))

    def _revoked(self, members: list[str]) -> None:
        hit: list[Client] = []
        for member in members:
            kind, name = kind_of(member) or (TOKEN, "")
            hit += self._admission.of_token(name) if kind == TOKEN else self._admission.of_user(name)
        self._put_out(hit, revoked())

    def _put_out(self, clients: Iterable[Client], why: Unauthorized) -> None:
        """Tell clients that they are no longer authorized, and disconnect them from their namespace. Lets the loop run."""
        for count, client in enumerate(clients, 1):
            if self.namespaces[client.namespace].clients.get(client.session) is client:
                PUT_OUT.labels(client.namespace, why.reason).inc()
                connection: Any = client.connection
                notice = notice_packet(client.namespace, STATUS, {"unauthorized": why.to_wire()})
                connection.offer_control(message_frame(notice))
                self._server.disconnect(client.session, f"/{client.namespace}")
                self._end_outsider_later(connection, f"{why.code}: {why.reason}")
            if not count % _PUT_OUT_STRIDE:
                sleep()

    def _end_outsider_later(self, connection: Any, told: str) -> None:
        """Let a connection out of every namespace stay for as long as before its first CONNECT, to come back."""
        if not connection.closed and not connection.owners:
            environ = self._server.environ.get(connection.sid, {})
            self._outsiders.put_out(connection.sid, address_of(environ, self.settings.proxies))
        self._server.eio.deadlines.after(self.settings.handshake_deadline_s, _end_outsider, connection, told)

    def identify(self, handshake: Handshake) -> Identity:
        """Return who a handshake is from; neither nobody nor someone revoked or expired, nor someone for another namespace.

        Raises:
            Unauthorized: with the reason.
            UnknownNamespace: this gateway does not serve it.
            LoginsThrottled: too many from this address have failed; the authenticator is not asked.
        """
        address = address_of(handshake.environ, self.settings.proxies)
        try:
            self._failed_logins.check(address, monotonic())
        except LoginsThrottled:
            LOGINS_THROTTLED.inc()
            raise
        try:
            return self._identified(handshake)
        except HeadgateError as error:
            # A fault of ours, and a refusal that only takes a while, are no failed logins.
            if not error.retry:
                reason = str(error.parts.get("reason", error.code))
                if reason not in _OUR_FAULT:
                    self._failed_logins.failed(address, monotonic())
                audit.login_refused(
                    address=address, namespace=handshake.namespace, code=error.code, reason=handshake.redacted(reason)
                )
            raise

    def _identified(self, handshake: Handshake) -> Identity:
        try:
            with self._reading_tokens:
                identity = self.authenticator(handshake)
        except HeadgateError:
            raise
        except Exception as error:
            # No traceback: the texts of exceptions, and of their causes, may hold the token.
            log.error("authenticator failed", namespace=handshake.namespace, **_described(error, handshake))
            raise Unauthorized("authenticator_failed", "the authenticator failed") from error
        if identity is None:
            raise Unauthorized("not_accepted", "the token was missing or not accepted")
        first = self.settings.served(None)
        if not identity.may_enter(self.settings.served(handshake.namespace), first):
            raise Unauthorized("wrong_namespace", "this identity is not for this namespace")
        self._revocation_watch.check(identity)
        if identity.expires_at is not None and identity.expires_at <= time():
            raise refusal("expired")
        return identity.with_own_topics()


def _described(error: Exception, handshake: Handshake) -> dict[str, str]:
    """Return what a log may be told of an exception that an authenticator raised: its text without the token, and where."""
    frames = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in extract_tb(error.__traceback__)[-_LOGGED_FRAMES:]]
    text = "".join(format_exception_only(error)).strip()
    return {"error": handshake.redacted(text), "where": ", ".join(frames)}


def warn_of_open_redis(url: str) -> None:
    """Log it if Redis is on another machine and has no password."""
    if is_open(url):
        log.warning("Redis without a password", at=place(url), effect="whoever reaches it publishes, reads and revokes")


def _end_outsider(connection: Any, told: str) -> None:
    """End a connection whose clients have left, or were put out, and that has joined no namespace since. Runs in the hub."""
    if not connection.closed and not connection.owners:
        connection.end("outside every namespace", code=POLICY, told=told)


def _transport_limits(settings: Settings) -> TransportLimits:
    return TransportLimits(
        queue_frames=settings.queue_frames,
        queue_bytes=settings.queue_bytes,
        send_buffer_bytes=settings.send_buffer_bytes,
        write_deadline_s=settings.write_deadline_s,
        ping_interval_s=settings.ping_interval_s,
        ping_timeout_s=settings.ping_timeout_s,
        handshake_deadline_s=settings.handshake_deadline_s,
        max_message_bytes=2 * settings.max_payload_bytes + ENVELOPE_BYTES,
        inbound_per_s=settings.inbound_per_s,
        inbound_burst=settings.inbound_burst,
    )


def _unknown_request(name: str) -> InvalidRequest:
    known = (SUBSCRIBE, UNSUBSCRIBE, REPLAY, PUBLISH, REFRESH, SEEN)
    return InvalidRequest(f"unknown request {name[:40]!r}; known: {', '.join(known)}")
