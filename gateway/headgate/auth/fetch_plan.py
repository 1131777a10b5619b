"""Plans the fetches of an issuer's keys. No I/O.

In: the start and outcome of each fetch, and the ids of unknown keys, with the monotonic time. Out: how long jwks.py waits
before the next fetch, whether the known keys are still valid, and whether a key may still arrive.

Rules. 1. After a failed fetch the known keys stay valid for at most KEPT_S; the issuer may have withdrawn them. 2. An unknown key
id may still arrive until a fetch that began after the request for it has finished; after that it counts as absent for again_s.
3. A request never starts a fetch sooner than again_s after the previous one, nor before a retry is due.
"""

from __future__ import annotations

import random
from collections.abc import Callable

REFRESH_S = 300.0
# The earliest that an unknown key id may start another fetch.
AGAIN_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
KEPT_S = 24 * 3600.0
# Unknown key ids remembered between two fetches; requests for more are answered with "try again".
MAX_ASKED, MAX_KEY_ID_CHARACTERS = 256, 255


class FetchPlan:
    """See the module.

    Args:
        again_s: AGAIN_S, except in tests.
        between: returns a random number between two, so that gateways started together do not fetch together.

    Attributes:
        has_set: whether the known keys are valid.
        is_failing: whether the last fetch brought no set.
    """

    def __init__(self, again_s: float = AGAIN_S, between: Callable[[float, float], float] = random.uniform) -> None:
        self.has_set, self.is_failing = False, True
        self._again_s, self._between = again_s, between
        self._retry_s = FIRST_RETRY_S
        self._began_s = self._brought_s = 0.0
        self._asked: set[str] = set()  # requested since the last fetch began
        self._asked_before: set[str] = set()  # requested before it began
        self._absent: frozenset[str] = frozenset()
        self._absent_until_s = 0.0

    def may_bring(self, key_id: str, now_s: float) -> bool:
        """Return whether a fetch may still bring an unknown key, and record the request for it."""
        if len(key_id) > MAX_KEY_ID_CHARACTERS or (key_id in self._absent and now_s < self._absent_until_s):
            return False
        if len(self._asked) < MAX_ASKED:
            self._asked.add(key_id)
        return True

    def begin(self, now_s: float) -> None:
        self._began_s = now_s
        self._asked_before, self._asked = self._asked, set()

    def brought(self, now_s: float) -> None:
        """Record a fetched set. Keys requested before the fetch began and not in the set are absent."""
        self.has_set, self.is_failing = True, False
        self._brought_s, self._retry_s = now_s, FIRST_RETRY_S
        self._absent, self._absent_until_s = frozenset(self._asked_before), now_s + self._again_s

    def failed(self, now_s: float) -> bool:
        """Record a failed fetch; return whether the known keys are no longer valid."""
        is_outdated = self.has_set and now_s - self._brought_s > KEPT_S
        self._asked |= self._asked_before
        self.has_set, self.is_failing = self.has_set and not is_outdated, True
        return is_outdated

    def next_retry_s(self) -> float:
        """Return the delay after a failed fetch, longer each time and regardless of requests."""
        wait_s, self._retry_s = self._retry_s, min(self._retry_s * 2, LAST_RETRY_S)
        return wait_s * self._between(0.5, 1.0)

    def refresh_s(self) -> float:
        """Return the delay after a successful fetch without further requests."""
        return REFRESH_S * self._between(0.8, 1.0)

    def earliest_s(self, now_s: float) -> float:
        """Return how long until a request may start another fetch."""
        return max(0.0, self._began_s + self._again_s - now_s)
