"""The other processes that `headgate serve` watches, which are `headgate consume` and a private Redis.

In: the arguments of that command, with settings in the environment, and the server started by the gateway (redis/embedded.py).
Out: nothing, because both write to the same standard output and error. The consumers are started again when they end, with
growing delays, and end when their parent ends for any reason (see `--parent` of the command). Redis is started again with its
data, in a new epoch, when it dies by itself, for example when killed for its memory or by a crash. Without this the gateway
would wait for Redis for ever. Waits let the loop run (the caller has patched the standard library).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

import structlog

from headgate.errors import HeadgateError
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.runtime.loop import Greenlet, Signal, sleep, spawn
from headgate.runtime.metrics import CONSUMERS_PROCESS_ENDED, PRIVATE_REDIS_STARTED_AGAIN
from headgate.runtime.operator_lines import complain, say
from headgate.settings.settings import PREFIX, Settings, environment

RESTART_FIRST_S, RESTART_LAST_S = 1.0, 30.0
# After this running time of a process, its end counts as unrelated to the previous end.
STEADY_S = 60.0
# Longer than the consumers' own drain (see runner).
STOP_DEADLINE_S = 15.0


class ConsumersProcess:
    """One child process at a time, while the context is open.

    Leaving lets it finish its work and waits at most STOP_DEADLINE_S; then it is killed. `arguments` are of `headgate consume`.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "headgate", "consume", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = Signal()
        self._watcher: Greenlet | None = None

    def check(self) -> bool:
        """Let the command check the configuration without consuming; if this returns False, it has reported the faults."""
        return subprocess.run([*self._command, "--check", "--file-only"], stdout=subprocess.DEVNULL, check=False).returncode == 0

    def __enter__(self) -> ConsumersProcess:
        self._watcher = spawn(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._process is not None:
            self._process.terminate()
        if self._watcher is not None:
            self._watcher.join(STOP_DEADLINE_S)
            if self._process is not None:
                self._process.kill()
            self._watcher.join()

    def _watch(self) -> None:
        pause_s = RESTART_FIRST_S
        while True:
            started = time.monotonic()
            outcome = self._run()
            if time.monotonic() - started > STEADY_S:
                pause_s = RESTART_FIRST_S
            if self._closing.is_set():
                return
            CONSUMERS_PROCESS_ENDED.inc()
            complain(f"the consumers {outcome}; starting them again in {pause_s:g} s")
            if self._closing.wait(pause_s):
                return
            pause_s = min(pause_s * 2, RESTART_LAST_S)

    def _run(self) -> str:
        """Run the process once; return how it ended."""
        # A separate session, so that Ctrl-C in a terminal reaches only the gateway, which then ends this process.
        command = [*self._command, "--parent", str(os.getpid())]
        try:
            process = self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        if self._closing.is_set():  # since it was started
            process.terminate()
        return f"ended with status {process.wait()}"


# How long to wait after its end, because `EmbeddedRedis.crash` restarts the server itself.
POLL_S = 0.2
# The pauses grow while a server dies at its start, such as with a full disk, until one has run for a while.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 10.0

log = structlog.get_logger("headgate.private_redis")


@contextmanager
def private_redis(settings: Settings, meanwhile: Callable[[], object] = lambda: None) -> Iterator[EmbeddedRedis]:
    """Run a private Redis, restart it if it dies, and set it in the environment. Otherwise as `start_private_redis`."""
    with start_private_redis(settings.data_dir, meanwhile=meanwhile) as private:
        environment()[f"{PREFIX}REDIS_URL"] = private.url
        keeping = spawn(keep, private)
        say(f"started a private {private.description} in {settings.data_dir}")
        try:
            yield private
        finally:
            keeping.kill()


def keep(server: EmbeddedRedis, wait: Callable[[float], None] = sleep, now_s: Callable[[], float] = monotonic) -> None:
    """Start the private Redis again whenever it dies, until the greenlet is killed. `wait` and `now_s` are the clock."""
    pause_s, started_s = FIRST_PAUSE_S, now_s()
    while True:
        server.wait()  # no polling, which would wake an idle process
        wait(POLL_S)
        if server.is_running:
            continue
        if now_s() - started_s >= STEADY_S:
            pause_s = FIRST_PAUSE_S
        log.error("the private Redis died", last_words=server.last_words(), starts_again_in_s=pause_s)
        wait(pause_s)
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
        try:
            server.start_again()
        except HeadgateError as error:
            log.error("the private Redis could not be started again", reason=error.message)
        else:
            PRIVATE_REDIS_STARTED_AGAIN.inc()
            log.warning("the private Redis runs again")
        started_s = now_s()
