"""The file descriptors of the process: those that clients may have, and two shares that they may not.

The kernel hands out the lowest number that is free (open(2)). Clients never get the last numbers below the limit: with those the
gateway reaches Redis again and writes its files. Some more are held open from the start, and closed one at a time when a
connection is accepted in the place of one, so that health pages are answered whatever else has used up the rest.
"""

from __future__ import annotations

import os
import resource

from headgate.runtime.loop import native_close

MAX_OWN_DESCRIPTORS = 32
MAX_HELD_DESCRIPTORS = 16
# Each share is this part of the limit at most.
SHARE = 16


def descriptor_limit() -> int | None:
    """Return how many descriptors the process may have; None for any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # each time, as it can be changed while we run
    return None if limit == resource.RLIM_INFINITY else limit


def has_room(listener_fd: int) -> bool:
    """Return whether a client may have the next descriptor, by duplicating any other one.

    The number of the last connection says little: it may have been the only low one that was free.
    """
    end = _end_of_clients()
    if end is None:
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
    """The descriptors that are held open so that others cannot have them."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, lent: int) -> None:
        """Hold as many as there are to be, less the `lent` ones; fewer while clients leave no room for them."""
        if len(self._held) + lent >= MAX_HELD_DESCRIPTORS:
            return  # whatever the limit is
        wanted, end = places() - lent, _end_of_clients()
        while len(self._held) < wanted:
            try:
                taken = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return
            if end is not None and taken >= end:  # the gateway's own
                native_close(taken)
                return
            self._held.append(taken)

    def lend(self) -> bool:
        """Close one, for a connection that is accepted at once; return whether there was one."""
        if not self._held:
            return False
        native_close(self._held.pop())
        return True

    def close(self) -> None:
        """Close all. Idempotent."""
        while self.lend():
            pass


def _end_of_clients() -> int | None:
    """Return the first number that no client may have; None when there is no limit."""
    limit = descriptor_limit()
    return None if limit is None else limit - min(MAX_OWN_DESCRIPTORS, limit // SHARE)
