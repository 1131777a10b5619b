"""Restarts the private Redis of a gateway when it dies by itself, such as when killed for its memory or by a crash.

In: the server that the gateway has started (redis/embedded.py). Out: the same server, started with the data that it left, in a
new epoch. Nothing else restarts it: without this the gateway would wait for Redis forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import structlog

from headgate.errors import HeadgateError
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.runtime.loop import sleep, spawn
from headgate.runtime.metrics import PRIVATE_REDIS_STARTED_AGAIN
from headgate.runtime.operator_lines import say
from headgate.settings.settings import PREFIX, Settings, environment

# How long to wait after its end, because `EmbeddedRedis.crash` restarts the server itself.
POLL_S = 0.2
# The pauses grow while a server dies at its start, such as with a full disk, until one has run for a while.
FIRST_PAUSE_S, LAST_PAUSE_S, STEADY_S = 0.1, 10.0, 60.0

log = structlog.get_logger("headgate.private_redis")


@contextmanager
def private_redis(settings: Settings, meanwhile: Callable[[], object] = lambda: None) -> Iterator[EmbeddedRedis]:
    """Run a private Redis, kept alive, to which the environment leads; arguments and errors as of `start_private_redis`."""
    with start_private_redis(settings.data_dir, meanwhile=meanwhile) as private:
        environment()[f"{PREFIX}REDIS_URL"] = private.url
        keeping = spawn(RedisKeeper(private).keep)
        say(f"started a private {private.description} in {settings.data_dir}")
        try:
            yield private
        finally:
            keeping.kill()


class RedisKeeper:
    """See the module. `wait` and `now_s` are the clock."""

    def __init__(
        self, server: EmbeddedRedis, wait: Callable[[float], None] = sleep, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._server = server
        self._wait, self._now_s = wait, now_s
        self._pause_s = FIRST_PAUSE_S
        self._started_s = now_s()

    def keep(self) -> None:
        """Watch the server until the greenlet is killed."""
        while True:
            self._server.wait()  # no polling, which would wake an idle process
            self._wait(POLL_S)
            self.check()

    def check(self) -> None:
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
