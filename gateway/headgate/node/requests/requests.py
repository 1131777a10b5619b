"""Answers requests of clients, each with an acknowledgement `{ok: true, …}` or `{ok: false, error}`.

In: Socket.IO events and HTTP requests of joined clients, from the population. Out: calls on their namespace, the publisher and
Redis; the acknowledgement. Invalid and forbidden requests, and those over a limit, are refused with an error and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic, time
from typing import Any

from headgate.auth.identity import ANONYMOUS, Handshake, Identity, PageRequest
from headgate.delivery.client import Client
from headgate.errors import (
    AuthorizeFailed,
    Forbidden,
    HeadgateError,
    InvalidRequest,
    LimitReached,
    Paused,
    PayloadTooLarge,
    Unauthorized,
    UnauthorizedReason,
)
from headgate.events.event import check_event_id
from headgate.events.topic import check_topic
from headgate.events.wire import packets
from headgate.events.wire import requests as wire
from headgate.events.wire.packets import PRESENCE
from headgate.events.wire.requests import read_presence
from headgate.node.access.access import Access
from headgate.node.cluster.answers import QuestionKind
from headgate.node.cluster.cluster import Cluster
from headgate.node.cluster.pauses import ENTERS, Pauses
from headgate.node.connection import connection_of, environ_of
from headgate.node.namespace import Namespace
from headgate.node.population.joining import Joining
from headgate.node.presence.rooms import read_meta
from headgate.redis.inbox import inbox_reader, mark_seen
from headgate.redis.pauses import PUBLISHES
from headgate.redis.questions import HANDLED, HandledQuestion
from headgate.runtime.rates import Rates
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import Later, RequestHandler, ServedNamespace, SocketIOFace

from .handling import Handling
from .page_requests import PageRequests
from .publish_queue import PublishQueue
from .streams import Streams

# The requests for everyone; those of the console's pages and for traces are our own.
_KNOWN = (
    packets.SUBSCRIBE, packets.UNSUBSCRIBE, packets.REPLAY, packets.PUBLISH, packets.REFRESH, packets.SEEN, packets.INBOX,
    packets.HISTORY, packets.PRESENCE, packets.REQUEST, packets.CANCEL,
)  # fmt: skip
Body = Mapping[str, Any]
Request = Callable[[Namespace, Client, Body], dict[str, Any] | Later]


class Requests:
    """See the module. `publish_queues` has one queue per namespace. `page_requests` are for functions of the application."""

    def __init__(
        self,
        settings: Settings,
        sockets: SocketIOFace,
        namespaces: Mapping[str, Namespace],
        access: Access,
        joining: Joining,
        publisher: Publisher,
        cluster: Cluster,
    ) -> None:
        self._ephemeral_per_s = settings.ephemeral_per_s
        self._ephemeral = Rates(settings.ephemeral_per_s, math.ceil(2 * settings.ephemeral_per_s))
        self._sockets, self._publisher = sockets, publisher
        self._logins, self._refusals, self._regranting = access.logins, access.refusals, access.regranting
        self._redis, self._pauses, self._process_stats = cluster.redis, cluster.pauses, cluster.process_stats
        self.publish_queues = {name: PublishQueue(publisher, each.receipts.published) for name, each in namespaces.items()}
        self._handling = Handling(namespaces)
        cluster.answers.add({HANDLED: QuestionKind(HandledQuestion, self._handling.find)})
        self.page_requests = PageRequests(settings)
        handlers = {name: self.handlers(namespace) for name, namespace in namespaces.items()}
        self.streams = Streams(namespaces, settings, joining, handlers, sockets)
        for name, namespace in namespaces.items():
            served = ServedNamespace(
                f"/{name}".encode(),
                connect=partial(joining.connect, namespace),
                disconnect=partial(joining.leave, namespace),
                requests=handlers[name],
                unknown=partial(self.unknown, namespace),
            )
            sockets.serve(served)

    def close(self) -> None:
        """End every stream. Idempotent."""
        self.streams.close()

    def handlers(self, namespace: Namespace) -> dict[str, RequestHandler]:
        """Return the request handlers for the clients of a namespace, by request name."""
        requests: dict[str, Request] = {
            packets.SUBSCRIBE: _subscribe,
            packets.UNSUBSCRIBE: _unsubscribe,
            packets.REPLAY: lambda namespace, client, body: namespace.replay(client, body),
            packets.HISTORY: lambda namespace, client, body: namespace.history(client, body),
            packets.PUBLISH: self._publish,
            packets.REFRESH: self._refresh,
            packets.SEEN: self._seen,
            packets.INBOX: self._inbox,
            packets.REQUEST: self._request,
            packets.CANCEL: self._cancel,
            packets.PRESENCE: partial(answer_presence, self._pauses),
            packets.HANDLED: self._handling.take,
            packets.VITALS: lambda namespace, client, body: self._process_stats.answer(client.identity, body),
        }
        return {name: partial(self._answer, namespace, request) for name, request in requests.items()}

    def unknown(self, namespace: Namespace, name: str, session: str) -> dict[str, Any]:
        """Refuse a request with any other name."""
        error = InvalidRequest(f"unknown request {name[:40]!r}; known: {', '.join(_KNOWN)}")
        return packets.refused(self._refusals.refuse(namespace.name, namespace.clients.get(session), error))

    # -- requests -------------------------------------------------------------------------------------------------

    def _answer(self, namespace: Namespace, request: Request, session: str, *arguments: object) -> dict[str, Any] | Later:
        client = namespace.clients.get(session)
        try:
            if client is None:
                raise Unauthorized(UnauthorizedReason.LEFT)
            if len(arguments) != 1 or not isinstance(arguments[0], Mapping):
                raise InvalidRequest("expected one object as the argument")
            # `data` is checked when it is encoded, with a separate error.
            wire.check_text({name: value for name, value in arguments[0].items() if name != "data"})
            answer = request(namespace, client, arguments[0])
            return answer if callable(answer) else packets.ok(**answer)
        except HeadgateError as error:
            return packets.refused(self._refusals.refuse(namespace.name, client, error))

    def _publish(self, namespace: Namespace, client: Client, body: Body) -> dict[str, Any]:
        unknown, ephemeral = set(body) - {"topic", "data", "id", "ephemeral"}, body.get("ephemeral", False)
        if unknown or "data" not in body or not isinstance(ephemeral, bool):
            raise InvalidRequest("publish takes {topic, data, id?, ephemeral?: true or false}")
        topic = check_topic(body.get("topic"))
        if not client.identity.may_publish(topic):
            raise Forbidden("publish to", topic)
        self._pauses.check(PUBLISHES, namespace.name)
        event_id = check_event_id(body["id"]) if body.get("id") is not None else None
        try:
            if ephemeral:
                user = client.identity.user
                if wait_s := self._ephemeral.spend(client.session if user == ANONYMOUS else user, monotonic()):
                    raise LimitReached("ephemeral_per_s", self._ephemeral_per_s, wait_s)
                return {"id": self._publisher.publish_ephemeral(topic, body["data"], event_id, namespace.name, by=user)}
            prepared = self._publisher.prepare(topic, body["data"], event_id, namespace.name, by=client.identity.user)
            (receipt,) = self.publish_queues[namespace.name].publish([prepared])
            if isinstance(receipt, HeadgateError):
                raise receipt
        except PayloadTooLarge as error:
            raise PayloadTooLarge(error.size, error.limit, "gateway") from error
        return {"id": receipt.id, "epoch": receipt.epoch, "offset": receipt.offset, "duplicate": receipt.duplicate}

    def _request(self, namespace: Namespace, client: Client, body: Body) -> Later:
        """Begin a request for a function of the application. Its data is checked as published data is."""
        name, data, request_id, timeout_s = wire.read_asked(body)
        if not client.identity.may_publish(name):
            raise Forbidden("request", name)
        self._pauses.check(PUBLISHES, namespace.name)
        try:
            prepared = self._publisher.prepare(name, data, request_id, namespace.name, by=client.identity.user)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(error.size, error.limit, "gateway") from error
        request = PageRequest(name, data, client.identity, namespace.name, prepared.id)
        return self.page_requests.begin(client.account, request, timeout_s, client.connection)

    def _cancel(self, namespace: Namespace, client: Client, body: Body) -> dict[str, Any]:
        """Stop a request of the same user. An ended request is not a fault."""
        return {"cancelled": self.page_requests.cancel(client.account, wire.read_cancel(body))}

    def _seen(self, namespace: Namespace, client: Client, body: Body) -> dict[str, Any]:
        ids = wire.read_seen(body)
        if client.identity.user == ANONYMOUS:
            raise Forbidden("say what was seen by", ANONYMOUS)
        mark_seen(self._redis, namespace.name, client.identity.user, ids)
        return {"seen": len(ids)}

    def _inbox(self, namespace: Namespace, client: Client, body: Body) -> dict[str, Any]:
        """Return a part of the user's inbox, with every event that the client has had here, or claims to have had elsewhere."""
        before, limit, had = wire.read_inbox_part(body)
        identity = client.identity
        if identity.own_topics is None:
            raise Forbidden("read the inbox of", identity.user)
        read = inbox_reader(self._redis, namespace.name, identity.user, before, limit)
        page = namespace.current_inbox(read, had, client)
        return {name: getattr(page, name) for name in page.__struct_fields__}

    def _refresh(self, namespace: Namespace, client: Client, body: Body) -> dict[str, Any]:
        """Take another token of the same user. Subscriptions without its grant end, with a notice before the answer."""
        token = wire.read_refresh(body)
        environ = environ_of(client, self._sockets)
        identity = self._logins.identify(Handshake(namespace.name, {"token": token}, environ))
        if identity.user != client.identity.user:
            raise Unauthorized(UnauthorizedReason.ANOTHER_USER)
        if client.auth is not None:
            client.auth = {**client.auth, "token": token}
        self._regranting.take(client, identity)
        left_s = None if identity.expires_at is None else max(0, int(identity.expires_at - time()))
        return {"user": identity.user, "expires_in_s": left_s}


def _subscribe(namespace: Namespace, client: Client, body: Body) -> dict[str, Any]:
    subscription = namespace.subscribe(client, body)
    return {**subscription.answer, "epoch": namespace.bus.epoch, "offset": namespace.place(client)}


def _unsubscribe(namespace: Namespace, client: Client, body: Body) -> dict[str, Any]:
    """End a subscription. A missing one is not a fault."""
    pattern = wire.read_subscription(body).pattern
    namespace.subscriptions.end(pattern, client)
    return {"pattern": pattern}


# -- presence: a topic needs the same grant as a subscription to it -----------------------------------------------------


def answer_presence(pauses: Pauses, namespace: Namespace, client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `enter`, `watch`, `page` or `leave`. While the namespace is paused, entries are refused and members stay.

    Waits for Redis at the first request for a topic in this process.

    Raises:
        InvalidRequest, InvalidTopic, Forbidden, AuthorizeFailed, LimitReached, PayloadTooLarge, Paused, BusUnavailable: nothing
            has changed.
        Unauthorized: the client left during the call.
    """
    act, topic, meta, after = read_presence(body)
    presence, session = namespace.presence, client.session
    if not presence.settings.max_presence_topics:
        raise LimitReached("presence_topics", 0)
    if act == "leave":
        presence.rooms.leave(session, topic)
        return {"topic": topic}
    _check(namespace, client, topic)
    if act == "page":
        return presence.rooms.page(session, topic, after)
    if act == "enter":
        pauses.check(ENTERS, namespace.name)
        meta = read_meta(meta, client.identity.user, presence.settings.max_presence_meta_bytes)
    _prepare(namespace, client, topic)
    if act == "watch":
        return presence.rooms.watch(session, topic, connection_of(client))
    try:
        pauses.check(ENTERS, namespace.name)  # again, because Redis or the application may have taken seconds
    except Paused:
        presence.rooms.leave_unless_in(session, topic)
        raise
    return presence.rooms.enter(session, topic, connection_of(client), client.identity.user, meta)


def _prepare(namespace: Namespace, client: Client, topic: str) -> None:
    """Prepare a topic for a client that may have it. Its grants may change during the wait for Redis or the application."""
    presence, session = namespace.presence, client.session
    checked: Identity | None = None  # the identity at the last check of the topic, if the client had it by then
    while client.identity is not checked or topic not in presence.rooms.topics_of(session):
        presence.prepare(session, topic)
        if namespace.is_in(client):
            checked = client.identity
            try:
                _check(namespace, client, topic)
            except (Forbidden, AuthorizeFailed):
                presence.rooms.leave(session, topic)
                raise
        if not namespace.is_in(client):
            presence.rooms.gone(session, in_order=True)
            raise Unauthorized(UnauthorizedReason.LEFT)


def _check(namespace: Namespace, client: Client, topic: str) -> None:
    """Refuse a topic that a client may not have. May wait for the application. Raises Forbidden, AuthorizeFailed."""
    if not client.identity.may_subscribe(topic):
        raise Forbidden("see who is in", topic)
    namespace.authorizing.check(client, topic, PRESENCE)
