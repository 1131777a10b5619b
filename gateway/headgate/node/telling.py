"""A telling: what this process tells the other processes through Redis, under a lease, and what it finds that they have told.

In: a look, which tells and asks (redis/places.py, redis/spendings.py). Out: one soon after somebody is in a hurry, at most one
each GAP_S, and every RENEW_EVERY_S without; one greenlet, off the hot path.

Rules. 1. Redis that cannot be reached costs a line in the log; each process keeps its share then. 2. A process whose words Redis
has lost (a flush, a lease that has ended), or may not have heard, tells all of them anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import structlog

from headgate.errors import HeadgateError
from headgate.redis.client import Client
from headgate.redis.leased import LEASE_S
from headgate.runtime.rounds import Rounds

log = structlog.get_logger("headgate.limits")

RENEW_EVERY_S = LEASE_S / 3
GAP_S = 0.25


class Found(Protocol):
    """What a look found."""

    @property
    def known(self) -> bool:
        """Whether Redis still had this process's lease. If not, what it told before is lost."""


F = TypeVar("F", bound=Found)


class Heard(NamedTuple, Generic[F]):
    """What a look found, and whether what this process had told before was lost."""

    found: F
    lost: bool


class Telling:
    """See the module.

    Args:
        what: what it tells of, in log lines.
        look: what a round does: it calls `ask`.
        leave: takes this process out of Redis.
    """

    def __init__(self, client: Client, what: str, look: Callable[[], None], leave: Callable[[Client, str], None]) -> None:
        self.process_id = secrets.token_hex(8)
        self._what, self._look, self._leave = what, look, leave
        self._client = client
        self._rounds = Rounds(self._round, self._failed, RENEW_EVERY_S, GAP_S)
        self._anew, self._was_known = True, False
        self._logged = ""
        self.hurry = self._rounds.hurry

    @property
    def anew(self) -> bool:
        """Whether the next look tells all anew."""
        return self._anew

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
                self._leave(self._client, self.process_id)
            except HeadgateError:
                log.debug("shared limits not taken out", what=self._what)  # they end with the lease

    def ask(self, look: Callable[[Client, str, bool], F]) -> Heard[F] | None:
        """Look once: `look(client, process id, whether it tells all anew)`. None: out of reach, which is logged once.

        Waits for Redis.
        """
        anew, self._anew = self._anew, True
        try:
            found = look(self._client, self.process_id, anew)
        except HeadgateError as error:
            if error.message != self._logged and not self._rounds.ended:
                self._logged = error.message
                log.warning(
                    "shared limits out of reach", what=self._what, error=error.message, effect="each process keeps its share"
                )
            return None
        self._logged = ""
        lost = self._was_known and not found.known
        self._was_known = True
        self._anew = lost and not anew
        if self._anew:
            self.hurry()
        return Heard(found, lost)

    def _round(self) -> float:
        self._look()
        return RENEW_EVERY_S

    def _failed(self) -> None:
        log.exception("shared limits failed", what=self._what)
