"""Checks whether gevent has patched this process. A gateway needs that, but not a publisher. Does not import gevent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The text of every refusal in a process without cooperative sockets.
NOT_PATCHED = (
    "this process cannot serve browsers: Headgate needs gevent's cooperative sockets. Start the application with "
    "`headgate serve yourmodule:app`, or put `from gevent import monkey; monkey.patch_all()` at the very top of the program, "
    "before any other import. Publishing works here as it is."
)


def is_patched() -> bool:
    """Return whether gevent.monkey has made the standard library's sockets cooperative."""
    # A module never loaded has patched nothing, and a worker that only publishes need not load it.
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("socket"))


@contextmanager
def plugins_loaded_once() -> Iterator[None]:
    """Make a search for plugins in the packages of this environment run only once inside this context.

    `patch_all` searches 25 times for plugins of gevent and reads the metadata of every package each time. That takes a tenth of a
    second of a gateway's start with a hundred packages installed. tests/contract/test_patching_corners.py.
    """
    from importlib import metadata  # not needed by a publisher

    asked = metadata.entry_points
    metadata.entry_points = asked().select
    try:
        yield
    finally:
        metadata.entry_points = asked
