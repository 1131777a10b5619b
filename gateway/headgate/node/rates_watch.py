"""The watch on rates: it tells the other processes what callers have spent here, and hears what they have spent there.

In: rates that are shared (runtime/shared_rates.py). Out: a look at Redis (redis/spendings.py) soon after a caller has spent
something, at most one each GAP_S, and every RENEW_EVERY_S without; one greenlet over one connection, off the hot path.

Rules. 1. Redis that cannot be reached costs a line in the log; each process keeps its share then. 2. A process whose spendings
Redis has lost, or may not have heard, tells all of them anew.
"""

from __future__ import annotations

import secrets

import structlog

from headgate.errors import HeadgateError
from headgate.redis.client import open_client
from headgate.redis.spendings import LEASE_S, leave, look
from headgate.runtime.rounds import Rounds
from headgate.runtime.shared_rates import SharedRates, Spending
from headgate.settings import Settings

log = structlog.get_logger("headgate.rates")

RENEW_EVERY_S = LEASE_S / 3
GAP_S = 0.25
TIMEOUT_S = 2.0


class RatesWatch:
    """See the module."""

    def __init__(self, redis_url: str) -> None:
        self._id = ""
        self._client = open_client(redis_url, timeout_s=TIMEOUT_S, max_connections=1)
        self._rates: dict[str, SharedRates] = {}
        self._rounds = Rounds(self._round, lambda: log.exception("rates watch failed"), RENEW_EVERY_S, GAP_S)
        self._anew, self._was_known = True, False
        self._logged = ""

    def use(self, settings: Settings) -> None:
        """Let all rates go on as the settings say."""
        for label, rates in self._rates.items():
            if label == "publish":
                rates.use(settings.publish_per_s, settings.publish_burst)
            elif label.partition(":")[0] in ("read", "replay"):
                rates.use(settings.read_per_s, settings.read_burst)

    def share(self, rates: SharedRates) -> None:
        """Let a rate hold over all processes. Each has a label of its own."""
        self._rates[rates.label] = rates
        rates.wanted = self._rounds.hurry

    def start(self) -> None:
        """Begin. Idempotent."""
        if not self._rounds.begun:
            self._id = secrets.token_hex(8)  # of this process, whichever one made the gateway before a fork
            self._rounds.start()

    def close(self) -> None:
        """Take this process out, and close the connection. Idempotent. Waits for Redis, for about TIMEOUT_S at most."""
        if self._rounds.end():
            try:
                leave(self._client, self._id)
            except HeadgateError:
                log.debug("spendings not taken out")  # they end with the lease
        self._client.close()

    def look(self) -> None:
        """Look once; a fault is logged once. Waits for Redis."""
        anew, self._anew = self._anew, True
        told: dict[str, Spending | None] = {}
        for label, rates in self._rates.items():
            told |= {f"{label}:{name}": each for name, each in rates.told(anew=anew).items()}
        try:
            found = look(self._client, self._id, told, anew=anew)
        except HeadgateError as error:
            if error.message != self._logged and not self._rounds.ended:
                self._logged = error.message
                log.warning("rates out of reach", error=error.message, effect="each process keeps its share")
            return
        self._logged = ""
        lost = self._was_known and not found.known
        self._was_known = True
        self._anew = lost and not anew
        for label, rates in self._rates.items():
            start = f"{label}:"
            others = {
                process: {name.removeprefix(start): each for name, each in fields.items() if name.startswith(start)}
                for process, fields in found.others.items()
            }
            rates.heard(found.processes, others, lost=lost)
        if self._anew:
            self._rounds.hurry()

    def _round(self) -> float:
        self.look()
        return RENEW_EVERY_S
