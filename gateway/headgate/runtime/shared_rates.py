"""Rate limits per caller over several processes, which exchange the spending of each caller. No I/O.

In: the spending of callers here, and at the other processes. Out: whether a caller may continue, without waiting, and the
contents of the next exchange, which is a turn of the shared table (redis/shared_table.py), soon after the spending.

Rule. Each process has a whole bucket per caller. It subtracts the spending here at once, and that of the others at the next
exchange, and a bucket may go below zero. So over P processes a caller has `burst` and `per_s`, and between two exchanges at
most P - 1 bursts more, which later refills pay back, so `per_s` holds in the long run. A process without exchanges (Redis is
unreachable or has lost the data) refills its buckets at `per_s / P`, so the sum over all processes also keeps to `per_s`.

Events that cannot be undone, such as failed logins, are charged after the fact, and the bucket never falls below empty. A user
at an attacker's address waits no longer with several processes than with one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic

from .rates import Rates, TokenBucket

# After this long without an exchange, the spending at the other processes is unknown.
OUT_OF_TOUCH_S = 30.0
# After Redis has lost the data, every process has sent its part again within this.
SETTLE_S = 15.0
# The most callers with shared spending. Only this process limits the others.
MAX_SHARED = 1000


class SharedRates(Rates):
    """See the module. `wanted` is called when there is something to send. `label` is the rate's word in all processes.

    Attributes:
        per_s: the rate over all processes, as last applied.
    """

    def __init__(
        self, label: str, per_s: float, burst: int, now_s: Callable[[], float] = monotonic, *, owes: bool = True
    ) -> None:
        super().__init__(per_s, burst)
        self.label, self.kind = label, f"rates:{label}"
        self.wanted: Callable[[], None] = lambda: None
        self.per_s = per_s
        self._now_s, self._owes = now_s, owes
        self._spent: dict[str, int] = {}
        self._unsent: set[str] = set()
        self._received: dict[str, dict[str, int]] = {}  # process → its spending of each caller
        self._processes = 1
        self._received_s = now_s()
        self._settled_s = -math.inf

    def apply(self, per_s: float, burst: int) -> None:
        """Change the rate. Every caller starts with a full bucket."""
        if (per_s, burst) != (self.per_s, self.burst):
            self._per_s, self.burst, self.per_s = per_s, burst, per_s
            self._buckets.clear()

    def borrow(self, name: str, now_s: float, max_wait_s: float) -> float | None:
        """Count one and return the seconds to wait for it, or count nothing and return None if they exceed `max_wait_s`."""
        wait_s = self._bucket(name, now_s).borrow(now_s, max_wait_s)
        if wait_s is not None:
            self._count(name, 1)
        return wait_s

    def charge(self, name: str, now_s: float, count: int = 1) -> None:
        """Count past events, even without room. Later calls wait longer."""
        self._bucket(name, now_s).charge(now_s, count, owes=self._owes)
        self._count(name, count)

    def wait_s(self, name: str, now_s: float, count: int = 1) -> float:
        """Return the seconds until there is room for `count`, at most a burst. Counts nothing."""
        bucket = self._buckets.get(name)
        return 0.0 if bucket is None else bucket.wait_s(now_s, count)

    def wanted_fields(self) -> None:
        """Ask for all spending at the others."""

    def fields(self, *, whole_row: bool) -> dict[str, str | None]:
        """Return the changes for the next exchange, as fields of the shared table, with None for a caller to remove.

        A field is `<spent> <missing>`: a caller's spending here since its bucket was last full, and what the bucket lacks. With
        `whole_row`, returns all, because the last exchange failed or Redis has lost the data.
        """
        now_s = self._now_s()
        self._pace(now_s)
        unsent = set(self._spent) if whole_row else self._unsent
        self._unsent = set()
        changed: dict[str, str | None] = {}
        for name in list(self._spent):
            missing = self._bucket(name, now_s).missing(now_s)
            if missing <= 0:
                del self._spent[name]
                changed[name] = None
            elif name in unsent:
                changed[name] = f"{self._spent[name]} {math.ceil(missing)}"
        return changed

    def receive(self, others: Mapping[str, Mapping[str, bytes | None]], *, lost: bool) -> None:
        """Apply the fields of the other processes.

        With `lost`, Redis had lost the data of this process, so that of the others may be incomplete.
        """
        now_s = self._now_s()
        self._received_s = now_s
        if lost:
            self._settled_s = now_s + SETTLE_S
        settled = now_s >= self._settled_s
        self._processes = max(len(others) + 1, 1 if settled else self._processes)
        strangers: dict[str, int] = {}
        before, self._received = self._received, {}
        for process, fields in others.items():
            callers, known = _read(fields), before.get(process)
            self._received[process] = {name: spent for name, (spent, _) in callers.items()}
            for name, (spent, missing) in callers.items():
                if known is None:
                    # The lack of a bucket covers all processes, so only the largest value counts.
                    strangers[name] = max(strangers.get(name, 0), missing)
                elif settled and (more := spent - (was if (was := known.get(name, 0)) <= spent else 0)):
                    self._bucket(name, now_s).charge(now_s, more, owes=self._owes)
        if settled:
            # During an upgrade, a process with another setting may report more than a bucket here can lack.
            most = self.burst * self._processes
            for name, missing in strangers.items():
                bucket = self._bucket(name, now_s)
                bucket.charge(now_s, max(0, min(missing, most) - math.ceil(bucket.missing(now_s))), owes=self._owes)
        self._pace(now_s)

    # -- private ------------------------------------------------------------------------------------------------------

    def _count(self, name: str, count: int) -> None:
        known = self._spent.get(name)
        if known is None and len(self._spent) >= MAX_SHARED:
            return
        self._spent[name] = (known or 0) + count
        if not self._unsent:
            self.wanted()
        self._unsent.add(name)

    def _pace(self, now_s: float) -> None:
        """Refill at this process's rate, or at its share while the rates of the others are unknown."""
        in_touch = now_s - self._received_s <= OUT_OF_TOUCH_S and now_s >= self._settled_s
        per_s = self.per_s if in_touch else self.per_s / self._processes
        if per_s != self._per_s:
            self._per_s = per_s
            for bucket in self._buckets.values():
                bucket.pace(now_s, per_s)

    def _new_bucket(self, name: str, now_s: float) -> TokenBucket:
        bucket = super()._new_bucket(name, now_s)
        if len(self._spent) > len(self._buckets):  # the bucket was forgotten with its shared spending
            self._spent = {each: spent for each, spent in self._spent.items() if each in self._buckets}
        return bucket


def _read(fields: Mapping[str, bytes | None]) -> dict[str, tuple[int, int]]:
    spent_by: dict[str, tuple[int, int]] = {}
    for name, value in fields.items():
        if value is not None and len(value) <= 40:
            spent, _, missing = value.partition(b" ")
            if spent.isdigit() and missing.isdigit():
                spent_by[name] = int(spent), int(missing)
    return spent_by
