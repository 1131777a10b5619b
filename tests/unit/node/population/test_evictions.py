"""Evictions: when an identity ends, its client is notified, then disconnected; its connection may come back for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from headgate.errors import LimitReached
from headgate.node.population.evictions import Evictions
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import SocketIOFace
from tests.unit.node.connections import RecordedNamespace, RecordedSockets, joined

SETTINGS = Settings(handshake_deadline_s=7)


class Sockets(RecordedSockets):
    """A face that notes disconnects."""

    def __init__(self, namespace: RecordedNamespace, done: list[tuple[Any, ...]]) -> None:
        super().__init__()
        self._namespace, self._done = namespace, done

    def disconnect(self, namespace: str, session: str) -> None:
        client = self._namespace.clients.pop(session)
        connection: Any = client.connection
        connection.owners = ()
        self._done.append(("disconnect", session, namespace))


class House:
    """Evictions among real counters and recorded clients."""

    def __init__(self, per_address: int = 1) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.namespace = RecordedNamespace()
        self.server = Sockets(self.namespace, self.done)
        self.evictions = Evictions(
            cast(SocketIOFace, self.server),
            {"notifications": self.namespace.real()},
            replace(SETTINGS, max_clients_per_address=per_address),
        )

    def join(self, session: str, user: str = "ana") -> Any:
        client = joined(self.namespace, session, self.done, user)
        self.server.environ[session] = {"REMOTE_ADDR": "192.0.2.9"}
        return client


def test_a_client_is_told_before_it_is_disconnected() -> None:
    """It knows why, and asks for another token instead of coming back with the same."""
    house = House()
    client = house.join("s")
    house.evictions.expired([client.real()])
    assert house.done == [("notice", "s"), ("disconnect", "s", "notifications")]


def test_a_client_that_has_left_meanwhile_is_passed_over() -> None:
    """Another one may have its session by then."""
    house = House()
    client = house.join("s")
    del house.namespace.clients["s"]
    house.evictions.expired([client.real()])
    assert house.done == []


def test_a_connection_in_no_namespace_counts_as_pending_and_ends_at_the_deadline() -> None:
    """Being disconnected is no way around the limit of sessions that have not joined."""
    house = House(per_address=1)
    client = house.join("s")
    house.evictions.expired([client.real()])

    with pytest.raises(LimitReached):
        house.evictions.pending.open("another", "192.0.2.9")
    assert [delay_s for delay_s, *_ in house.server.later] == [7]
    house.server.pass_deadline()
    assert house.done[-1] == ("end", "s", "outside every namespace")
