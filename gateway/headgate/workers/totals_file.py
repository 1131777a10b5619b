"""The file of the totals: what counts although its worker has ended, for whichever worker is asked next.

In: what a worker has seen of others, or counted itself. Out: the totals (counted.py). Workers of one process manager share it;
each reads and writes it whole under its lock, for milliseconds, and exchanges it in one step: a killed worker leaves the old or
the new one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from .counted import Family, Totals, remember

LOCK_NAME, FILE_NAME = "totals.lock", "totals.json"


def keep(folder: Path, seen: Mapping[int, Sequence[Family]], living: Iterable[int]) -> Totals:
    """Add what was seen of workers, by age, to the totals in a folder of ours; return them.

    Raises:
        OSError: the folder is gone, or the disk is full.
    """
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        totals = remember(_read(folder / FILE_NAME), seen, living)
        written = folder / f"{FILE_NAME}.new"
        written.write_bytes(msgspec.json.encode(totals))
        written.replace(folder / FILE_NAME)
        return totals
    finally:
        os.close(lock)


def _read(path: Path) -> Totals:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Totals)
    except (FileNotFoundError, msgspec.DecodeError):
        return Totals()
