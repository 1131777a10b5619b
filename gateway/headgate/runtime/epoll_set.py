"""The epoll set: the descriptors that the kernel watches for the loop of this process. It outlives our descriptors.

In: a descriptor of ours whose connection, or listening socket, another process holds as well. Out: the kernel watches it for this
process no more.

The kernel ends a watch by itself when the last descriptor of an open socket is closed, in whichever process. libev relies on
that: it never takes out a descriptor that nobody waits for any more. So where another process holds the socket, its next byte
wakes this process with the number of a descriptor that is closed here, or is another one's by now. libev then makes a new epoll
set and enters every descriptor anew: 4.3 ms of CPU with 2,000 idle clients.

A private corner of gevent and libev, with a contract test: the descriptor of a loop is that of its epoll set, and libev goes on
when something was taken out of it behind its back.
"""

from __future__ import annotations

import os
from typing import Any

import gevent
from gevent import monkey

try:
    # gevent takes it out of `select`, because its wait is not cooperative. None of its waits is used here.
    _epoll: Any = monkey.get_original("select", "epoll")
except AttributeError:  # no Linux; other kernels forget what a process has closed
    _epoll = None


def leave_to_others(descriptor: int) -> None:
    """Have the kernel watch a descriptor for this process no more. Idempotent; does not wait.

    Call it when all watchers of the descriptor are stopped, and before it is closed.
    """
    if _epoll is None:
        return
    try:
        # The set is a new one after a fork, so it is asked for each time; `close` of the object closes its descriptor.
        epoll = _epoll.fromfd(os.dup(gevent.get_hub().loop.fileno()))
    except OSError:  # no descriptor is left: this one is closed all the same
        return
    try:
        epoll.unregister(descriptor)
    except (OSError, ValueError):
        pass  # it is not in the set, or closed already, or the loop has no set
    finally:
        epoll.close()
