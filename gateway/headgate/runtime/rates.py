"""Rate limits: a token bucket for each of a bounded number of callers. No I/O; the caller passes the time."""

from __future__ import annotations

from collections import OrderedDict

from .token_bucket import TokenBucket

# The least recently active caller is forgotten first, and starts again with a full bucket.
MAX_CALLERS = 10_000


class Rates:
    """`burst` at once and `per_s` in the long run, for each name."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self.burst = per_s, burst
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def spend(self, name: str, now_s: float, count: int = 1) -> float:
        """Count `count` and return 0, or count nothing and return the seconds to wait. `now_s` is monotonic."""
        bucket = self._bucket(name, now_s)
        return 0.0 if bucket.spend(now_s, count) else bucket.wait_s(now_s, count)

    def borrow(self, name: str, now_s: float, max_wait_s: float) -> float | None:
        """Count one and return the seconds to wait for it, or count nothing and return None if they exceed `max_wait_s`."""
        return self._bucket(name, now_s).borrow(now_s, max_wait_s)

    def charge(self, name: str, now_s: float, count: int = 1) -> None:
        """Count what has happened, even without room. Later calls wait until it is made up for."""
        self._bucket(name, now_s).charge(now_s, count)

    def forget(self, name: str) -> None:
        """Forget a name. Idempotent."""
        self._buckets.pop(name, None)

    def _bucket(self, name: str, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            return self._new_bucket(name, now_s)
        self._buckets.move_to_end(name)
        return bucket

    def _new_bucket(self, name: str, now_s: float) -> TokenBucket:
        bucket = self._buckets[name] = TokenBucket(self._per_s, self.burst, now_s)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return bucket
