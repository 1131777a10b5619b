"""Token keys from a configured URL (JWKS, RFC 7517), fetched in the background and never on behalf of a token.

In: HEADGATE_TOKEN_JWKS_URL, and the ids of unknown keys. Out: `on_keys(keys)`, from its own greenlet, after every successful
fetch, and with an empty list when the known keys are no longer valid. A token can cause another fetch but never chooses the
address.

Rules. 1. One GET at a time, without redirects or proxies, of bounded size, under one deadline from name resolution to the last
byte. 2. A set replaces the previous one. After a failed fetch the known keys stay valid for at most KEPT_S; the issuer may have
withdrawn them. 3. An unknown key id may still arrive until a fetch that began after the request for it has finished; after that
it counts as absent for AGAIN_S. 4. A request never starts a fetch sooner than AGAIN_S after the previous one, nor before a retry
is due.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import structlog

from headgate.runtime.http_exchange import open_connection
from headgate.runtime.loop import Greenlet, Signal, deadline, sleep, spawn
from headgate.runtime.metrics import JWKS_FETCHES
from headgate.settings.addresses.http_target import read_target

from .keys import MAX_KEY_ID_CHARACTERS, TokenKey, read_jwks

log = structlog.get_logger("headgate.jwks")

TIMEOUT_S = 10.0
MAX_BYTES = 256 * 1024
REFRESH_S = 300.0
# The earliest that an unknown key id may start another fetch.
AGAIN_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
KEPT_S = 24 * 3600.0
# Unknown key ids remembered between two fetches; requests for more are answered with "try again".
MAX_ASKED = 256


class Jwks:
    """See the module.

    Args:
        get: fetches once, within TIMEOUT_S.
        now_s: monotonic.
        wait: suspends the greenlet for a number of seconds.

    Attributes:
        has_set: whether a fetched set is valid. Without one, no token names a known key.
    """

    def __init__(
        self,
        url: str,
        on_keys: Callable[[list[TokenKey]], None],
        *,
        get: Callable[[str], bytes] | None = None,
        now_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._url, self._on_keys = url, on_keys
        self._get, self._now_s, self._wait = get or fetch, now_s, wait
        self.has_set, self._is_failing = False, True
        self._began_s = self._brought_s = 0.0
        self._retry_s = FIRST_RETRY_S
        self._asked: set[str] = set()  # requested since the last fetch began
        self._absent: set[str] = set()  # requested before the last fetch that brought a set began, and not in that set
        self._wanted = Signal()
        self._greenlet: Greenlet | None = None
        self._closed = False

    def start(self) -> None:
        """Start fetching. Idempotent."""
        if self._greenlet is None:
            self._greenlet = spawn(self._run)

    def may_bring(self, key_id: str) -> bool:
        """Return whether a fetch may still bring an unknown key, and request one. Never waits."""
        is_absent = key_id in self._absent and self._now_s() < self._brought_s + AGAIN_S
        if is_absent or len(key_id) > MAX_KEY_ID_CHARACTERS:
            return False
        if len(self._asked) < MAX_ASKED:
            self._asked.add(key_id)
        self._wanted.set()
        return True

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
            self._began_s = self._now_s()
            # Gateways started together must not fetch together.
            if not self._fetched():
                self._wait(self._retry_s * random.uniform(0.5, 1.0))
                self._retry_s = min(self._retry_s * 2, LAST_RETRY_S)
                continue
            self._retry_s = FIRST_RETRY_S
            self._wanted.wait(timeout=REFRESH_S * random.uniform(0.8, 1.0))
            if not self._closed:
                self._wait(max(0.0, self._began_s + AGAIN_S - self._now_s()))

    def _fetched(self) -> bool:
        """Fetch once; pass on the keys, or log why there are none."""
        asked, self._asked = self._asked, set()
        try:
            with deadline(TIMEOUT_S):
                keys = read_jwks(self._get(self._url))
        except (OSError, ValueError) as error:
            JWKS_FETCHES.labels("failed").inc()
            self._asked = set([*asked, *self._asked][:MAX_ASKED])
            self._is_failing = True
            if self.has_set and self._now_s() - self._brought_s > KEPT_S:
                self.has_set = False
                self._on_keys([])
            state = "the last fetch failed; an older set is active" if self.has_set else "no set of keys yet"
            log.warning("token keys could not be fetched", error=(str(error) or type(error).__name__)[:200], state=state)
            return False
        if self._is_failing:
            log.info("token keys fetched", keys=len(keys))
        self.has_set, self._is_failing = True, False
        self._brought_s, self._absent = self._now_s(), asked
        JWKS_FETCHES.labels("ok").inc()
        self._on_keys(keys)
        return True


def fetch(url: str) -> bytes:
    """Return the body of one GET, up to MAX_BYTES. Waits; the caller sets the deadline.

    Raises OSError if the answer is incomplete or too large, and ValueError if the status is not 200 or the URL is invalid.
    """
    target, deadline_s = read_target(url), time.monotonic() + TIMEOUT_S
    headers = {"Host": target.authority, "Connection": "close", "Accept": "application/json, application/jwk-set+json"}
    with open_connection(target.scheme, target.host, target.port, deadline_s) as connection:
        head = connection.request("GET", target.path, headers, b"", deadline_s)
        if head.status != 200:
            raise ValueError(f"the answer is {head.status}, expected 200 (redirects are not followed)")
        return connection.read_body(MAX_BYTES, deadline_s)
