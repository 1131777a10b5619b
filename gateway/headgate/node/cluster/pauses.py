"""Refuses connects, publishes, or all of a namespace in this gateway while an operator's pause lasts.

In: the set in Redis (redis/pauses.py), read by one greenlet at each notice of a change, and every CHECK_EVERY_S, because a
flush gives no notice. Out: `Paused`, with a time to retry after; log lines.

Rules. 1. While Redis is unreachable, the known pauses stay in force until their end. 2. A pause does not disconnect clients,
and does not stop publishers that write to Redis directly. It stops only requests through gateways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import randint
from time import monotonic

import structlog

from headgate.errors import HeadgateError, Paused
from headgate.redis.client import Client
from headgate.redis.pauses import CONNECTS, namespace_member, namespace_of, read_paused
from headgate.runtime.metrics import SHED
from headgate.runtime.periodic import PeriodicTask

log = structlog.get_logger("headgate.pauses")

CHECK_EVERY_S, RETRY_EVERY_S = 5.0, 1.0
# The least time between two reads, for any number of notices.
GAP_S = 0.1
# A client enters a topic's presence, which only a pause of the namespace refuses.
ENTERS = "enters"
# The range of the time after which a refused client may come back, counted from the end of the pause if it is known.
RETRY_S = (5, 15)
AFTER_END_S = (0, 5)


class Pauses:
    """See the module. They are as in Redis between `start` and `close`. `now_s` is monotonic."""

    def __init__(
        self, client: Client, now_s: Callable[[], float] = monotonic, spread: Callable[[int, int], int] = randint
    ) -> None:
        self._client, self._now_s, self._spread = client, now_s, spread
        self._until_s: dict[str, float] = {}
        self._task = PeriodicTask(self.read, lambda: log.exception("pause watch failed"), RETRY_EVERY_S, GAP_S)
        self._logged = ""
        self.start, self.hurry, self.close = self._task.start, self._task.hurry, self._task.close

    def replace(self, left_s: Mapping[str, float]) -> None:
        """Store all pauses, with the seconds left; log the new and the ended ones."""
        now_s, known = self._now_s(), set(self._until_s)
        self._until_s = {member: now_s + left for member, left in left_s.items()}
        for member in sorted(self._until_s.keys() - known):
            left = left_s[member]
            log.warning("paused", what=member, for_s=None if math.isinf(left) else round(left))
        for member in sorted(known - self._until_s.keys()):
            log.info("resumed", what=member)

    def check(self, act: str, namespace: str | None = None) -> None:
        """Refuse an act (CONNECTS, PUBLISHES or ENTERS), in a namespace if it is in one. Raises Paused with a time."""
        if not self._until_s:
            return
        for member in (act,) if namespace is None else (act, namespace_member(namespace)):
            left_s = self._until_s.get(member, 0.0) - self._now_s()
            if left_s > 0:
                if act == CONNECTS:
                    SHED.labels("paused").inc()
                after_s = self._spread(*RETRY_S)
                if left_s < after_s:
                    after_s = math.ceil(left_s) + self._spread(*AFTER_END_S)
                raise Paused(member.partition(":")[0], after_s, namespace_of(member))

    def names(self) -> list[str]:
        """Return the names of the pauses in force."""
        now_s = self._now_s()
        return sorted(member for member, until_s in self._until_s.items() if until_s > now_s)

    def read(self) -> float:
        """Read the pauses once; log the first of several failures. Return the seconds until the next read. Waits for Redis."""
        try:
            self.replace(read_paused(self._client))
        except HeadgateError as error:
            if error.message != self._logged and not self._task.ended:
                self._logged = error.message
                log.warning("pauses out of reach", error=error.message)
            return RETRY_EVERY_S
        self._logged = ""
        return CHECK_EVERY_S
