"""The watch on places: it tells the other processes how many clients each user has here, and asks how many they have.

In: `Places` (auth/places.py), which says what to tell and to ask. Out: a look at Redis (redis/places.py) soon after a join, at
most one each GAP_S, and every RENEW_EVERY_S without one; one greenlet over one connection, off the hot path.

Rules. 1. Redis that cannot be reached costs a line in the log; each process keeps its share then. 2. A process whose counts Redis
has lost (a flush, a lease that has ended), or may not have heard, tells all of them anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import structlog

from headgate.auth.places import Places
from headgate.errors import HeadgateError
from headgate.redis.client import open_client
from headgate.redis.places import LEASE_S, leave, look
from headgate.runtime.loop import Lock, Signal, sleep, spawn

log = structlog.get_logger("headgate.places")

RENEW_EVERY_S = LEASE_S / 3
GAP_S = 0.25
TIMEOUT_S = 2.0
# A client about whom it is not known whether there is room waits for a look, for so long.
LOOK_WAIT_S = 1.0


class PlacesWatch:
    """See the module. `counts` returns the clients of every user of this process."""

    def __init__(self, redis_url: str, places: Places, counts: Callable[[], Mapping[str, int]]) -> None:
        self._id = secrets.token_hex(8)
        self._client = open_client(redis_url, timeout_s=TIMEOUT_S, max_connections=1)
        self._places, self._counts = places, counts
        self._started = self._closed = False
        self._wakeup, self._looked = Signal(), Signal()
        self._lock = Lock()
        self._anew, self._was_known = True, False
        self._logged = ""
        places.wanted = self._wakeup.set

    def start(self) -> None:
        """Begin, if there is a limit. Idempotent."""
        if not self._started and self._places.max_clients:
            self._started = True
            self._id = secrets.token_hex(8)  # of this process, whichever one made the gateway before a fork
            spawn(self._run)

    def close(self) -> None:
        """Give the places back, and close the connection. Idempotent. Waits for Redis, for about TIMEOUT_S at most."""
        if self._started and not self._closed:
            self._closed = True
            self._wakeup.set()
            try:
                with self._lock:
                    leave(self._client, self._id)
            except HeadgateError:
                log.debug("places not given back")  # they end with the lease
        self._closed = True
        self._client.close()

    def next_look(self) -> bool:
        """Wait for the end of a look, for LOOK_WAIT_S at most; return whether there was one."""
        return self._started and self._looked.wait(LOOK_WAIT_S)

    def look(self) -> None:
        """Look once; a fault is logged once. Waits for Redis."""
        question = self._places.next_question()
        if self._anew:
            question = question._replace(told={**dict.fromkeys(question.asked, 0), **self._counts()})
        anew, self._anew = self._anew, True
        try:
            found = look(self._client, self._id, question.told, question.asked, anew=anew)
        except HeadgateError as error:
            if error.message != self._logged and not self._closed:
                self._logged = error.message
                log.warning("places out of reach", error=error.message, effect="each process keeps its share")
            return
        self._logged = ""
        lost = self._was_known and not found.known
        self._places.heard(question, found.processes, found.others, lost=lost)
        looked, self._looked = self._looked, Signal()
        looked.set()
        self._was_known = True
        self._anew = lost and not anew
        if self._anew:
            self._wakeup.set()

    def _run(self) -> None:
        while not self._closed:
            self._wakeup.clear()
            try:
                with self._lock:
                    if not self._closed:
                        self.look()
            except Exception:
                # A fault of ours must not end the watch for good.
                log.exception("places watch failed")
            sleep(GAP_S)
            self._wakeup.wait(RENEW_EVERY_S - GAP_S)
