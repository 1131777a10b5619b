"""Pauses as one gateway obeys them: connects, publishes, or all of a namespace are refused until an operator resumes them.

In: the set in Redis (redis/pauses.py), read by one greenlet at each notice that it has changed, and every LOOK_EVERY_S: a flush
gives no notice. Out: `Paused`, with a time to come back after; lines in the log.

Rules. 1. While Redis cannot be reached, the pauses that are known stay in force, until the end that they have. 2. A pause
disconnects nobody and stops no publisher that writes to Redis itself: it stops what comes in through gateways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import randint
from time import monotonic

import structlog

from headgate.errors import HeadgateError, Paused
from headgate.metrics import SHED
from headgate.redis.client import Client
from headgate.redis.pauses import CONNECTS, PUBLISHES, namespace_member, namespace_of, read_paused
from headgate.runtime.periodic import Rounds

log = structlog.get_logger("headgate.pauses")

LOOK_EVERY_S, RETRY_EVERY_S = 5.0, 1.0
# From one look to the next at least, however many notices come.
GAP_S = 0.1
# From and to: when the refused may come back; if the end is known, that much behind it.
RETRY_S = (5, 15)
AFTER_END_S = (0, 5)


class Pauses:
    """The pauses as of the last look. No I/O. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = monotonic, spread: Callable[[int, int], int] = randint) -> None:
        self._now_s, self._spread = now_s, spread
        self._until_s: dict[str, float] = {}

    def replace(self, left_s: Mapping[str, float]) -> None:
        """Take these, with the seconds left, as all that there is; log what is new and what has ended."""
        now_s, known = self._now_s(), set(self._until_s)
        self._until_s = {member: now_s + left for member, left in left_s.items()}
        for member in sorted(self._until_s.keys() - known):
            left = left_s[member]
            log.warning("paused", what=member, for_s=None if math.isinf(left) else round(left))
        for member in sorted(known - self._until_s.keys()):
            log.info("resumed", what=member)

    def check_connect(self, namespace: str | None = None) -> None:
        """Refuse a client that wants to come in, or into a namespace.

        Raises:
            Paused: with a time.
        """
        self._check(CONNECTS, namespace)

    def check_publish(self, namespace: str) -> None:
        """Refuse an event.

        Raises:
            Paused: with a time.
        """
        self._check(PUBLISHES, namespace)

    def check_enter(self, namespace: str) -> None:
        """Refuse a client that wants to be a member of a topic: only while the namespace is paused.

        Raises:
            Paused: with a time.
        """
        self._check(namespace_member(namespace), None)

    def names(self) -> list[str]:
        """Return what is paused now."""
        now_s = self._now_s()
        return sorted(member for member, until_s in self._until_s.items() if until_s > now_s)

    def _check(self, member: str, namespace: str | None) -> None:
        if not self._until_s:
            return
        for each in (member,) if namespace is None else (member, namespace_member(namespace)):
            left_s = self._until_s.get(each, 0.0) - self._now_s()
            if left_s > 0:
                if member == CONNECTS:
                    SHED.labels("paused").inc()
                after_s = self._spread(*RETRY_S)
                if left_s < after_s:
                    after_s = math.ceil(left_s) + self._spread(*AFTER_END_S)
                raise Paused(each.partition(":")[0], after_s, namespace_of(each))


class PauseWatch:
    """Keeps `pauses` as Redis has them, between `start` and `close`.

    Args:
        read: returns the pauses with the seconds left.
    """

    def __init__(self, client: Client, pauses: Pauses, read: Callable[[Client], Mapping[str, float]] = read_paused) -> None:
        self._client = client
        self._pauses, self._read = pauses, read
        self._rounds = Rounds(self.look, lambda: log.exception("pause watch failed"), RETRY_EVERY_S, GAP_S)
        self._logged = ""
        self.start, self.hurry = self._rounds.start, self._rounds.hurry

    def close(self) -> None:
        """Stop. Idempotent. Waits for a look that is under way."""
        self._rounds.end()

    def look(self) -> float:
        """Look once; what cannot be read is logged once. Return the seconds until the next look. Waits for Redis."""
        try:
            self._pauses.replace(self._read(self._client))
        except HeadgateError as error:
            if error.message != self._logged and not self._rounds.ended:
                self._logged = error.message
                log.warning("pauses out of reach", error=error.message)
            return RETRY_EVERY_S
        self._logged = ""
        return LOOK_EVERY_S
