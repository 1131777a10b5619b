"""The file descriptors of the process, and two shares of them that clients may not have.

The kernel hands out the lowest free number (open(2)). The gateway keeps the last numbers below the limit for Redis and its
files. Some more are held open from the start. One is closed when a connection is accepted in its place, so that health pages
are answered when everything else is used up.
"""

from __future__ import annotations

import os
import resource

from headgate.runtime.loop import native_close

MAX_OWN_DESCRIPTORS = 32
# A gateway that reconnects to Redis needs so many at once, and an idle one holds fewer.
LEAST_OWN_DESCRIPTORS = 6
MAX_HELD_DESCRIPTORS = 16
# The limit is divided by this for the usual size of each share.
SHARE = 16


def descriptor_limit() -> int | None:
    """Return how many descriptors the process may have; None for any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # it can be changed while we run
    return None if limit == resource.RLIM_INFINITY else limit


def has_room(listener_fd: int) -> bool:
    """Return whether a client may have the next descriptor, found by duplicating another one.

    The number of the last connection may have been the only free low one.
    """
    if (end := _end_of_clients()) is None:
        return True
    try:
        free = os.dup(listener_fd)
    except OSError:
        return False
    native_close(free)
    return free < end


def places() -> int:
    """Return how many descriptors are held for connections that ask for health."""
    limit = descriptor_limit()
    return MAX_HELD_DESCRIPTORS if limit is None else min(MAX_HELD_DESCRIPTORS, limit // SHARE)


class HeldDescriptors:
    """Descriptors that are held open."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, lent: int) -> None:
        """Hold as many as there should be, less the `lent` ones, as far as there is room."""
        if len(self._held) + lent >= MAX_HELD_DESCRIPTORS:
            return
        wanted, end = places() - lent, _end_of_clients()
        while len(self._held) < wanted:
            try:
                taken = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return
            if end is not None and taken >= end:
                native_close(taken)
                return
            self._held.append(taken)

    def lend(self) -> bool:
        """Close one, for a connection to be accepted at once; return whether there was one."""
        if not self._held:
            return False
        native_close(self._held.pop())
        return True

    def close(self) -> None:
        """Close all. Idempotent."""
        while self.lend():
            pass


def _end_of_clients() -> int | None:
    """Return the first number that no client may have; None without a limit."""
    limit = descriptor_limit()
    return None if limit is None else limit - min(MAX_OWN_DESCRIPTORS, max(LEAST_OWN_DESCRIPTORS, limit // SHARE))
