"""Rate limits by a token bucket for each of a bounded number of callers. No I/O. The caller passes the time."""

from __future__ import annotations

from collections import OrderedDict


class TokenBucket:
    """Starts full with `burst` tokens and refills at `per_s`."""

    __slots__ = ("_burst", "_per_s", "_stamp_s", "_tokens")

    def __init__(self, per_s: float, burst: int, now_s: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens: float = burst
        self._stamp_s = now_s

    def spend(self, now_s: float, count: int = 1) -> bool:
        """Take tokens and return True, or take none and return False if there are too few."""
        tokens = self._tokens + (now_s - self._stamp_s) * self._per_s  # as `_settle`, without a call for each event
        self._tokens, self._stamp_s = tokens if tokens < self._burst else self._burst, now_s
        if self._tokens < count:
            return False
        self._tokens -= count
        return True

    def borrow(self, now_s: float, max_wait_s: float) -> float | None:
        """Take a token, perhaps a future one; return the seconds until it is there.

        Take none and return None if that exceeds `max_wait_s`. A later caller waits longer.
        """
        self._settle(now_s)
        wait_s = max(0.0, (1 - self._tokens) / self._per_s)
        if wait_s > max_wait_s:
            return None
        self._tokens -= 1
        return wait_s

    def charge(self, now_s: float, count: int, *, owes: bool) -> None:
        """Take tokens, even more than there are. The bucket then owes the rest, or is empty (`owes` False)."""
        self._settle(now_s)
        self._tokens -= count
        if not owes:
            self._tokens = max(0.0, self._tokens)

    def missing(self, now_s: float) -> float:
        """Return the number of tokens missing from a full bucket."""
        return self._burst - min(self._burst, self._tokens + (now_s - self._stamp_s) * self._per_s)

    def pace(self, now_s: float, per_s: float) -> None:
        """Change the refill rate."""
        self._settle(now_s)
        self._per_s = per_s

    def _settle(self, now_s: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now_s - self._stamp_s) * self._per_s)
        self._stamp_s = now_s

    def wait_s(self, now_s: float, count: int = 1) -> float:
        """Return the seconds until there are enough tokens, if no other caller takes any; 0 if there are."""
        return max(0.0, (count - self._tokens) / self._per_s - (now_s - self._stamp_s))


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
        if not bucket.spend(now_s, count):
            return bucket.wait_s(now_s, count)
        self._count(name, count)
        return 0.0

    def _count(self, name: str, count: int) -> None:
        """Note what a name has spent."""

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
