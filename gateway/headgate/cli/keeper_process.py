"""The keeper is a process next to the process manager of several workers. It owns the private Redis and the consumers.

In: settings from the environment, and the configuration file of the consumers, if they run. Out: the URL of the private Redis,
once it answers. The process manager has a handle (`Keeper`). Because it forks, it can hold no gevent and no thread, and the
parts that watch Redis and the consumers need both. The keeper ends when all processes with the other end of its pipe have
ended, which are the process manager, its replacements on SIGUSR2, and their workers. So Redis always ends after them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from headgate.settings.settings import PREFIX, environment

# Passed on to the process that replaces this one on SIGUSR2, with the pipe's descriptor, the keeper's process id, and whether
# Redis is private.
_PASSED_ON = "_HEADGATE_KEEPER"
_REDIS_URL = f"{PREFIX}REDIS_URL"
# How long Redis may take to end after the workers, and the consumers before it.
END_DEADLINE_S = 30.0
POLL_S = 0.05
PAUSE_S = 1.0


class NotKept(Exception):
    """The keeper could not start Redis or the consumers. It has reported why."""


class Keeper:
    """The keeper, as the process manager sees it. `redis_url` is of the Redis that it has started, or None."""

    def __init__(self, arguments: Sequence[str], *, redis_is_private: bool) -> None:
        """Start a keeper, or take over the keeper of the process that this one replaces.

        It checks whether Redis answers, and ends at once if it has nothing to run. Raises NotKept if the start failed, after
        reporting why.

        Args:
            arguments: the configuration file of the consumers, if they run.
            redis_is_private: whether it starts a Redis.
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
        return self._redis_is_private or bool(self._arguments)

    def check(self) -> None:
        """Start the keeper again if it has died, at most once a second."""
        if not self.keeps or self._is_alive() or time.monotonic() - self._started_s < PAUSE_S:
            return
        os.close(self._pipe)
        with suppress(NotKept):
            self._start()

    def leave(self) -> None:
        """Leave the keeper to the process that replaces this one. `close` then does not wait for it."""
        self._process = None

    def close(self) -> None:
        """Let the keeper end, and wait for it. Only in its owner process."""
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
        url_reader, url_writer = os.pipe()
        try:
            environ = dict(environment())
            if self._redis_is_private:
                environ.pop(_REDIS_URL, None)  # the URL of its previous private Redis
            command = [sys.executable, "-m", "headgate.cli.keeper", str(url_writer), *self._arguments]
            # A separate session, so that Ctrl-C in a terminal reaches only the process manager, after which the keeper ends.
            self._process = subprocess.Popen(command, env=environ, stdin=reading, pass_fds=[url_writer], start_new_session=True)
        finally:
            os.close(reading)
            os.close(url_writer)
        with os.fdopen(url_reader) as lines:
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
