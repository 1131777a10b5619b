"""Requests about presence: `enter`, `watch`, `page` and `leave` of a topic, and what ends a client's part in it.

In: requests and ends of clients (handlers.py, joining.py). Out: calls on the presence of their namespace. A topic is granted as a
subscription to it is. An entry is refused while the namespace is paused; those who are members stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headgate.auth.identity import Identity
from headgate.delivery.client import Client
from headgate.errors import Forbidden, LimitReached, Unauthorized, UnauthorizedReason
from headgate.node.access.authorizing import PRESENCE as PRESENCE_ACTION
from headgate.node.access.authorizing import Authorizing
from headgate.node.cluster.pauses import Pauses
from headgate.node.connection import connection_of
from headgate.node.namespace import Namespace
from headgate.presence.presence import Presence
from headgate.presence.rooms import read_meta
from headgate.protocol.frames import message_frame
from headgate.protocol.packets import PRESENCE, notice_packet
from headgate.protocol.requests import PresenceAct, read_presence


class PresenceRequests:
    """See the module."""

    def __init__(self, presences: Mapping[str, Presence], pauses: Pauses, authorizing: Authorizing | None = None) -> None:
        self._presences, self._pauses = presences, pauses
        self._authorizing = authorizing or Authorizing()

    def answer(self, namespace: Namespace, client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a client asks for. Waits for Redis the first time that a topic is asked for in this process.

        Raises:
            InvalidRequest, InvalidTopic, Forbidden, LimitReached, PayloadTooLarge, Paused, BusUnavailable: nothing has changed.
            Unauthorized: the client has left meanwhile.
        """
        wanted = read_presence(body)
        presence, topic, session = self._presences[namespace.name], wanted.topic, client.session
        if not presence.limits.max_topics:
            raise LimitReached("presence_topics", 0)
        if wanted.act is PresenceAct.LEAVE:
            presence.rooms.leave(session, topic)
            return {"topic": topic}
        self._check(client, topic)
        if wanted.act is PresenceAct.PAGE:
            return presence.rooms.page(session, topic, wanted.after)
        meta = None
        if wanted.act is PresenceAct.ENTER:
            self._pauses.check_enter(namespace.name)
            meta = read_meta(wanted.meta, client.identity.user, presence.limits.max_meta_bytes)
        self._prepare(namespace, client, topic)
        if wanted.act is PresenceAct.WATCH:
            return presence.rooms.watch(session, topic, connection_of(client))
        return presence.enter(session, topic, connection_of(client), client.identity.user, meta)

    def _prepare(self, namespace: Namespace, client: Client, topic: str) -> None:
        """Let a client have a topic that it may have, also if its grants change while Redis or the application is asked."""
        presence, session = self._presences[namespace.name], client.session
        checked: Identity | None = None  # as it was when the topic was checked last, for a client that had it by then
        while client.identity is not checked or topic not in presence.topics_of(session):
            presence.prepare(session, topic)
            if namespace.clients.get(session) is client:
                checked = client.identity
                try:
                    self._check(client, topic)
                except Forbidden:
                    presence.rooms.leave(session, topic)
                    raise
            if namespace.clients.get(session) is not client:
                presence.gone(session, in_order=True)
                raise Unauthorized(UnauthorizedReason.LEFT)

    def _check(self, client: Client, topic: str) -> None:
        """Refuse a topic that a client may not have. May wait for the application.

        Raises:
            Forbidden.
        """
        if not client.identity.may_subscribe(topic):
            raise Forbidden("see who is in", topic)
        self._authorizing.check(client, topic, PRESENCE_ACTION)

    def regranted(self, client: Client) -> None:
        """A client has another identity: end its part in topics that this one does not grant, and tell it so."""
        topics = self._presences[client.namespace].topics_of(client.session)
        self._end(client, [topic for topic in topics if not client.identity.may_subscribe(topic)])

    def reauthorize(self, client: Client) -> None:
        """Ask the application anew about the topics that a client is in, and end its part where that refuses. May wait."""
        topics = self._presences[client.namespace].topics_of(client.session)
        if topics:
            self._end(client, self._authorizing.refused(client, topics, PRESENCE_ACTION))

    def _end(self, client: Client, topics: Iterable[str]) -> None:
        for topic in topics:
            self._presences[client.namespace].rooms.leave(client.session, topic)
            notice = {"topic": topic, "ended": Forbidden("see who is in", topic).to_wire()}
            client.connection.offer_control(message_frame(notice_packet(client.namespace, PRESENCE, notice)))

    def gone(self, client: Client, *, in_order: bool) -> None:
        """A client has left: in good order, or its connection broke."""
        self._presences[client.namespace].gone(client.session, in_order=in_order)
