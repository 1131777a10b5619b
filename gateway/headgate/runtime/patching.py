"""Whether gevent has made this process's sockets cooperative: the gateway needs that, a publisher does not. Imports no gevent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The text of every refusal in a process that cannot serve browsers.
NOT_PATCHED = (
    "this process cannot serve browsers: Headgate needs gevent's cooperative sockets. Start the application with "
    "`headgate serve yourmodule:app`, or put `from gevent import monkey; monkey.patch_all()` at the very top of the program, "
    "before any other import. Publishing works here as it is."
)


def is_patched() -> bool:
    """Return whether the standard library's sockets were made cooperative (gevent.monkey)."""
    # Nobody has patched anything with a module that was never loaded, and a worker that only publishes need not load it.
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("socket"))


@contextmanager
def plugins_found_once() -> Iterator[None]:
    """While this is open, the packages of this environment are searched for plugins once, however often somebody asks.

    `patch_all` asks 25 times for plugins of gevent, and reads what every package says about itself each time: a tenth of a second
    of a gateway's start, where a hundred packages are installed. tests/contract/test_patching_corners.py.
    """
    from importlib import metadata  # which a publisher does not need

    asked = metadata.entry_points
    metadata.entry_points = asked().select
    try:
        yield
    finally:
        metadata.entry_points = asked
