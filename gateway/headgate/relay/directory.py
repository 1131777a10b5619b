"""The directory: the internal address of each owner, as Redis names them. Off the hot path.

In: this process's own name and address. Out: `find` an owner. One greenlet renews the lease, and reads all addresses, every
RENEW_EVERY_S, and sooner when somebody asks for an owner that is not known: at most one look each GAP_S, however many forged ids
there are. An owner that a look did not find is not looked for again within RENEW_EVERY_S.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

import structlog

from headgate.errors import HeadgateError
from headgate.redis.client import open_client
from headgate.redis.relays import LEASE_S, Address, leave, look
from headgate.runtime.loop import Signal
from headgate.runtime.rounds import Rounds

log = structlog.get_logger("headgate.relay")

RENEW_EVERY_S = LEASE_S / 3
GAP_S = 0.25
TIMEOUT_S = 2.0
# Owners that a look did not find.
MAX_UNKNOWN = 10_000


class Directory:
    """See the module. `changed` is called after each look."""

    def __init__(self, redis_url: str, name: str, address: Address, now_s: Callable[[], float] = monotonic) -> None:
        self._client = open_client(redis_url, timeout_s=TIMEOUT_S, max_connections=1)
        self._name, self._address, self._now_s = name, address, now_s
        self._known: dict[str, Address] = {}
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._rounds = Rounds(self._round, lambda: log.exception("directory failed"), RENEW_EVERY_S, GAP_S)
        self._looked = Signal()
        self._logged = ""
        self.changed: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Register, and go on doing so. Idempotent."""
        self._rounds.start()

    def close(self) -> None:
        """Take this process out. Idempotent. Waits for Redis, for about TIMEOUT_S at most."""
        if not self._rounds.ended:
            self._rounds.end()
            try:
                leave(self._client, self._name, self._address)
            except HeadgateError:
                log.debug("relay not taken out")  # it ends with its lease
            self._client.close()

    def known(self, name: str) -> Address | None:
        """Return the address of an owner, as of the last look. Never waits."""
        return self._known.get(name)

    def find(self, name: str, within_s: float) -> Address | None:
        """Return the address of an owner; one that is not known is looked for. Waits for at most `within_s`."""
        found = self._known.get(name)
        if found is not None or self._rounds.ended or self._now_s() < self._unknown.get(name, 0.0):
            return found
        looked = self._looked
        self._rounds.hurry()
        if looked.wait(within_s) and name not in self._known and not self._logged:
            self._unknown[name] = self._now_s() + RENEW_EVERY_S
            if len(self._unknown) > MAX_UNKNOWN:
                self._unknown.popitem(last=False)
        return self._known.get(name)

    def look(self) -> None:
        """Look once; a fault is logged once, and the last look stands. Waits for Redis."""
        looked, self._looked = self._looked, Signal()
        try:
            self._known = look(self._client, self._name, self._address)
        except HeadgateError as error:
            if error.message != self._logged and not self._rounds.ended:
                self._logged = error.message
                log.warning("relays out of reach", error=error.message)
            return
        finally:
            looked.set()
        self._logged = ""
        for name in [name for name in self._unknown if name in self._known]:
            del self._unknown[name]
        self.changed()

    def _round(self) -> float:
        self.look()
        return RENEW_EVERY_S
