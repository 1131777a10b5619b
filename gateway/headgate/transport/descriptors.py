"""The file descriptors that the process may have, and the share of them that clients may not have.

The last descriptors are not for clients: a gateway that has given all away cannot reach Redis again when a connection breaks.
"""

from __future__ import annotations

import errno
import os
import resource

from headgate.runtime.loop import native_close

MAX_RESERVED_DESCRIPTORS = 32


def descriptor_limit() -> int | None:
    """Return how many descriptors the process may have; None for any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # each time, as it can be changed while we run
    return None if limit == resource.RLIM_INFINITY else limit


def keep_reserve(listener_fd: int, newest_fd: int) -> None:
    """Look which descriptor a connection would get, once the last one's was close to the reserve.

    Args:
        listener_fd: any descriptor that can be duplicated.
        newest_fd: of the last connection: the lowest that was free then (open(2)).

    Raises:
        OSError: EMFILE, as if it could not have had one.
    """
    limit = descriptor_limit()
    if limit is None:
        return
    reserve = limit - min(MAX_RESERVED_DESCRIPTORS, limit // 16)
    if newest_fd < reserve - MAX_RESERVED_DESCRIPTORS:
        return
    free = os.dup(listener_fd)
    native_close(free)
    if free >= reserve:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
