"""The file descriptors of the process, and the two shares that clients must not use.

The kernel hands out the lowest free number (open(2)). The gateway reserves the highest numbers below the limit for Redis and
its files. It holds some more open from the start. It closes one of these to accept a connection in its place, so that health
pages are answered when all other descriptors are in use.
"""

from __future__ import annotations

import os
import resource

from headgate.runtime.loop import native_close

MAX_OWN_DESCRIPTORS = 32
# A gateway needs this many while it reconnects to Redis. An idle one holds fewer.
LEAST_OWN_DESCRIPTORS = 6
MAX_HELD_DESCRIPTORS = 16
# The limit is divided by this for the usual size of each share.
SHARE = 16


def descriptor_limit() -> int | None:
    """Return how many descriptors the process may have; None for any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # it can be changed while we run
    return None if limit == resource.RLIM_INFINITY else limit


def has_room(listener_fd: int) -> bool:
    """Return whether a client may have the next descriptor, whose number is that of a duplicate of `listener_fd`."""
    if (end := _end_of_clients()) is None:
        return True
    try:
        free = os.dup(listener_fd)
    except OSError:
        return False
    native_close(free)
    return free < end


def places() -> int:
    """Return how many descriptors to hold for requests of health pages."""
    limit = descriptor_limit()
    return MAX_HELD_DESCRIPTORS if limit is None else min(MAX_HELD_DESCRIPTORS, limit // SHARE)


class HeldDescriptors:
    """Open descriptors (`held`) that keep room for health pages."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def hold(self, lent: int) -> None:
        """Hold `places()` descriptors less the `lent` ones, or as many as there is room for."""
        wanted, end = places() - lent, _end_of_clients()
        while len(self.held) < wanted:
            try:
                taken = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return
            if end is not None and taken >= end:
                native_close(taken)
                return
            self.held.append(taken)

    def lend(self) -> bool:
        """Close one so that a connection can be accepted at once; return whether there was one."""
        if not self.held:
            return False
        native_close(self.held.pop())
        return True

    def close(self) -> None:
        """Close all. Idempotent."""
        while self.lend():
            pass


def _end_of_clients() -> int | None:
    """Return the lowest number that clients must not use; None without a limit."""
    limit = descriptor_limit()
    return None if limit is None else limit - min(MAX_OWN_DESCRIPTORS, max(LEAST_OWN_DESCRIPTORS, limit // SHARE))
