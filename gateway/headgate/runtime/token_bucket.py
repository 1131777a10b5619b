"""A token bucket: how fast one client may send. No I/O; the caller brings the monotonic time."""

from __future__ import annotations


class TokenBucket:
    """`burst` tokens at first, refilled at `per_s`; starts full."""

    __slots__ = ("_burst", "_per_s", "_stamp_s", "_tokens")

    def __init__(self, per_s: float, burst: int, now_s: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens: float = burst
        self._stamp_s = now_s

    def spend(self, now_s: float) -> bool:
        """Take one token; False, and nothing taken, when there is none."""
        return self.borrow(now_s, 0) is not None

    def borrow(self, now_s: float, max_wait_s: float) -> float | None:
        """Take one token, if need be one that is still to come; return the seconds until it is there.

        None, and nothing taken, when that is more than `max_wait_s`. A later caller waits longer.
        """
        self._tokens = min(self._burst, self._tokens + (now_s - self._stamp_s) * self._per_s)
        self._stamp_s = now_s
        wait_s = max(0.0, (1 - self._tokens) / self._per_s)
        if wait_s > max_wait_s:
            return None
        self._tokens -= 1
        return wait_s

    def wait_s(self, now_s: float) -> float:
        """Return how long it takes until there is a token, if no other caller takes it: 0 when there is one."""
        return max(0.0, (1 - self._tokens) / self._per_s - (now_s - self._stamp_s))
