"""The plan of fetching an issuer's keys: the state of its set, the time of the next fetch, the answer for an unknown key. No I/O.

In: the beginning and the outcome of each fetch, and the ids of unknown keys, with the time (monotonic). Out: how long jwks.py
waits, whether the known keys still count, and whether a key may be on its way.

Rules. 1. A failed fetch leaves the known keys active, for KEPT_S at most: after that nobody knows whether the issuer has
withdrawn them. 2. An unknown key id may be on its way until a fetch that began after it was asked for has come back; for the
again_s after that it is absent. 3. Asking makes no fetch begin sooner than again_s after the one before it, nor before the wait
for a retry is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum

from headgate.runtime.machine import Machine

REFRESH_S = 300.0
# After one fetch, the earliest that an unknown key id can bring about another.
AGAIN_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
KEPT_S = 24 * 3600.0
# Unknown key ids that are remembered between two fetches; more are told to try again.
MAX_ASKED, MAX_KEY_ID_CHARACTERS = 256, 255


class State(Enum):
    """The state of the issuer's keys."""

    EMPTY = "no set of keys yet"
    CURRENT = "the last fetch brought a set"
    FAILING = "the last fetch failed; an older set is active"


class Outcome(Enum):
    """The outcome of a fetch."""

    BROUGHT = "it brought a set"
    FAILED = "it failed"
    OUTDATED = "it failed, and the set is older than KEPT_S"


MACHINE = Machine(
    "keys of an issuer",
    {
        (State.EMPTY, Outcome.BROUGHT): State.CURRENT,
        (State.EMPTY, Outcome.FAILED): State.EMPTY,
        (State.CURRENT, Outcome.BROUGHT): State.CURRENT,
        (State.CURRENT, Outcome.FAILED): State.FAILING,
        (State.CURRENT, Outcome.OUTDATED): State.EMPTY,
        (State.FAILING, Outcome.BROUGHT): State.CURRENT,
        (State.FAILING, Outcome.FAILED): State.FAILING,
        (State.FAILING, Outcome.OUTDATED): State.EMPTY,
    },
)


class FetchPlan:
    """See the module.

    Args:
        again_s: AGAIN_S, but for tests.
        between: a random number between two, so that gateways that start together do not fetch together.
    """

    def __init__(self, again_s: float = AGAIN_S, between: Callable[[float, float], float] = random.uniform) -> None:
        self.state = State.EMPTY
        self._again_s, self._between = again_s, between
        self._retry_s = FIRST_RETRY_S
        self._began_s = self._brought_s = 0.0
        self._asked: set[str] = set()  # since the last fetch began
        self._asked_before: set[str] = set()  # before it began
        self._absent: frozenset[str] = frozenset()
        self._absent_until_s = 0.0

    def may_bring(self, key_id: str, now_s: float) -> bool:
        """Return whether a fetch may yet bring a key that is unknown, and remember that it was asked for."""
        if len(key_id) > MAX_KEY_ID_CHARACTERS or (key_id in self._absent and now_s < self._absent_until_s):
            return False
        if len(self._asked) < MAX_ASKED:
            self._asked.add(key_id)
        return True

    def begin(self, now_s: float) -> None:
        """A fetch begins."""
        self._began_s = now_s
        self._asked_before, self._asked = self._asked, set()

    def brought(self, now_s: float) -> None:
        """The fetch brought a set: every key that was asked for before it began, and that it did not bring, is absent."""
        self._move(Outcome.BROUGHT)
        self._brought_s, self._retry_s = now_s, FIRST_RETRY_S
        self._absent, self._absent_until_s = frozenset(self._asked_before), now_s + self._again_s

    def failed(self, now_s: float) -> bool:
        """The fetch failed; return whether the known keys count no longer."""
        outdated = self.state is not State.EMPTY and now_s - self._brought_s > KEPT_S
        self._asked |= self._asked_before
        self._move(Outcome.OUTDATED if outdated else Outcome.FAILED)
        return outdated

    def next_retry_s(self) -> float:
        """Return how long to wait after a fetch that failed, whatever is asked for meanwhile; longer each time."""
        wait_s, self._retry_s = self._retry_s, min(self._retry_s * 2, LAST_RETRY_S)
        return wait_s * self._between(0.5, 1.0)

    def refresh_s(self) -> float:
        """Return how long to wait after a fetch that brought a set, if nobody asks for another."""
        return REFRESH_S * self._between(0.8, 1.0)

    def earliest_s(self, now_s: float) -> float:
        """Return how long it is until somebody who asks may bring about another fetch."""
        return max(0.0, self._began_s + self._again_s - now_s)

    def _move(self, outcome: Outcome) -> None:
        self.state = MACHINE.after(self.state, outcome)
