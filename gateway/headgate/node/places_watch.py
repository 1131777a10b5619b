"""The watch on places: it tells the other processes how many clients each user and each address has here, and asks for theirs.

In: `Places` (auth/places.py), which say what to tell and to ask. Out: a look at Redis (redis/places.py) soon after a
join, in the rounds of a telling (node/telling.py, which has the rules).

In Redis, an address is a user whose name begins with ADDRESS; a user whose name begins like that is told with another one in
front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headgate.auth.places import Places
from headgate.redis.client import Client
from headgate.redis.places import leave, look
from headgate.runtime.loop import Signal

from .telling import Telling

# A client about whom it is not known whether there is room waits for a look, for so long.
LOOK_WAIT_S = 1.0


ADDRESS = "\0@"


class _Kind(NamedTuple):
    """Whose clients are counted: users, or addresses."""

    places: Places
    counts: Callable[[], Mapping[str, int]]
    is_address: bool

    def field(self, name: str) -> str:
        """Return what a name is in Redis."""
        return f"{ADDRESS}{name}" if self.is_address or name.startswith(ADDRESS[0]) else name

    def fields(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return counts as they are in Redis."""
        return {self.field(name): count for name, count in counts.items()}


class PlacesWatch:
    """See the module.

    Args:
        places, counts: of users; `counts` returns the clients of every user of this process.
        addresses, counts_at: likewise of addresses.
    """

    def __init__(
        self,
        client: Client,
        places: Places,
        counts: Callable[[], Mapping[str, int]],
        addresses: Places | None = None,
        counts_at: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._kinds = [_Kind(places, counts, is_address=False)]
        if addresses is not None:
            self._kinds.append(_Kind(addresses, counts_at, is_address=True))
        self._telling = Telling(client, "places", self.look, leave)
        self._looked = Signal()
        for kind in self._kinds:
            kind.places.wanted = self._telling.hurry

    def start(self) -> None:
        """Begin, if there is a limit. Idempotent."""
        if any(kind.places.max_clients for kind in self._kinds):
            self._telling.start()

    def close(self) -> None:
        """Give the places back. Idempotent. Waits for Redis."""
        self._telling.close()

    def next_look(self) -> bool:
        """Wait for the end of a look, for LOOK_WAIT_S at most; return whether there was one."""
        return self._telling.begun and self._looked.wait(LOOK_WAIT_S)

    def look(self) -> None:
        """Look once; a fault is logged once. Waits for Redis."""
        questions = [kind.places.next_question() for kind in self._kinds]
        told: dict[str, int] = {}
        for kind, question in zip(self._kinds, questions, strict=True):
            told |= kind.fields(kind.places.all_told(kind.counts()) if self._telling.anew else question.told)
        asked = [kind.field(name) for kind, question in zip(self._kinds, questions, strict=True) for name in question.asked]
        heard = self._telling.ask(lambda client, process_id, anew: look(client, process_id, told, asked, anew=anew))
        if heard is None:
            return
        for kind, question in zip(self._kinds, questions, strict=True):
            others = {name: heard.found.others[kind.field(name)] for name in question.asked}
            kind.places.heard(question, heard.found.processes, others, lost=heard.lost)
        looked, self._looked = self._looked, Signal()
        looked.set()
