"""Token keys from a configured URL (JWKS, RFC 7517), fetched in the background and never on behalf of a token.

In: HEADGATE_TOKEN_JWKS_URL. Out: `on_keys(keys)`, from its own greenlet, after every successful fetch, and with an empty list
when the known keys are no longer valid. A token can cause another fetch (fetch_plan.py) but never chooses the address.

Rules. 1. One GET at a time, without redirects or proxies, of bounded size, under one deadline from name resolution to the last
byte. 2. A set replaces the previous one. fetch_plan.py has the other rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from headgate.runtime.http_exchange import exchange
from headgate.runtime.loop import Greenlet, Signal, deadline, sleep, spawn
from headgate.runtime.metrics import JWKS_FETCHES
from headgate.settings.addresses.http_target import read_target

from .fetch_plan import AGAIN_S, FetchPlan
from .key_sets import read_jwks
from .keys import Key

log = structlog.get_logger("headgate.jwks")

TIMEOUT_S = 10.0
MAX_BYTES = 256 * 1024


class Jwks:
    """See the module.

    Args:
        again_s: AGAIN_S, except in tests.
        get: fetches once, within TIMEOUT_S.
        wait: suspends the greenlet for a number of seconds.
    """

    def __init__(
        self,
        url: str,
        on_keys: Callable[[list[Key]], None],
        *,
        again_s: float = AGAIN_S,
        get: Callable[[str], bytes] | None = None,
        now_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._url, self._on_keys = url, on_keys
        self._get, self._now_s, self._wait = get or fetch, now_s, wait
        self._plan = FetchPlan(again_s)
        self._wanted = Signal()
        self._greenlet: Greenlet | None = None
        self._closed = False

    def start(self) -> None:
        """Start fetching. Idempotent."""
        if self._greenlet is None:
            self._greenlet = spawn(self._run)

    def may_bring(self, key_id: str) -> bool:
        """Return whether a fetch may still bring an unknown key, and request one. Never waits."""
        possible = self._plan.may_bring(key_id, self._now_s())
        if possible:
            self._wanted.set()
        return possible

    @property
    def has_set(self) -> bool:
        """Whether a fetched set is valid. Without one, no token names a known key."""
        return self._plan.has_set

    def refresh(self) -> None:
        """Request a fetch at the earliest allowed time. Never waits."""
        self._wanted.set()

    def close(self) -> None:
        """Stop fetching. Idempotent; the greenlet ends by itself."""
        self._closed = True
        self._wanted.set()

    # -- private --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._wanted.clear()
            self._plan.begin(self._now_s())
            if not self._fetched():
                self._wait(self._plan.next_retry_s())
                continue
            self._wanted.wait(timeout=self._plan.refresh_s())
            if not self._closed:
                self._wait(self._plan.earliest_s(self._now_s()))

    def _fetched(self) -> bool:
        """Fetch once; pass on the keys, or log why there are none."""
        try:
            with deadline(TIMEOUT_S):
                keys = read_jwks(self._get(self._url))
        except (OSError, ValueError) as error:
            JWKS_FETCHES.labels("failed").inc()
            if self._plan.failed(self._now_s()):
                self._on_keys([])
            why = str(error) or type(error).__name__
            state = "the last fetch failed; an older set is active" if self.has_set else "no set of keys yet"
            log.warning("token keys could not be fetched", error=why[:200], state=state)
            return False
        if self._plan.is_failing:
            log.info("token keys fetched", keys=len(keys))
        self._plan.brought(self._now_s())
        JWKS_FETCHES.labels("ok").inc()
        self._on_keys(keys)
        return True


def fetch(url: str) -> bytes:
    """Return the body of one GET, up to MAX_BYTES. Waits; the caller sets the deadline.

    Raises OSError if the answer is incomplete or too large, and ValueError if the status is not 200 or the URL is invalid.
    """
    accept = {"Accept": "application/json, application/jwk-set+json"}
    with exchange("GET", read_target(url), accept, b"", TIMEOUT_S) as (head, read_body):
        if head.status != 200:
            raise ValueError(f"the answer is {head.status}, expected 200 (redirects are not followed)")
        return read_body(MAX_BYTES)
