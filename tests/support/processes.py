"""Looking at processes that are not our own children."""

from __future__ import annotations

import subprocess
import sys
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
