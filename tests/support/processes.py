"""Looking at processes that are not our own children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def has_ended(pid: int) -> bool:
    """Return whether a process is gone; a zombie that nobody collects counts as gone."""
    if sys.platform == "linux":  # not ps: small machines have none
        return (stat_of(pid) or ["Z"])[0] == "Z"
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.strip() or state.startswith("Z")


def stat_of(pid: int | str) -> list[str]:
    """Return the fields of /proc/<pid>/stat behind the name (state, parent, …), or none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
