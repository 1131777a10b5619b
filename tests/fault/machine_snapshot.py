"""A Redis reverted to a snapshot with its memory, as a hypervisor or CRIU reverts a machine or a process.

A library in the server (machine_snapshot.c) copies the whole process by a fork. The copy has all of its memory (the data, and
what the function library remembers), and sleeps. To revert, the server is killed, and the copy goes on at the same address. As
after a real revert, no connection survives. The copy closes those of the moment of the snapshot, and later ones end with the
server.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fault.preloaded import Preloaded
from tests.fault.site import wait_for
from tests.support.redis_process import RedisProcess


class _Copy(subprocess.Popen[bytes]):
    """A foreign child process, as far as `RedisProcess` needs one."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def __del__(self, *_: object) -> None:
        """Nothing waits for it."""

    def poll(self) -> int | None:
        """Return None while it runs."""
        return None if _state(self.pid) not in ("", "Z") else 0

    def send_signal(self, sig: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    def wait(self, timeout: float | None = None) -> int:
        wait_for(lambda: self.poll() is not None, "the copy to end")
        return 0


class RevertibleRedis(RedisProcess):
    """See the module. It keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._library = Preloaded(folder, "machine_snapshot", "SNAPSHOT_FILE")  # its number: the newest copy's process
        self._copies: list[int] = []

    def start(self, *, empty: bool = False) -> Self:
        with self._library.loaded():
            super().start(empty=empty)
        self.call("CONFIG", "SET", "appendonly", "no")
        return self

    def take_snapshot(self) -> None:
        """Copy the process as it is now."""
        before = self._library.number
        os.kill(self.pid, signal.SIGRTMAX)
        self._wait_for_copy(before)

    def revert(self) -> None:
        """Put the machine back to the newest snapshot, which may be done again and again."""
        self.kill()
        copy = self._library.number
        self._process = _Copy(copy)
        self._process.send_signal(signal.SIGCONT)
        self._wait_for_copy(copy)
        wait_for(self.answers, "the copy to answer")

    def _wait_for_copy(self, before: int) -> None:
        wait_for(lambda: self._library.number != before and _state(self._library.number) == "T", "a copy of the process")
        self._copies.append(self._library.number)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for copy in self._copies:
            with suppress(ProcessLookupError):
                os.kill(copy, signal.SIGKILL)
        super().__exit__(kind, error, trace)


def _state(pid: int) -> str:
    """Return the state of a process, as proc(5) has it; empty: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
