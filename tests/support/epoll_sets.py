"""What the epoll sets of a process contain, as the kernel reports it (Linux)."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_WATCHED = re.compile(r"^tfd:\s*(\d+) .*\bino:\s*([0-9a-f]+)", re.MULTILINE)


class Watched(NamedTuple):
    """A descriptor in an epoll set: its number when it was put in, and its object (its inode)."""

    descriptor: int
    inode: int


def watched(process: int | str = "self") -> set[Watched]:
    """Return the content of all epoll sets of a process."""
    found: set[Watched] = set()
    for entry in Path(f"/proc/{process}/fdinfo").iterdir():
        with suppress(OSError):  # closed in between
            found |= _read(entry)
    return found


def stale(process: int | str = "self") -> set[Watched]:
    """Return the entries in the epoll sets of a process that are not, or no longer, open there under that number."""
    found = {each for each in watched(process) if _inode(process, each.descriptor) != each.inode}
    return found & watched(process)  # a process that runs may have closed one between our two looks


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started, and that it has not waited for."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended in between
            number, _, rest = stat.read_text().partition(" ")
            if int(rest.rpartition(")")[2].split()[1]) == process:
                found.append(int(number))
    return found


def _read(told: Path) -> set[Watched]:
    return {Watched(int(number), int(inode, 16)) for number, inode in _WATCHED.findall(told.read_text())}


def _inode(process: int | str, descriptor: int) -> int | None:
    try:
        return os.stat(f"/proc/{process}/fd/{descriptor}").st_ino
    except OSError:
        return None
