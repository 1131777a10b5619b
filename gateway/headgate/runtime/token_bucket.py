"""A token bucket: how fast one client may send. No I/O; the caller brings the monotonic time."""

from __future__ import annotations


class TokenBucket:
    """`burst` tokens at first, refilled at `per_s`; starts full."""

    __slots__ = ("_burst", "_per_s", "_stamp_s", "_tokens")

    def __init__(self, per_s: float, burst: int, now_s: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens: float = burst
        self._stamp_s = now_s

    def spend(self, now_s: float, count: int = 1) -> bool:
        """Take tokens; False, and nothing taken, when there are not so many."""
        tokens = self._tokens + (now_s - self._stamp_s) * self._per_s
        if tokens > self._burst:
            tokens = self._burst
        self._stamp_s = now_s
        if tokens < count:
            self._tokens = tokens
            return False
        self._tokens = tokens - count
        return True

    def borrow(self, now_s: float, max_wait_s: float, count: int = 1) -> float | None:
        """Take tokens, if need be some that are still to come; return the seconds until they are there.

        None, and nothing taken, when that is more than `max_wait_s`. A later caller waits longer.
        """
        self._tokens = min(self._burst, self._tokens + (now_s - self._stamp_s) * self._per_s)
        self._stamp_s = now_s
        wait_s = max(0.0, (count - self._tokens) / self._per_s)
        if wait_s > max_wait_s:
            return None
        self._tokens -= count
        return wait_s

    def charge(self, now_s: float, count: int, *, owes: bool = True) -> None:
        """Take tokens, whether there are so many or not: the bucket then owes the rest, or is empty (`owes` False)."""
        self._settle(now_s)
        self._tokens -= count
        if not owes:
            self._tokens = max(0.0, self._tokens)

    def missing(self, now_s: float) -> float:
        """Return how many tokens are missing from a full bucket."""
        return self._burst - min(self._burst, self._tokens + (now_s - self._stamp_s) * self._per_s)

    def pace(self, now_s: float, per_s: float) -> None:
        """Refill at another rate from now on."""
        self._settle(now_s)
        self._per_s = per_s

    def _settle(self, now_s: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now_s - self._stamp_s) * self._per_s)
        self._stamp_s = now_s

    def wait_s(self, now_s: float, count: int = 1) -> float:
        """Return how long it takes until there are so many tokens, if no other caller takes any: 0 when there are."""
        return max(0.0, (count - self._tokens) / self._per_s - (now_s - self._stamp_s))
