"""The watch on places: it tells the other processes how many clients each user and each address has here, and asks for theirs.

In: `ClientCounts` (auth/client_counts.py), which say what to tell and to ask. Out: what is told and asked
(redis/client_counts.py) soon after a join, as a part of the telling (node/cluster/telling.py, which has the rules).

In Redis, an address is a user whose name begins with ADDRESS; a user whose name begins like that is told with another one in
front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headgate.auth.admission import Admission
from headgate.auth.client_counts import ClientCounts, Question
from headgate.delivery.client import Client
from headgate.node.cluster.telling import Telling
from headgate.redis.client import Client as Redis
from headgate.redis.client_counts import read_others
from headgate.redis.keys import client_counts_key
from headgate.runtime.loop import Signal

# A client about whom it is not known whether there is room waits for a look, for so long.
LOOK_WAIT_S = 1.0
ADDRESS = "\0@"


class _Kind(NamedTuple):
    """Whose clients are counted: users, or addresses."""

    places: ClientCounts
    counts: Callable[[], Mapping[str, int]]
    is_address: bool

    def field(self, name: str) -> str:
        """Return what a name is in Redis."""
        return f"{ADDRESS}{name}" if self.is_address or name.startswith(ADDRESS[0]) else name

    def fields(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return counts as they are in Redis."""
        return {self.field(name): count for name, count in counts.items()}


class ClientCountsWatch:
    """See the module."""

    def __init__(self, telling: Telling, admission: Admission[Client]) -> None:
        users = _Kind(admission.places, admission.counts, is_address=False)
        self._kinds = [users, _Kind(admission.addresses, admission.counts_at, is_address=True)]
        self._questions: list[Question] = []
        self._telling = telling
        self._looked = Signal()
        hurry = telling.add(self)
        for kind in self._kinds:
            kind.places.wanted = hurry

    def next_look(self) -> bool:
        """Wait for the end of a look, for LOOK_WAIT_S at most; return whether there was one."""
        return self._telling.begun and self._looked.wait(LOOK_WAIT_S)

    def key(self, process_id: str) -> str:
        """Return the key of a process's hash."""
        return client_counts_key(process_id)

    def tell(self, *, anew: bool) -> dict[str, int | None]:
        """Return the counts that have changed, or all, and keep what `hear` is to ask."""
        self._questions = [kind.places.next_question() for kind in self._kinds]
        told: dict[str, int] = {}
        for kind, question in zip(self._kinds, self._questions, strict=True):
            told |= kind.fields(kind.places.all_told(kind.counts()) if anew else question.told)
        return {field: count or None for field, count in told.items()}

    def hear(self, client: Redis, others: Sequence[str], *, lost: bool) -> None:
        """Ask the others for their counts. Waits for Redis."""
        questions, self._questions = self._questions or [Question({}, [])] * len(self._kinds), []
        asked = [kind.field(name) for kind, question in zip(self._kinds, questions, strict=True) for name in question.asked]
        found = read_others(client, others, asked)
        for kind, question in zip(self._kinds, questions, strict=True):
            counts = {name: found[kind.field(name)] for name in question.asked}
            kind.places.heard(question, len(others) + 1, counts, lost=lost)
        looked, self._looked = self._looked, Signal()
        looked.set()
