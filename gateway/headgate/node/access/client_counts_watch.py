"""Publishes how many clients each user and each address has here, and reads the counts of the other processes.

In: the next exchange of `ClientCounts` (auth/client_counts.py). Out: the exchange, soon after a join, through the shared table
(redis/shared_table.py, which has the rules).

In Redis, an address is a user name that begins with ADDRESS. A user name that begins like that gets another one in front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headgate.auth.admission import Admission
from headgate.auth.client_counts import ClientCounts, Question
from headgate.delivery.client import Client
from headgate.redis.shared_table import Fields, SharedTable
from headgate.runtime.loop import Signal

# A client waits this long for a turn of the shared table if it is unknown whether there is room for it.
TURN_WAIT_S = 1.0
ADDRESS = "\0@"


class _Kind(NamedTuple):
    """The owners of counted clients, which are users or addresses."""

    places: ClientCounts
    counts: Callable[[], Mapping[str, int]]
    is_address: bool

    def field(self, name: str) -> str:
        """Return the field of a name in Redis."""
        return f"{ADDRESS}{name}" if self.is_address or name.startswith(ADDRESS[0]) else name


class ClientCountsWatch:
    """See the module."""

    kind = "clients"

    def __init__(self, table: SharedTable, admission: Admission[Client]) -> None:
        users = _Kind(admission.places, admission.counts, is_address=False)
        self._kinds = [users, _Kind(admission.addresses, admission.counts_at, is_address=True)]
        self._questions: list[Question] = []
        self._table = table
        self._turned = Signal()
        hurry = table.add(self)
        for kind in self._kinds:
            kind.places.wanted = hurry

    def next_turn(self) -> bool:
        """Wait at most TURN_WAIT_S for the end of a turn; return whether there was one."""
        return self._table.begun and self._turned.wait(TURN_WAIT_S)

    def fields(self, *, whole_row: bool) -> dict[str, int | None]:
        """Return the changed counts, or all, and store the question for `wanted_fields`."""
        self._questions = [kind.places.next_question() for kind in self._kinds]
        fields: dict[str, int] = {}
        for kind, (sent, _) in zip(self._kinds, self._questions, strict=True):
            counts = kind.places.all_sent(kind.counts()) if whole_row else sent
            fields |= {kind.field(name): count for name, count in counts.items()}
        return {field: count or None for field, count in fields.items()}

    def wanted_fields(self) -> list[str]:
        """Return the fields of the users and addresses in question."""
        return [kind.field(name) for kind, (_, asked) in self._pairs() for name in asked]

    def receive(self, others: Mapping[str, Fields], *, lost: bool) -> None:
        """Take the counts of the others."""
        for kind, question in self._pairs():
            counts = {name: sum(_count(fields.get(kind.field(name))) for fields in others.values()) for name in question[1]}
            kind.places.received(question, len(others) + 1, counts, lost=lost)
        self._questions = []
        turned, self._turned = self._turned, Signal()
        turned.set()

    def _pairs(self) -> list[tuple[_Kind, Question]]:
        return list(zip(self._kinds, self._questions or [({}, [])] * len(self._kinds), strict=True))


def _count(value: bytes | None) -> int:
    """Return a count of another process, or 0 for an invalid one."""
    return int(value) if value is not None and len(value) <= 9 and value.isdigit() else 0
