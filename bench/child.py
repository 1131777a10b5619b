"""A child process: pinned to a core, bound to our own life, measured from /proc, stopped for sure.

Its output goes to a file, never to an unread pipe, so that a verbose server can neither block nor grow this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

READY_DEADLINE_S = 30.0
STOP_DEADLINE_S = 10.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Failed(RuntimeError):
    """A child did not start, ended early, or did not answer; the text holds the end of its output."""


class Child:
    """One process that we start and stop; a context manager."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        core: int | Collection[int],
        log: Path,
        env: Mapping[str, str] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> None:
        """Start `command` on a core, or several. Standard error goes to `log`, and so does standard output without a `stdout`."""

        def prepare() -> None:
            os.sched_setaffinity(0, {core} if isinstance(core, int) else core)
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        self._log = log
        with log.open("wb") as output:
            self.process: subprocess.Popen[Any] = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=output if stdout is None else stdout,
                stderr=output,
                env={**os.environ, **(env or {})},
                preexec_fn=prepare,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def wait_ready(self, ready: Callable[[], bool], deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until `ready()` holds; stop the process if it does not.

        Raises:
            Failed: the process ended, or the deadline passed.
        """
        end = time.monotonic() + deadline_s
        try:
            while not ready():
                if self.process.poll() is not None:
                    raise Failed(f"ended with {self.process.returncode} before it was ready: {self.output()}")
                if time.monotonic() > end:
                    raise Failed(f"not ready after {deadline_s:g} s: {self.output()}")
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise

    def output(self, limit_bytes: int = 2000) -> str:
        """Return the end of what it wrote."""
        return self._log.read_bytes()[-limit_bytes:].decode(errors="replace")

    def resident_bytes(self) -> int:
        """Return resident memory: what /proc/<pid>/smaps_rollup calls Rss. Kernel socket buffers are not in it."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
        raise Failed(f"process {self.pid} has no Rss")

    def stop(self) -> None:
        """Ask it to end, then make it. Idempotent."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, user and system, to the nanosecond. Ended threads count too."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) makes it, which Python does not have
