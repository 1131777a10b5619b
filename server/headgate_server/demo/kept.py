"""The kept orders: one hash in the gateway's Redis, a field per order, so that orders survive restarts of gateway and Redis.

In: each order as it is after a change, and which are gone. Out: all of them, for the process that comes next. The book bounds
them (MAX_ORDERS fields of less than 1 KiB). Redis keeps them as it keeps the log.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import DEMO_ORDERS

TIMEOUT_S = 2.0


class KeptOrders:
    """See the module. Every method waits for Redis, may switch greenlets, and raises BusUnavailable or BusRefused.

    Args:
        find_url: returns the address of Redis; it is called once, at the first command.
    """

    def __init__(self, find_url: Callable[[], str]) -> None:
        self._find_url = find_url
        self._lock = threading.Lock()
        self._client: Client | None = None

    def load(self) -> list[dict[str, Any]]:
        """Return the orders as they were saved, in no order."""
        return [json.loads(each) for each in self._call("HVALS", DEMO_ORDERS)]

    def save(self, orders: Iterable[Mapping[str, Any]]) -> None:
        """Keep these orders, each in the place of the one with its `id`."""
        fields = [part for order in orders for part in (str(order["id"]), json.dumps(order))]
        if fields:
            self._call("HSET", DEMO_ORDERS, *fields)

    def forget(self, order_id: str) -> None:
        """Keep this order no longer."""
        self._call("HDEL", DEMO_ORDERS, order_id)

    def _call(self, *command: str) -> Any:
        with self._lock:
            if self._client is None:
                self._client = open_client(self._find_url(), timeout_s=TIMEOUT_S, max_connections=1)
        return call(self._client, *command)
