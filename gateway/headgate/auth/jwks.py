"""Keys of tokens from a URL that the operator configures (JWKS, RFC 7517): fetched in the background, never for a token.

In: HEADGATE_TOKEN_JWKS_URL. Out: `on_keys(keys)`, from a greenlet of its own, after every fetch that brought some. A token
decides at most *whether* there is another fetch, and that at most every AGAIN_S; never where from.

Rules. 1. One GET at a time, without redirects or proxies, under one deadline from the name's resolution to the last byte, and of
bounded size. 2. A set replaces the one before it. 3. When a fetch fails, the known keys stay active, for KEPT_S at
most: after that nobody knows whether the issuer has withdrawn them. 4. An unknown key id is `keys_pending` until a fetch that
began after it was asked for has come back, and `unknown_key` for the AGAIN_S after that.
"""

from __future__ import annotations

import http.client
import random
import ssl
import time
from collections.abc import Callable
from enum import Enum
from urllib.parse import urlsplit

import structlog

from headgate.metrics import JWKS_FETCHES
from headgate.runtime.loop import Greenlet, Signal, deadline, sleep, spawn

from .key_sets import read_jwks
from .keys import Key

log = structlog.get_logger("headgate.jwks")

TIMEOUT_S = 10.0
MAX_BYTES = 256 * 1024
REFRESH_S = 300.0
# After one fetch, the earliest that an unknown key id can bring about another.
AGAIN_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
KEPT_S = 24 * 3600.0
# Unknown key ids that are remembered between two fetches; more are told to try again.
MAX_ASKED, MAX_KEY_ID = 256, 255


class State(Enum):
    """The state of the issuer's keys. EMPTY → CURRENT ⇄ FAILING → EMPTY (after KEPT_S)."""

    EMPTY = "no set of keys yet"
    CURRENT = "the last fetch brought a set"
    FAILING = "the last fetch failed; an older set is in force"


class Jwks:
    """See the module. `again_s` is AGAIN_S, but for tests."""

    def __init__(self, url: str, on_keys: Callable[[list[Key]], None], *, again_s: float = AGAIN_S) -> None:
        self.state = State.EMPTY
        self._url, self._on_keys, self._again_s = url, on_keys, again_s
        self._wanted = Signal()
        self._asked: set[str] = set()
        self._absent: frozenset[str] = frozenset()
        self._absent_until_s = 0.0
        self._brought_s = 0.0
        self._greenlet: Greenlet | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to fetch. Idempotent."""
        if self._greenlet is None:
            self._greenlet = spawn(self._run)

    def may_bring(self, key_id: str) -> bool:
        """Return whether a fetch may yet bring a key that is unknown, and ask for one. Never waits."""
        if len(key_id) > MAX_KEY_ID or (key_id in self._absent and time.monotonic() < self._absent_until_s):
            return False
        if len(self._asked) < MAX_ASKED:
            self._asked.add(key_id)
        self._wanted.set()
        return True

    def refresh(self) -> None:
        """Ask for a fetch, as soon as there may be one. Never waits."""
        self._wanted.set()

    def close(self) -> None:
        """Stop fetching. Idempotent; the greenlet ends by itself."""
        self._closed = True
        self._wanted.set()

    # -- private --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._closed:
            began_s = time.monotonic()
            self._wanted.clear()
            asked, self._asked = self._asked, set()
            if not self._fetched():
                # Nobody's asking makes it try sooner.
                self._asked |= asked
                sleep(retry_s * random.uniform(0.5, 1.0))
                retry_s = min(retry_s * 2, LAST_RETRY_S)
                continue
            retry_s = FIRST_RETRY_S
            self._absent, self._absent_until_s = frozenset(asked), time.monotonic() + self._again_s
            self._wanted.wait(timeout=REFRESH_S * random.uniform(0.8, 1.0))
            if not self._closed:
                sleep(max(0.0, began_s + self._again_s - time.monotonic()))

    def _fetched(self) -> bool:
        """Fetch once; hand over the keys, or say in the log why there are none."""
        try:
            with deadline(TIMEOUT_S):
                keys = read_jwks(fetch(self._url))
        except (OSError, http.client.HTTPException, ValueError) as error:
            JWKS_FETCHES.labels("failed").inc()
            self._failed(str(error) or type(error).__name__)
            return False
        if self.state is not State.CURRENT:
            log.info("token keys fetched", keys=len(keys))
        self.state, self._brought_s = State.CURRENT, time.monotonic()
        JWKS_FETCHES.labels("ok").inc()
        self._on_keys(keys)
        return True

    def _failed(self, why: str) -> None:
        if self.state is State.CURRENT:
            self.state = State.FAILING
        if self.state is State.FAILING and time.monotonic() - self._brought_s > KEPT_S:
            self.state = State.EMPTY
            self._on_keys([])
        log.warning("token keys could not be fetched", error=why[:200], state=self.state.value)


def fetch(url: str) -> bytes:
    """Return the body of one GET, at most MAX_BYTES of it. Waits; the caller has the deadline.

    Raises:
        OSError, HTTPException: there is no answer.
        ValueError: it is not 200, or too large.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=ssl.create_default_context())
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json, application/jwk-set+json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"the answer is {answer.status}, expected 200 (redirects are not followed)")
        body = answer.read(MAX_BYTES + 1)
    finally:
        connection.close()
    if len(body) > MAX_BYTES:
        raise ValueError(f"the answer is larger than {MAX_BYTES} bytes")
    return body
