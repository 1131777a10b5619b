"""A token bucket: limits how fast one client may send. No I/O; the caller passes the monotonic time."""

from __future__ import annotations


class TokenBucket:
    """Starts full with `burst` tokens and refills at `per_s`."""

    __slots__ = ("_burst", "_per_s", "_stamp_s", "_tokens")

    def __init__(self, per_s: float, burst: int, now_s: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens: float = burst
        self._stamp_s = now_s

    def spend(self, now_s: float, count: int = 1) -> bool:
        """Take tokens and return True, or take none and return False if there are too few."""
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
        """Take tokens, including future ones; return the seconds until they are there.

        Take none and return None if that exceeds `max_wait_s`. A later caller waits longer.
        """
        self._settle(now_s)
        wait_s = max(0.0, (count - self._tokens) / self._per_s)
        if wait_s > max_wait_s:
            return None
        self._tokens -= count
        return wait_s

    def charge(self, now_s: float, count: int, *, owes: bool = True) -> None:
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
