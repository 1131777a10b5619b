"""The file with the counts of ended workers (counted.py), for the next worker that is asked.

The workers of one process manager share it. Each reads and writes it whole under its lock, for milliseconds, and replaces it in
one step, so that a killed worker leaves the old file or the new one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from headgate.runtime.loop import sleep

from .counted import Family, Totals, remember

# After half a second without the lock, its worker does not run.
LOCK_ATTEMPTS, LOCK_PAUSE_S = 50, 0.01
LOCK_NAME, FILE_NAME = "totals.lock", "totals.json"


def keep(folder: Path, seen: Mapping[int, Sequence[Family]], living: Iterable[int]) -> Totals:
    """Add values of workers, by age, to the totals in a folder; return the totals.

    Raises:
        OSError: the folder is gone, the disk is full, or another worker holds the lock for too long.
    """
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(lock)
        totals = remember(_read(folder / FILE_NAME), seen, living)
        written = folder / f"{FILE_NAME}.new"
        written.write_bytes(msgspec.json.encode(totals))
        written.replace(folder / FILE_NAME)
        return totals
    finally:
        os.close(lock)


def _acquire(lock: int) -> None:
    """Wait for the lock without blocking the loop. A stopped worker (SIGSTOP) may hold it for ever."""
    for _ in range(LOCK_ATTEMPTS - 1):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(LOCK_PAUSE_S)
        else:
            return
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read(path: Path) -> Totals:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Totals)
    except (FileNotFoundError, msgspec.DecodeError):
        return Totals()
