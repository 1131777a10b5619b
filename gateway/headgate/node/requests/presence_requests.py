"""Requests about presence: `enter`, `watch`, `page` and `leave` of a topic.

In: requests of clients (handlers.py). Out: calls on the presence of their namespace. A topic needs the same grant as a
subscription to it. While the namespace is paused, entries are refused and members stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.auth.identity import Identity
from headgate.delivery.client import Client
from headgate.errors import Forbidden, LimitReached, Paused, Unauthorized, UnauthorizedReason
from headgate.events.wire.packets import PRESENCE
from headgate.events.wire.requests import PresenceAct, read_presence
from headgate.node.cluster.pauses import Pauses
from headgate.node.connection import connection_of
from headgate.node.namespace import Namespace
from headgate.node.presence.rooms import read_meta


def answer_presence(pauses: Pauses, namespace: Namespace, client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a client's request. Waits for Redis at the first request for a topic in this process.

    Raises:
        InvalidRequest, InvalidTopic, Forbidden, LimitReached, PayloadTooLarge, Paused, BusUnavailable: nothing has changed.
        Unauthorized: the client left during the call.
    """
    wanted = read_presence(body)
    presence, topic, session = namespace.presence, wanted.topic, client.session
    if not presence.limits.max_topics:
        raise LimitReached("presence_topics", 0)
    if wanted.act is PresenceAct.LEAVE:
        presence.rooms.leave(session, topic)
        return {"topic": topic}
    _check(namespace, client, topic)
    if wanted.act is PresenceAct.PAGE:
        return presence.rooms.page(session, topic, wanted.after)
    meta = None
    if wanted.act is PresenceAct.ENTER:
        pauses.check_enter(namespace.name)
        meta = read_meta(wanted.meta, client.identity.user, presence.limits.max_meta_bytes)
    _prepare(namespace, client, topic)
    if wanted.act is PresenceAct.WATCH:
        return presence.rooms.watch(session, topic, connection_of(client))
    try:
        pauses.check_enter(namespace.name)  # again, as Redis or the application may have taken seconds
    except Paused:
        presence.rooms.leave_unless_in(session, topic)
        raise
    return presence.enter(session, topic, connection_of(client), client.identity.user, meta)


def _prepare(namespace: Namespace, client: Client, topic: str) -> None:
    """Prepare a topic for a client that may have it. Its grants may change while Redis or the application is asked."""
    presence, session = namespace.presence, client.session
    checked: Identity | None = None  # the identity at the last check of the topic, if the client had it by then
    while client.identity is not checked or topic not in presence.topics_of(session):
        presence.prepare(session, topic)
        if namespace.is_in(client):
            checked = client.identity
            try:
                _check(namespace, client, topic)
            except Forbidden:
                presence.rooms.leave(session, topic)
                raise
        if not namespace.is_in(client):
            presence.gone(session, in_order=True)
            raise Unauthorized(UnauthorizedReason.LEFT)


def _check(namespace: Namespace, client: Client, topic: str) -> None:
    """Refuse a topic that a client may not have. May wait for the application. Raises Forbidden."""
    if not client.identity.may_subscribe(topic):
        raise Forbidden("see who is in", topic)
    namespace.authorizing.check(client, topic, PRESENCE)
