"""The file descriptors of the process, and the two shares that clients must not use.

The kernel hands out the lowest free number (open(2)). Clients must not use the highest numbers below the limit, which are for
Redis and our files, and below these for requests of health pages.
"""

from __future__ import annotations

import resource

MAX_OWN_DESCRIPTORS = 32
# A gateway needs this many while it reconnects to Redis. An idle one holds fewer.
LEAST_OWN_DESCRIPTORS = 6
MAX_PLACES = 16
# The limit is divided by this for the usual size of each share.
SHARE = 16


def descriptor_limit() -> int | None:
    """Return how many descriptors the process may have; None for any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # it can be changed while we run
    return None if limit == resource.RLIM_INFINITY else limit


def is_for_clients(descriptor: int) -> bool:
    """Return whether a client may keep the descriptor that it has been given."""
    if (limit := descriptor_limit()) is None:
        return True
    return descriptor < limit - min(MAX_OWN_DESCRIPTORS, max(LEAST_OWN_DESCRIPTORS, limit // SHARE)) - _places(limit)


def places() -> int:
    """Return how many descriptors are reserved for requests of health pages."""
    limit = descriptor_limit()
    return MAX_PLACES if limit is None else _places(limit)


def _places(limit: int) -> int:
    return min(MAX_PLACES, limit // SHARE)
