"""Restarts the private Redis of a gateway when it dies by itself, such as when killed for its memory or by a crash.

In: the server that the gateway has started (redis/embedded.py). Out: the same server, started with the data that it left, in a
new epoch. Nothing else restarts it: without this the gateway would wait for Redis forever.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

import structlog

from headgate.errors import HeadgateError
from headgate.runtime.loop import Greenlet, sleep, spawn
from headgate.runtime.metrics import PRIVATE_REDIS_STARTED_AGAIN

# How long to wait after its end, because `EmbeddedRedis.crash` restarts the server itself.
LOOK_S = 0.2
# The pauses grow while a server dies at its start, such as with a full disk, until one has run for a while.
FIRST_PAUSE_S, LAST_PAUSE_S, STEADY_S = 0.1, 10.0, 60.0

log = structlog.get_logger("headgate.private_redis")


class Server(Protocol):
    """The private server."""

    @property
    def is_running(self) -> bool:
        """Whether its process is alive."""

    def wait(self) -> None:
        """Wait until its process ends."""

    def start_again(self) -> None:
        """Start it, and wait until it answers. Raises HeadgateError if it does not."""

    def last_words(self) -> str:
        """Return the last line of its log."""


class RedisKeeper:
    """See the module. `wait` and `now_s` are the clock."""

    def __init__(self, server: Server, wait: Callable[[float], None] = sleep, now_s: Callable[[], float] = monotonic) -> None:
        self._server = server
        self._wait, self._now_s = wait, now_s
        self._pause_s = FIRST_PAUSE_S
        self._started_s = now_s()
        self._greenlet: Greenlet | None = None

    def start(self) -> None:
        """Watch the server from now on."""
        self._greenlet = spawn(self._keep)

    def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def look(self) -> None:
        """Start the server again if it has died. Waits until it answers or has died again."""
        if self._server.is_running:
            return
        if self._now_s() - self._started_s >= STEADY_S:
            self._pause_s = FIRST_PAUSE_S
        log.error("the private Redis died", last_words=self._server.last_words(), starts_again_in_s=self._pause_s)
        self._wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        try:
            self._server.start_again()
        except HeadgateError as error:
            log.error("the private Redis could not be started again", reason=error.message)
        else:
            PRIVATE_REDIS_STARTED_AGAIN.inc()
            log.warning("the private Redis runs again")
        self._started_s = self._now_s()

    def _keep(self) -> None:
        while True:
            self._server.wait()  # no polling, which would wake an idle process
            self._wait(LOOK_S)
            self.look()
