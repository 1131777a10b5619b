"""What this process has to do with a Redis when its address leads to another server: leave the one that it led to before. No I/O.

In: connections as they are made (`follow`), and from the bus, whose own connections find it out, the server that an address
leads to (`leads_to`). Out: each connection of that address is told to leave. Without this, one that is idle, or only listens,
stays with an old primary that lives on: it hears no revocation, renews a lease that nobody sees, and writes what will be lost.

Connections are held weakly. In a Cluster each node says itself what it owns no more, so nothing follows there.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from headgate.redis_url import RedisUrl

_followers: dict[RedisUrl, MutableMapping[Any, Callable[[Any], None]]] = {}
_servers: dict[RedisUrl, str] = {}


def follow(url: RedisUrl, connection: Any, leave: Callable[[Any], None]) -> None:
    """Have `leave(connection)` called when the address leads elsewhere. It must not wait."""
    _followers.setdefault(url, WeakKeyDictionary())[connection] = leave


def leads_to(url: RedisUrl, server: str) -> None:
    """The address leads to this server, by its name for itself; another one than before is left by everybody who follows."""
    before, _servers[url] = _servers.get(url), server
    if before not in (None, server):
        for connection, leave in list(_followers.get(url, {}).items()):
            leave(connection)
