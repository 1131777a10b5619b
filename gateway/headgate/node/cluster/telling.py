"""The telling: what this process tells the other processes through Redis, under a lease, and hears of what they have told.

In: parts (rates_watch.py, the counts of access), each with a hash of its own (redis/leased.py). Out: a look for all parts every
RENEW_EVERY_S, and one for a part soon after it is in a hurry, at most one each GAP_S; one greenlet, off the hot path.

Rules. 1. Redis that cannot be reached costs a line in the log; each process keeps its share then. 2. A process whose words Redis
has lost (a flush, a lease that has ended), or may not have heard, tells all of them anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Protocol

import structlog

from headgate.errors import HeadgateError
from headgate.redis.client import Client
from headgate.redis.leased import LEASE_S, leave, tell
from headgate.runtime.rounds import Rounds

log = structlog.get_logger("headgate.limits")

RENEW_EVERY_S = LEASE_S / 3
GAP_S = 0.25


class Part(Protocol):
    """One kind of what processes tell each other."""

    def key(self, process_id: str) -> str:
        """Return the key of a process's hash."""

    def tell(self, *, anew: bool) -> Mapping[str, str | int | None]:
        """Return the fields that have changed (None: it is gone), or all that there are."""

    def hear(self, client: Client, others: Sequence[str], *, lost: bool) -> None:
        """Read what the other processes have told; `lost`: Redis had lost what this one told. Waits for Redis.

        Raises:
            HeadgateError: as `redis.client.call`.
        """


class Telling:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self.process_id = secrets.token_hex(8)
        self._client = client
        self._parts: list[Part] = []
        self._hurried: list[Part] = []
        self._rounds = Rounds(self._round, lambda: log.exception("shared limits failed"), RENEW_EVERY_S, GAP_S)
        self._renew_at_s = 0.0
        self._anew, self._was_known = True, False
        self._logged = ""

    def add(self, part: Part) -> Callable[[], None]:
        """Tell of a part, too; return what is to be called when it is in a hurry, which never waits."""
        self._parts.append(part)

        def hurry() -> None:
            if part not in self._hurried:
                self._hurried.append(part)
            self._rounds.hurry()

        return hurry

    @property
    def begun(self) -> bool:
        """Whether `start` was called."""
        return self._rounds.begun

    def start(self) -> None:
        """Begin. Idempotent."""
        if not self._rounds.begun:
            self.process_id = secrets.token_hex(8)  # of this process, whichever one made the gateway before a fork
            self._rounds.start()

    def close(self) -> None:
        """Take this process out. Idempotent. Waits for Redis."""
        if self._rounds.end():
            try:
                leave(self._client, self.process_id, [part.key(self.process_id) for part in self._parts])
            except HeadgateError:
                log.debug("shared limits not taken out")  # they end with the lease

    def look(self, parts: Sequence[Part] | None = None) -> None:
        """Tell and hear of some parts, or of all; a fault is logged once. Waits for Redis."""
        anew, self._anew = self._anew, True
        looked = self._parts if parts is None or anew else parts
        try:
            told = {part.key(self.process_id): part.tell(anew=anew) for part in looked}
            others, known = tell(self._client, self.process_id, told, anew=anew)
            lost = self._was_known and not known
            for part in self._parts if lost else looked:
                part.hear(self._client, others, lost=lost)
        except HeadgateError as error:
            if error.message != self._logged and not self._rounds.ended:
                self._logged = error.message
                log.warning("shared limits out of reach", error=error.message, effect="each process keeps its share")
            return
        self._logged = ""
        self._was_known = True
        self._anew = lost and not anew
        if self._anew:
            self._rounds.hurry()

    def _round(self) -> float:
        now_s = monotonic()
        parts, self._hurried = self._hurried, []
        if now_s >= self._renew_at_s:
            parts, self._renew_at_s = self._parts, now_s + RENEW_EVERY_S
        self.look(parts)
        return self._renew_at_s - now_s
