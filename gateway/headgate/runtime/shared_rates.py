"""Shared rates: how fast each caller may go over several processes that tell each other what it has spent. No I/O.

In: what callers spend here; what the other processes have let them spend (node/cluster/rates_watch.py). Out: whether a caller
may go on, at once and without waiting for anyone; what the next look is to tell.

Rule. Each process has a whole bucket for each caller. It takes from it at once what it lets the caller spend, and at the next
look what the others have; a bucket may owe. So over P processes a caller has `burst` and `per_s`, and P - 1 bursts more at most
between two looks, which it pays back: in the long run `per_s` holds. A process that cannot look (Redis is away, or has lost what
was told) refills its buckets at `per_s / P`, so that all together keep to `per_s` too.

A rate of what nobody can take back, such as logins that have failed, is charged: it is counted when it has happened, and a
bucket is empty at worst. Whoever shares an address with an attacker waits no longer for several processes than for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

from .rates import Rates
from .token_bucket import TokenBucket

# Without a look for so long, a process does not know what the others let callers spend.
OUT_OF_TOUCH_S = 30.0
# After Redis has lost what was told, the others have told theirs again within this.
SETTLE_S = 15.0
# Callers whose spending is told; others have what this process alone allows.
MAX_SHARED = 1000


class Spending(NamedTuple):
    """What a process has let a caller spend since its bucket was last full, and how far from full the bucket is (at least 0)."""

    spent: int
    missing: int


class SharedRates(Rates):
    """See the module. `wanted` is called when there is something to tell. `label` is the rate's word on all."""

    def __init__(
        self, label: str, per_s: float, burst: int, now_s: Callable[[], float] = monotonic, *, owes: bool = True
    ) -> None:
        super().__init__(per_s, burst)
        self.label = label
        self.wanted: Callable[[], None] = lambda: None
        self._whole_per_s = per_s
        self._now_s, self._owes = now_s, owes
        self._spent: dict[str, int] = {}
        self._untold: set[str] = set()
        self._heard: dict[str, dict[str, int]] = {}  # process → what it has told of each caller
        self._processes = 1
        self._heard_s = now_s()
        self._settled_s = -math.inf

    def use(self, per_s: float, burst: int) -> None:
        """Go on at another rate; every caller begins with a full bucket."""
        if (per_s, burst) != (self._whole_per_s, self._burst):
            self._per_s, self._burst, self._whole_per_s = per_s, burst, per_s
            self._buckets.clear()

    def spend(self, name: str, now_s: float, count: int = 1) -> float:
        wait_s = super().spend(name, now_s, count)
        if not wait_s:
            self._count(name, count)
        return wait_s

    def borrow(self, name: str, now_s: float, max_wait_s: float) -> float | None:
        wait_s = super().borrow(name, now_s, max_wait_s)
        if wait_s is not None:
            self._count(name, 1)
        return wait_s

    def charge(self, name: str, now_s: float, count: int = 1) -> None:
        self._bucket(name, now_s).charge(now_s, count, owes=self._owes)
        self._count(name, count)

    def wait_s(self, name: str, now_s: float) -> float:
        """Return the seconds until there is room for one; count nothing."""
        bucket = self._buckets.get(name)
        return 0.0 if bucket is None else bucket.wait_s(now_s)

    def told(self, *, anew: bool = False) -> dict[str, Spending | None]:
        """Return what the next look is to tell; None of a caller of whom there is nothing to tell any more.

        `anew`: of all, as the last look has failed, or Redis has lost what was told.
        """
        now_s = self._now_s()
        self._pace(now_s)
        untold = set(self._spent) if anew else self._untold
        self._untold = set()
        found: dict[str, Spending | None] = {}
        for name in list(self._spent):
            missing = self._bucket(name, now_s).missing(now_s)
            if missing <= 0:
                del self._spent[name]
                found[name] = None
            elif name in untold:
                found[name] = Spending(self._spent[name], math.ceil(missing))
        return found

    def heard(self, processes: int, others: Mapping[str, Mapping[str, Spending]], *, lost: bool = False) -> None:
        """The look is over: so many processes there are, and this is what the others have told.

        `lost`: Redis had lost what this process told, so what it knows of the others may not be all.
        """
        now_s = self._now_s()
        self._heard_s = now_s
        if lost:
            self._settled_s = now_s + SETTLE_S
        settled = now_s >= self._settled_s
        self._processes = max(1, processes, 1 if settled else self._processes)
        strangers: dict[str, int] = {}
        for process, callers in others.items():
            known = self._heard.get(process)
            for name, (spent, missing) in callers.items():
                if known is None:
                    # What a bucket lacks is of all processes: the fullest account of it counts, once.
                    strangers[name] = max(strangers.get(name, 0), missing)
                elif settled and (more := spent - (was if (was := known.get(name, 0)) <= spent else 0)):
                    self._bucket(name, now_s).charge(now_s, more, owes=self._owes)
        if settled:
            # A process with another setting, as while gateways are replaced, may name more than a bucket here can lack.
            most = self._burst * self._processes
            for name, missing in strangers.items():
                bucket = self._bucket(name, now_s)
                bucket.charge(now_s, max(0, min(missing, most) - math.ceil(bucket.missing(now_s))), owes=self._owes)
        self._heard = {process: {name: each.spent for name, each in callers.items()} for process, callers in others.items()}
        self._pace(now_s)

    # -- private ------------------------------------------------------------------------------------------------------

    def _count(self, name: str, count: int) -> None:
        known = self._spent.get(name)
        if known is None and len(self._spent) >= MAX_SHARED:
            return
        self._spent[name] = (known or 0) + count
        if not self._untold:
            self.wanted()
        self._untold.add(name)

    def _pace(self, now_s: float) -> None:
        """Refill as fast as this process may: its share where it does not know what the others do."""
        in_touch = now_s - self._heard_s <= OUT_OF_TOUCH_S and now_s >= self._settled_s
        per_s = self._whole_per_s if in_touch else self._whole_per_s / self._processes
        if per_s != self._per_s:
            self._per_s = per_s
            for bucket in self._buckets.values():
                bucket.pace(now_s, per_s)

    def _bucket(self, name: str, now_s: float) -> TokenBucket:
        bucket = super()._bucket(name, now_s)
        if len(self._spent) > len(self._buckets):  # a bucket was forgotten, and with it what was told of it
            self._spent = {each: spent for each, spent in self._spent.items() if each in self._buckets}
        return bucket
