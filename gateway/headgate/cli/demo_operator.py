"""The operator of a demo restarts this gateway or makes its private Redis lose the end of its log, on request of the page.

In: the private Redis started by this process, and requests of the demo (headgate_server/demo/trouble.py). Out: for a restart,
the same process with a new program (exec). By then the drain is over, Redis has ended in order, and the listening socket is
passed on as systemd does, so browsers wait in its queue and none is refused. For a loss, the private Redis is killed and
restarted from an earlier state of its file. `of` creates an operator only for this command's demo on loopback with a Redis
started by this process, where it cannot harm other users.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import closing, suppress
from time import monotonic

from headgate.redis.client import open_client
from headgate.redis.embedded import EmbeddedRedis, Moment
from headgate.redis.log import EventLog
from headgate.runtime import standard_streams
from headgate.runtime.loop import Greenlet, sleep, spawn
from headgate.settings.addresses.origins import is_loopback
from headgate.settings.settings import Settings

from .starting import FIRST_DESCRIPTOR

# How often the size of the file is recorded, and how long records are kept.
POLL_S = 0.05
REMEMBERED_S = 3.0
TIMEOUT_S = 5.0
# Environment variable of a restarted process. It is not a setting.
_RESTARTED = "_HEADGATE_DEMO_RESTARTED"


class DemoOperator:
    """See the module.

    Attributes:
        restarting: whether the process will restart rather than only end.
    """

    def __init__(self, private: EmbeddedRedis, namespace: str, environ: Mapping[str, str]) -> None:
        self.restarting = False
        self._private, self._namespace, self._environ = private, namespace, environ
        self._moments: deque[tuple[float, Moment]] = deque(maxlen=round(REMEMBERED_S / POLL_S))
        self._while_away: Callable[[], object] = lambda: None
        self._stop: Callable[[], None] = lambda: None
        self._listener: int | None = None
        self._watch: Greenlet | None = None

    @staticmethod
    def of(
        settings: Settings, private: EmbeddedRedis | None, environ: Mapping[str, str], target: str | None, *, is_again: bool
    ) -> DemoOperator | None:
        """Return the operator of a process that was started with this environment and target, or None where it may harm."""
        is_own = target is None and (is_again or "LISTEN_PID" not in environ)  # the ready-made application, on our own socket
        if private is None or not settings.demo or not is_own or not is_loopback(settings.host):
            return None
        return DemoOperator(private, settings.namespaces[0], environ)

    def start(self, stop: Callable[[], None]) -> None:
        """Accept requests from now on; `stop` begins to end the process."""
        self._stop = stop
        self._watch = spawn(self._remember)

    def restart(self, while_away: Callable[[], object]) -> None:
        """Restart the gateway soon. `while_away` is called once every browser is disconnected."""
        self._while_away, self.restarting = while_away, True
        self._stop()

    def lose_end(self, seconds: float) -> tuple[int, int]:
        """Set Redis back by `seconds`, or to the start of this process; return the newest offset before and after.

        Raises BusRefused, BusUnavailable: as `EmbeddedRedis.crash`.
        """
        before, since = self._newest(), monotonic() - seconds
        past = [moment for at, moment in self._moments if at <= since]
        self._private.crash(past[-1] if past else self._moments[0][1])
        self._moments.clear()
        return before, self._newest()

    def leave(self, descriptor: int) -> None:
        """Before the gateway closes, let the demo do its work without browsers; keep the listening socket (its descriptor)."""
        if self._watch is not None:
            self._watch.kill()
        if self.restarting:
            self._while_away()
            self._listener = os.dup(descriptor)

    def execute(self) -> None:
        """Become the new program if a restart was requested. Everything of this process must be closed."""
        if self._listener is None:
            return
        os.dup2(self._listener, FIRST_DESCRIPTOR, inheritable=True)
        os.set_inheritable(FIRST_DESCRIPTOR, True)  # even if it already was that one
        passed = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", _RESTARTED: "1"}
        standard_streams.drain()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**self._environ, **passed})

    def _newest(self) -> int:
        with closing(open_client(self._private.url, timeout_s=TIMEOUT_S, max_connections=1)) as client:
            return EventLog(self._namespace, client).end()[1]

    def _remember(self) -> None:
        while True:
            with suppress(OSError):  # just rewritten
                self._moments.append((monotonic(), self._private.moment()))
            sleep(POLL_S)


def pop_restarted(environ: MutableMapping[str, str]) -> bool:
    """Return whether this process is a restart, so that earlier checks still hold."""
    return environ.pop(_RESTARTED, None) is not None
