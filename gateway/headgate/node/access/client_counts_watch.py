"""Publishes how many clients each user and each address has here, and reads the counts of the other processes.

In: the next exchange of `ClientCounts` (auth/client_counts.py). Out: the exchange, soon after a join, through the shared table
(redis/shared_table.py, which has the rules).

In Redis, an address is a user name that begins with ADDRESS. A user name that begins like that gets another one in front.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.auth.admission import Admission
from headgate.auth.client_counts import Question
from headgate.delivery.client import Client
from headgate.redis.shared_table import Fields, SharedTable
from headgate.runtime.loop import Signal

# A client waits this long for a turn of the shared table if it is unknown whether there is room for it.
TURN_WAIT_S = 1.0
ADDRESS = "\0@"
_NO_QUESTION: Question = ({}, [])


class ClientCountsWatch:
    """See the module."""

    kind = "clients"

    def __init__(self, table: SharedTable, admission: Admission[Client]) -> None:
        self._counts = ((admission.users, _field_of_user), (admission.addresses, _field_of_address))
        self._questions = [_NO_QUESTION, _NO_QUESTION]
        self._table = table
        self._turned = Signal()
        admission.users.wanted = admission.addresses.wanted = table.add(self)

    def next_turn(self) -> bool:
        """Wait at most TURN_WAIT_S for the end of a turn; return whether there was one."""
        return self._table.begun and self._turned.wait(TURN_WAIT_S)

    def fields(self, *, whole_row: bool) -> dict[str, int | None]:
        """Return the changed counts, or all, and store the question for `wanted_fields`."""
        self._questions = [counts.next_question() for counts, _ in self._counts]
        fields: dict[str, int | None] = {}
        for (counts, field), (sent, _) in zip(self._counts, self._questions, strict=True):
            shown = counts.all_sent() if whole_row else sent
            fields |= {field(name): count or None for name, count in shown.items()}
        return fields

    def wanted_fields(self) -> list[str]:
        """Return the fields of the users and addresses in question."""
        pairs = zip(self._counts, self._questions, strict=True)
        return [field(name) for (_, field), (_, asked) in pairs for name in asked]

    def receive(self, others: Mapping[str, Fields], *, lost: bool) -> None:
        """Take the counts of the others."""
        for (counts, field), question in zip(self._counts, self._questions, strict=True):
            theirs = {name: sum(_count(fields.get(field(name))) for fields in others.values()) for name in question[1]}
            counts.received(question, len(others) + 1, theirs, lost=lost)
        self._questions = [_NO_QUESTION, _NO_QUESTION]
        turned, self._turned = self._turned, Signal()
        turned.set()


def _field_of_user(name: str) -> str:
    return f"{ADDRESS}{name}" if name.startswith(ADDRESS[0]) else name


def _field_of_address(address: str) -> str:
    return f"{ADDRESS}{address}"


def _count(value: bytes | None) -> int:
    """Return a count of another process, or 0 for an invalid one."""
    return int(value) if value is not None and len(value) <= 9 and value.isdigit() else 0
