"""The demo's data in the gateway's Redis, which survives restarts of both: the orders, and the secret that signs tokens.

In: each changed order, and the removed ones. Out: all of them, for the next process, in one hash with a field per order,
bounded by the book (MAX_ORDERS fields of less than 1 KiB). The first process creates the secret, and all gateways of a Redis
share it. A reader of it can already publish there, so it opens no further door.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import DEMO_ORDERS, DEMO_SECRET

TIMEOUT_S = 2.0
# The length of the hash of the signature (RFC 2104, section 3).
SECRET_BYTES = 32


class Kept:
    """See the module. Every method waits for Redis, may switch greenlets, and raises BusUnavailable or BusRefused.

    Args:
        find_url: returns the address of Redis; called at the first command.
    """

    def __init__(self, find_url: Callable[[], str]) -> None:
        self._find_url = find_url
        self._lock = threading.Lock()
        self._client: Client | None = None

    def secret(self) -> bytes:
        """Return the secret, the same for all callers."""
        self._call("SET", DEMO_SECRET, secrets.token_hex(SECRET_BYTES), "NX")
        return bytes(self._call("GET", DEMO_SECRET))

    def load(self) -> list[dict[str, Any]]:
        """Return the saved orders, unordered."""
        return [json.loads(each) for each in self._call("HVALS", DEMO_ORDERS)]

    def save(self, orders: Iterable[Mapping[str, Any]]) -> None:
        """Save these orders, at least one, each replacing the one with its `id`."""
        self._call("HSET", DEMO_ORDERS, *(part for order in orders for part in (str(order["id"]), json.dumps(order))))

    def forget(self, order_id: str) -> None:
        """Remove this order."""
        self._call("HDEL", DEMO_ORDERS, order_id)

    def _call(self, *command: str) -> Any:
        with self._lock:
            if self._client is None:
                self._client = open_client(self._find_url(), timeout_s=TIMEOUT_S, max_connections=1)
        return call(self._client, *command)
