"""What the demo keeps in the gateway's Redis, so that it survives restarts of both: the orders, and the secret that signs tokens.

In: each order as it is after a change, and which are gone. Out: all of them, for the process that comes next, in one hash with a
field per order, which the book bounds (MAX_ORDERS fields of less than 1 KiB). The process that asks first makes the secret;
all gateways of a Redis share it. Who can read it there can publish there, so it opens no further door.
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
# As many as the hash of the signature has (RFC 2104, section 3).
SECRET_BYTES = 32


class Kept:
    """See the module. Every method waits for Redis, may switch greenlets, and raises BusUnavailable or BusRefused.

    Args:
        find_url: returns the address of Redis; it is called at the first command.
    """

    def __init__(self, find_url: Callable[[], str]) -> None:
        self._find_url = find_url
        self._lock = threading.Lock()
        self._client: Client | None = None

    def secret(self) -> bytes:
        """Return the secret, the same for everyone who asks."""
        self._call("SET", DEMO_SECRET, secrets.token_hex(SECRET_BYTES), "NX")
        return bytes(self._call("GET", DEMO_SECRET))

    def load(self) -> list[dict[str, Any]]:
        """Return the orders as they were saved, in no order."""
        return [json.loads(each) for each in self._call("HVALS", DEMO_ORDERS)]

    def save(self, orders: Iterable[Mapping[str, Any]]) -> None:
        """Keep these orders, at least one, each in the place of the one with its `id`."""
        self._call("HSET", DEMO_ORDERS, *(part for order in orders for part in (str(order["id"]), json.dumps(order))))

    def forget(self, order_id: str) -> None:
        """Keep this order no longer."""
        self._call("HDEL", DEMO_ORDERS, order_id)

    def _call(self, *command: str) -> Any:
        with self._lock:
            if self._client is None:
                self._client = open_client(self._find_url(), timeout_s=TIMEOUT_S, max_connections=1)
        return call(self._client, *command)
