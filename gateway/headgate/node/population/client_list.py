"""Lists this process's clients for the list of all gateways, with the state of each, those with trouble first.

In: questions and requests to all processes (services/clients.py). Out: rows in the requested order, in parts of PART_ROWS; calls
on the evictions and the regranting, with an audit log line for each that changed something here. The work takes a share of the
loop, a slice at a time, so listing 10,000 clients delays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from ipaddress import ip_address, ip_network
from time import time
from typing import Any

from headgate.auth.audit import audit
from headgate.delivery.client import Client
from headgate.delivery.state import Phase, Pressure
from headgate.events.event import Event
from headgate.events.wire.frames import event_frame
from headgate.node.access.access import Access
from headgate.node.cluster.answers import QuestionKind
from headgate.node.connection import connection_of, environ_of
from headgate.node.namespace import Namespace
from headgate.redis.registry import name_of
from headgate.redis.shared_table import SharedTable
from headgate.runtime.loop import Share
from headgate.services import clients as wire
from headgate.settings.settings import Settings
from headgate.transport.peer_address import address_of
from headgate.transport.socketio_face import SocketIOFace

from .evictions import Evictions

SHARE_S = 0.0005  # time slice for reading clients
# Rows in one write to Redis. No write may hold up the loop for longer than a slice.
PART_ROWS = 100
SHOWN_PATTERNS = 20  # of a client in a page; `client` shows all
_CATCHING_UP = (Phase.ARRIVING_BEHIND, Phase.COLLECTING, Phase.READING, Phase.HANDOVER)
_URGENCY = {Pressure.FULL: 3, Pressure.WARNED: 2, Pressure.EASED: 1, Pressure.OK: 0}
# The author of a request without a name, in the audit log.
_APPLICATION = "an application"
# Prefix lengths of the networks of addresses.
_IPV4_BITS, _IPV6_BITS = 24, 48


class ClientList:
    """See the module. `process` is the public name of this process."""

    def __init__(
        self,
        settings: Settings,
        namespaces: Mapping[str, Namespace],
        sockets: SocketIOFace,
        access: Access,
        evictions: Evictions,
        process: SharedTable,
    ) -> None:
        self._settings, self._namespaces, self._sockets = settings, namespaces, sockets
        self._admission, self._regranting, self._evictions = access.admission, access.regranting, evictions
        self._process = process
        self._share = Share(SHARE_S)

    def kinds(self) -> Mapping[str, QuestionKind]:
        """Return the handlers of the kinds of questions."""
        body, missed = wire.ClientQuestion, self._regranting.read_all
        return {
            wire.PAGE: QuestionKind(body, self._page),
            wire.CLIENT: QuestionKind(body, self._one),
            wire.DISCONNECT: QuestionKind(body, self._disconnect),
            wire.REGRANT: QuestionKind(body, self._regrant, self._note, asks_application=True, missed=missed),
            wire.SEND: QuestionKind(body, self._send),
        }

    def _page(self, question: wire.ClientQuestion) -> list[wire.ClientAnswer]:
        """Return the first rows after a place in the order, in parts. Lets the loop run."""
        rows = []
        with self._share as share:
            total, first = self._first(question)
            for place, client in first[: question.limit]:
                share.pause()
                if client.state.phase is not Phase.LEFT:
                    rows.append(wire.Row(place, self._row(client, SHOWN_PATTERNS)))
        parts = [wire.ClientAnswer(rows[at : at + PART_ROWS]) for at in range(PART_ROWS, len(rows), PART_ROWS)]
        return [wire.ClientAnswer(rows[:PART_ROWS], total, len(first) > question.limit), *parts]

    def _first(self, question: wire.ClientQuestion) -> tuple[int, list[tuple[list[Any], Client]]]:
        """Return how many clients match, and the first after the place, in order, with one more than requested if possible."""
        total, after = 0, question.after

        def places() -> Iterator[tuple[list[Any], Client]]:
            nonlocal total
            for client in self._selected(question):
                self._share.pause()
                total += 1
                place = self._place(client, question.sort)
                if after is None or place > after:
                    yield place, client

        # Sorting all at once takes milliseconds. The session at the end makes each place unique.
        first = nsmallest(question.limit + 1, places())
        return total, first

    def _one(self, question: wire.ClientQuestion) -> list[wire.ClientAnswer]:
        client = next(self._named(question), None)
        return [wire.ClientAnswer(client=None if client is None else self._row(client, None))]

    def _selected(self, question: wire.ClientQuestion) -> Iterator[Client]:
        """Yield the clients that a question is about."""
        within = self._namespaces.keys() if question.within is None else question.within
        names = [name for name in self._namespaces if name in within and question.namespace in (None, name)]
        if question.user is not None:
            yield from (client for client in self._admission.of_user(question.user) if client.namespace in names)
            return
        for namespace in map(self._namespaces.__getitem__, names):
            if question.session is None:
                yield from list(namespace.clients.values())
            elif question.session in namespace.clients:
                yield namespace.clients[question.session]

    def _named(self, question: wire.ClientQuestion) -> Iterator[Client]:
        """Yield the clients of the session or the user in a question; none without either."""
        return self._selected(question) if question.session is not None or question.user is not None else iter(())

    def _place(self, client: Client, sort: wire.Sort) -> list[Any]:
        queue, session = client.connection.queue, client.session
        if sort == "user":
            return [client.identity.user, session]
        if sort == "newest":
            return [-client.since_ms, session]
        if sort == "queue":
            return [-queue.bytes, session]
        state = client.state
        catching_up = state.phase in _CATCHING_UP
        return [-_URGENCY[state.pressure], -int(catching_up), -client.gaps, -queue.bytes, -self._behind(client), session]

    def _behind(self, client: Client) -> int:
        reached = self._namespaces[client.namespace].bus.reached
        return max(0, reached - client.had(reached)) if client.state.phase in _CATCHING_UP else 0

    def _row(self, client: Client, shown: int | None) -> wire.ConnectedClient:
        connection, state = connection_of(client), client.state
        queue, behind = connection.queue, self._behind(client)
        catching_up, lagging = state.phase in _CATCHING_UP, state.pressure in (Pressure.WARNED, Pressure.FULL)
        trouble = []
        if lagging:
            trouble.append(f"queue {'full' if state.full else 'over high water'}: {queue.frames} frames, {queue.bytes} bytes")
        if catching_up:
            trouble.append(f"catching up, {behind} events of the log behind")
        if client.gaps:
            trouble.append(f"notified of {client.gaps} gap{'' if client.gaps == 1 else 's'}")
        environ = environ_of(client, self._sockets)
        return wire.ConnectedClient(
            session=client.session,
            user=client.identity.user,
            namespace=client.namespace,
            gateway=name_of(self._process.id),
            address=shown_network(address_of(environ, self._settings.proxies)),
            transport=connection.transport,
            since_ms=client.since_ms,
            patterns=tuple(client.subscriptions)[:shown],
            subscriptions=len(client.subscriptions),
            state=state.phase.value,
            catching_up=catching_up,
            lagging=lagging,
            queued=queue.frames,
            queued_bytes=queue.bytes,
            discarded=client.discarded,
            gaps=client.gaps,
            position=client.had(self._namespaces[client.namespace].bus.reached),
            behind=behind,
            trouble=tuple(trouble),
        )

    def _send(self, question: wire.ClientQuestion) -> list[wire.ClientAnswer]:
        client = next(self._named(question), None)
        if client is None:
            return [wire.ClientAnswer()]
        if len(question.data) > self._settings.max_payload_bytes:
            return [wire.ClientAnswer(taken=False, limit_bytes=self._settings.max_payload_bytes)]
        event = Event(question.topic, bytes(question.data), question.id, int(time() * 1000))
        return [wire.ClientAnswer(taken=client.send(event_frame(client.namespace.encode(), event)))]

    def _note(self, question: wire.ClientQuestion) -> None:
        self._regranting.note(question.user or "", question.explicit, question.for_s)

    def _regrant(self, question: wire.ClientQuestion) -> list[wire.ClientAnswer]:
        count = self._regranting.regrant(question.user or "")
        if count:
            is_explicit = question.explicit is not None
            audit.acted("regranted", by=question.by or _APPLICATION, user=question.user, count=count, explicit=is_explicit)
        return [wire.ClientAnswer(count=count)]

    def _disconnect(self, question: wire.ClientQuestion) -> list[wire.ClientAnswer]:
        count = self._evictions.disconnected(list(self._named(question)), question.reason)
        if count:
            session = question.session if question.user is None else None
            by, reason = question.by or _APPLICATION, question.reason
            audit.acted("disconnected", by=by, session=session, user=question.user, count=count, reason=reason)
        return [wire.ClientAnswer(count=count)]


def shown_network(address: str | None) -> str | None:
    """Return the part of a client's address that operators may see: the /24 network for IPv4, the /48 for IPv6."""
    try:
        parsed = ip_address((address or "").partition("/")[0])
    except ValueError:
        return None
    return str(ip_network((parsed, _IPV4_BITS if parsed.version == 4 else _IPV6_BITS), strict=False))
