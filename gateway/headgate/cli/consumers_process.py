"""The consumers next to the gateway: `headgate consume` as a separate process that `headgate serve` starts, watches and ends.

In: the arguments of that command; settings pass through the environment. Out: nothing, as it writes to the same standard output
and error. When it ends it is started again, with growing delays. It ends when its parent ends for any reason (see `--parent` of
the command). Waits let the loop run (the caller has patched the standard library).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from headgate.runtime.loop import Greenlet, Signal, spawn
from headgate.runtime.metrics import CONSUMERS_PROCESS_ENDED
from headgate.runtime.operator_lines import complain

RESTART_FIRST_S, RESTART_LAST_S = 1.0, 30.0
# After this running time, the end has another cause than the previous end.
STEADY_S = 60.0
# Longer than the consumers' own drain (see runner).
STOP_DEADLINE_S = 15.0


class ConsumersProcess:
    """One child process at a time, while the context is open.

    Leaving lets it finish its work and waits at most STOP_DEADLINE_S; then it is killed. `arguments` are of `headgate consume`.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "headgate.cli.main", "consume", *arguments]
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
