"""The keeper of several workers: a process beside their process manager that owns the private Redis and the consumers.

In: settings by the environment, and the configuration file of the consumers, if they run. Out: the URL of the private Redis, once
it answers. The process manager has a handle of it (`Keeper`); it forks, so nothing of gevent and no thread may live in it, and
the parts that look after Redis and the consumers need both. The keeper ends when the last process that holds the other end of
its pipe is gone: the process manager, those that replace it on SIGUSR2, and their workers. However they end, Redis ends after
them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from headgate.settings import PREFIX, environment

# Passed on to the process that replaces this one on SIGUSR2: the pipe's descriptor, the keeper's process id, and
# whether Redis is private.
_PASSED_ON = "_HEADGATE_KEEPER"
_REDIS_URL = f"{PREFIX}REDIS_URL"
# Redis is given so long to end behind the workers, and the consumers before it.
END_DEADLINE_S = 30.0
LOOK_S = 0.05
PAUSE_S = 1.0


class NotKept(Exception):
    """The keeper could not start what it keeps. It has told why."""


class Keeper:
    """The keeper, as the process manager sees it; `redis_url` of what it has started, or None."""

    def __init__(self, arguments: Sequence[str], *, redis_is_private: bool) -> None:
        """Start a keeper, or take over that of the process that this one replaces.

        It looks whether Redis answers, and ends at once when it has nothing to keep.

        Args:
            arguments: the configuration file of the consumers, if they run.
            redis_is_private: it is to start a Redis.

        Raises:
            NotKept: it could not start; it has told why.
        """
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._started_s = time.monotonic()
        self.redis_url: str | None = None
        environ = environment()
        if passed_on := environ.get(_PASSED_ON):
            pipe, process_id, private = passed_on.split(":")
            self._pipe, self._process_id, self._redis_is_private = int(pipe), int(process_id), private == "private"
            self.redis_url = environ.get(_REDIS_URL)
        else:
            self._redis_is_private = redis_is_private
            self._start()

    @property
    def keeps(self) -> bool:
        """Whether there is anything to keep."""
        return self._redis_is_private or bool(self._arguments)

    def look(self) -> None:
        """Start the keeper again if it has died; at most once a second."""
        if not self.keeps or self._is_alive() or time.monotonic() - self._started_s < PAUSE_S:
            return
        os.close(self._pipe)
        with suppress(NotKept):
            self._start()

    def close(self) -> None:
        """Let the keeper end, and wait for it. Only in the process that owns it."""
        if os.getpid() != self._owner:
            return
        os.close(self._pipe)
        environment().pop(_PASSED_ON, None)
        if self._process is None:
            return
        try:
            self._process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        reading, self._pipe = os.pipe()
        os.set_inheritable(self._pipe, True)
        told, telling = os.pipe()
        try:
            environ = dict(environment())
            if self._redis_is_private:
                environ.pop(_REDIS_URL, None)  # of the one that it has started before
            command = [sys.executable, "-m", "headgate.cli.keeper", str(telling), *self._arguments]
            # A session of its own: Ctrl-C in a terminal is for the process manager, behind which the keeper ends.
            self._process = subprocess.Popen(command, env=environ, stdin=reading, pass_fds=[telling], start_new_session=True)
        finally:
            os.close(reading)
            os.close(telling)
        with os.fdopen(told) as lines:
            line = lines.readline()
        if not line:
            self._process.wait()
            raise NotKept
        self.redis_url = line.strip() or None
        self._process_id = self._process.pid
        if self.keeps:
            environment()[_PASSED_ON] = f"{self._pipe}:{self._process_id}:{'private' if self._redis_is_private else 'given'}"

    def _is_alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        try:
            os.kill(self._process_id, 0)
        except ProcessLookupError:
            return False
        return True
