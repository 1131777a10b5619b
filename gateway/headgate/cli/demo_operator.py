"""The operator of a demo: restarts this gateway, and has its private Redis lose the end of its log, when the page asks for it.

In: the private Redis that this process has started; what the demo (headgate_server/demo/trouble.py) asks for. Out: for a
restart, the same process with a fresh program (exec): the drain is over, Redis has ended in order, and the listening socket is
passed on as systemd passes one, so that browsers wait in its queue and none is refused. For a loss, the private Redis, killed and
started from what its file held a moment ago. `of` makes one only where trouble can hurt nobody else: the demo of this command
on loopback, with a Redis that this process has started itself.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from time import monotonic
from typing import Any

from headgate.addresses.origins import is_loopback
from headgate.redis.client import open_client
from headgate.redis.embedded import EmbeddedRedis, Moment
from headgate.redis.log_range import LogRange
from headgate.runtime import standard_streams
from headgate.runtime.loop import Greenlet, sleep, spawn
from headgate.settings import Settings

from .systemd import FIRST_DESCRIPTOR

# How often the size of the file is noted, and for how long it is remembered.
LOOK_S = 0.05
REMEMBERED_S = 3.0
TIMEOUT_S = 5.0
# The descriptor of a file with what the demo wants to know again after a restart, in the environment of the fresh program: not a
# setting. In the environment itself a text has at most 128 KiB.
_CARRIED = "_HEADGATE_DEMO_CARRIED"


class DemoOperator:
    """See the module.

    Attributes:
        carried: what the demo left for itself before the restart that this process comes from; empty otherwise.
        restarting: whether the process is to be restarted, and not only to end.
    """

    def __init__(self, private: EmbeddedRedis, namespace: str, carried: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.carried = carried
        self.restarting = False
        self._private, self._namespace, self._environ = private, namespace, environ
        self._moments: deque[tuple[float, Moment]] = deque(maxlen=round(REMEMBERED_S / LOOK_S))
        self._while_away: Callable[[], Mapping[str, object]] = dict
        self._left: Mapping[str, object] = {}
        self._stop: Callable[[], None] | None = None
        self._listener: int | None = None
        self._watch: Greenlet | None = None

    @staticmethod
    def of(settings: Settings, private: EmbeddedRedis | None, start: Start) -> DemoOperator | None:
        """Return the operator of a gateway, where there may be one."""
        if private is None or not settings.demo or not start.of_the_demo or not is_loopback(settings.host):
            return None
        return DemoOperator(private, settings.namespaces[0], start.carried, start.environ)

    def start(self, stop: Callable[[], None]) -> None:
        """Take requests from now on; `stop` begins to end the process."""
        self._stop = stop
        self._watch = spawn(self._remember)

    def restart(self, while_away: Callable[[], Mapping[str, object]]) -> None:
        """Restart the gateway soon. `while_away` is called when every browser is disconnected, and returns what is to be carried
        over, as JSON can hold it."""
        assert self._stop is not None, "not started"
        self._while_away, self.restarting = while_away, True
        self._stop()

    def lose_end(self, seconds: float) -> tuple[int, int]:
        """Have Redis go back by so many seconds, or to the start of this process; return the newest offset before and after.

        Raises:
            BusRefused, BusUnavailable: as `EmbeddedRedis.crash`.
        """
        before = self._newest()
        since = monotonic() - seconds
        past = [moment for at, moment in self._moments if at <= since]
        self._private.crash(past[-1] if past else self._moments[0][1])
        self._moments.clear()
        return before, self._newest()

    def leave(self, descriptor: int) -> None:
        """Before the gateway closes: let the demo do what it wants done without browsers, and keep the listening socket (its
        descriptor)."""
        if self._watch is not None:
            self._watch.kill()
        if self.restarting:
            self._left = self._while_away()
            self._listener = os.dup(descriptor)

    def execute(self) -> None:
        """Become the fresh program, if a restart was asked for. Nothing of this process may be left to close."""
        if self._listener is None:
            return
        os.dup2(self._listener, FIRST_DESCRIPTOR, inheritable=True)
        os.set_inheritable(FIRST_DESCRIPTOR, True)  # also where it was that one already
        with tempfile.TemporaryFile("w+") as file:
            json.dump(self._left, file)
            file.seek(0)
            os.set_inheritable(file.fileno(), True)
            passed = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", _CARRIED: str(file.fileno())}
            standard_streams.drain()
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**self._environ, **passed})

    def _newest(self) -> int:
        client = open_client(self._private.url, timeout_s=TIMEOUT_S, max_connections=1)
        try:
            return LogRange(client, self._namespace).head()[1]
        finally:
            client.close()

    def _remember(self) -> None:
        while True:
            with suppress(OSError):  # rewritten just now
                self._moments.append((monotonic(), self._private.moment()))
            sleep(LOOK_S)


class Start:
    """How this process was started: what a restart starts again.

    Attributes:
        environ: the environment, as it was.
        carried: what the process before this one has left; empty without a restart.
        is_again: it is a restart, so what was right before is right.
        of_the_demo: the ready-made application is served, on a socket of our own.
    """

    def __init__(self, environ: MutableMapping[str, str], target: str | None) -> None:
        left = environ.pop(_CARRIED, None)
        self.environ = dict(environ)
        self.carried: Mapping[str, Any] = {}
        if left is not None:
            with open(int(left)) as file:
                self.carried = json.load(file)
        self.is_again = left is not None
        self.of_the_demo = target is None and (self.is_again or "LISTEN_PID" not in environ)
