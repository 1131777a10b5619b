"""Looking at processes that are not our own children, and checks in a forked one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# In /proc/<pid>/stat, after the name (man 5 proc_pid_stat).
_STATE, _THREADS = 0, 17


def has_ended(pid: int) -> bool:
    """Return whether a process is gone; an uncollected zombie counts as gone, once all its threads have ended, because until
    then it is the parent of its children."""
    if sys.platform == "linux":  # not ps, because small machines have none
        stat = stat_of(pid)
        return not stat or (stat[_STATE] == "Z" and int(stat[_THREADS]) <= 1)
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.strip() or state.startswith("Z")


def stat_of(pid: int | str) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the name (state, parent, …), or none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def in_child(check: Callable[[], object]) -> bool:
    """Return whether a check holds in a forked child of this process, which has five seconds for it."""
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
