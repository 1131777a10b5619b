"""Whether gevent has made this process's sockets cooperative: the gateway needs that, a publisher does not. Imports no gevent."""

from __future__ import annotations

import sys

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
