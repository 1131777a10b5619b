"""People: the answers of this gateway process about its clients, and the wishes about them that it carries out.

In: questions that went to all processes (answers.py). Out: parts of answers; calls on the evictions and the regranting. Each
wish that changed something here is a line in this gateway's audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time

from headgate.auth.audit import audit
from headgate.clients import (
    CountAnswer,
    DisconnectQuestion,
    Kind,
    ListQuestion,
    OneQuestion,
    RegrantQuestion,
    SendAnswer,
    SendQuestion,
)
from headgate.event import Event
from headgate.node.access.access import Access
from headgate.node.cluster.answers import Answering
from headgate.protocol.frames import event_frame

from .client_list import ClientList
from .evictions import Evictions


class People:
    """See the module. `clients` are this process's."""

    def __init__(self, clients: ClientList, access: Access, evictions: Evictions, max_payload_bytes: int) -> None:
        self.clients, self._evictions, self._max_payload_bytes = clients, evictions, max_payload_bytes
        self._admission, self._regranting = access.admission, access.regranting

    def kinds(self) -> Mapping[str, Answering]:
        """Return what answers each kind of question."""
        return {
            Kind.LIST: Answering(ListQuestion, self.clients.page),
            Kind.ONE: Answering(OneQuestion, self.clients.one),
            Kind.DISCONNECT: Answering(DisconnectQuestion, self._disconnect),
            Kind.REGRANT: Answering(
                RegrantQuestion, self._regrant, self._note_regrant, asks_application=True, missed=self._regranting.read_all
            ),
            Kind.SEND: Answering(SendQuestion, self._send),
        }

    def _send(self, wish: SendQuestion) -> list[SendAnswer]:
        client = self.clients.find(wish.session, wish.within)
        if client is None:
            return [SendAnswer(None)]
        if len(wish.data) > self._max_payload_bytes:
            return [SendAnswer(False, self._max_payload_bytes)]
        event = Event(wish.topic, bytes(wish.data), wish.id, int(time() * 1000))
        return [SendAnswer(client.send(event_frame(client.namespace.encode(), event)))]

    def _note_regrant(self, wish: RegrantQuestion) -> None:
        self._regranting.note(wish.user, wish.explicit, wish.for_s)

    def _regrant(self, wish: RegrantQuestion) -> list[CountAnswer]:
        count = self._regranting.regrant(wish.user)
        if count:
            audit.regranted(user=wish.user, count=count, explicit=wish.explicit is not None, by=wish.by)
        return [CountAnswer(count)]

    def _disconnect(self, wish: DisconnectQuestion) -> list[CountAnswer]:
        found = None if wish.session is None else self.clients.find(wish.session, wish.within)
        clients = [found] if found is not None else []
        if wish.user is not None:
            clients = [
                each for each in self._admission.of_user(wish.user) if wish.within is None or each.namespace in wish.within
            ]
        count = self._evictions.disconnected(clients, wish.reason)
        if count:
            audit.disconnected(session=wish.session, user=wish.user, count=count, reason=wish.reason, by=wish.by)
        return [CountAnswer(count)]
