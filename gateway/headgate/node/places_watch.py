"""The watch on places: it tells the other processes how many clients each user and each address has here, and asks for theirs.

In: `Places` (auth/places.py), which say what to tell and to ask. Out: a look at Redis (redis/places.py) soon after a join, at
most one each GAP_S, and every RENEW_EVERY_S without one; one greenlet over one connection, off the hot path.

Rules. 1. Redis that cannot be reached costs a line in the log; each process keeps its share then. 2. A process whose counts Redis
has lost (a flush, a lease that has ended), or may not have heard, tells all of them anew. 3. In Redis, an address is a user whose
name begins with ADDRESS; a user whose name begins like that is told with another one in front.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from headgate.auth.places import Places
from headgate.errors import HeadgateError
from headgate.redis.client import open_client
from headgate.redis.places import LEASE_S, leave, look
from headgate.runtime.loop import Signal
from headgate.runtime.rounds import Rounds

log = structlog.get_logger("headgate.places")

RENEW_EVERY_S = LEASE_S / 3
GAP_S = 0.25
TIMEOUT_S = 2.0
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
        redis_url: str,
        places: Places,
        counts: Callable[[], Mapping[str, int]],
        addresses: Places | None = None,
        counts_at: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._id = secrets.token_hex(8)
        self._client = open_client(redis_url, timeout_s=TIMEOUT_S, max_connections=1)
        self._kinds = [_Kind(places, counts, is_address=False)]
        if addresses is not None:
            self._kinds.append(_Kind(addresses, counts_at, is_address=True))
        self._rounds = Rounds(self._round, lambda: log.exception("places watch failed"), RENEW_EVERY_S, GAP_S)
        self._looked = Signal()
        self._anew, self._was_known = True, False
        self._logged = ""
        for kind in self._kinds:
            kind.places.wanted = self._rounds.hurry

    def start(self) -> None:
        """Begin, if there is a limit. Idempotent."""
        if not self._rounds.begun and any(kind.places.max_clients for kind in self._kinds):
            self._id = secrets.token_hex(8)  # of this process, whichever one made the gateway before a fork
            self._rounds.start()

    def close(self) -> None:
        """Give the places back, and close the connection. Idempotent. Waits for Redis, for about TIMEOUT_S at most."""
        if self._rounds.end():
            try:
                leave(self._client, self._id)
            except HeadgateError:
                log.debug("places not given back")  # they end with the lease
        self._client.close()

    def next_look(self) -> bool:
        """Wait for the end of a look, for LOOK_WAIT_S at most; return whether there was one."""
        return self._rounds.begun and self._looked.wait(LOOK_WAIT_S)

    def look(self) -> None:
        """Look once; a fault is logged once. Waits for Redis."""
        questions = [kind.places.next_question() for kind in self._kinds]
        told: dict[str, int] = {}
        for kind, question in zip(self._kinds, questions, strict=True):
            told |= kind.fields(kind.places.all_told(kind.counts()) if self._anew else question.told)
        asked = [kind.field(name) for kind, question in zip(self._kinds, questions, strict=True) for name in question.asked]
        anew, self._anew = self._anew, True
        try:
            found = look(self._client, self._id, told, asked, anew=anew)
        except HeadgateError as error:
            if error.message != self._logged and not self._rounds.ended:
                self._logged = error.message
                log.warning("places out of reach", error=error.message, effect="each process keeps its share")
            return
        self._logged = ""
        lost = self._was_known and not found.known
        for kind, question in zip(self._kinds, questions, strict=True):
            others = {name: found.others[kind.field(name)] for name in question.asked}
            kind.places.heard(question, found.processes, others, lost=lost)
        looked, self._looked = self._looked, Signal()
        looked.set()
        self._was_known = True
        self._anew = lost and not anew
        if self._anew:
            self._rounds.hurry()

    def _round(self) -> float:
        self.look()
        return RENEW_EVERY_S
