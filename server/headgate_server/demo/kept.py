"""The demo's data in the gateway's Redis, which survives restarts of both: the orders, and the secret that signs tokens.

In: the book after each change. Out: the same, for the next process, as one JSON text of less than 8 KiB. The first process
creates the secret, and all gateways of a Redis share it. A reader of it can already publish there, so it opens no further door.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from functools import cached_property
from typing import Any

from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import DEMO_BOOK, DEMO_SECRET

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

    @cached_property
    def _client(self) -> Client:
        return open_client(self._find_url(), timeout_s=TIMEOUT_S, max_connections=1)

    def secret(self) -> bytes:
        """Return the secret, the same for all callers."""
        self._call("SET", DEMO_SECRET, secrets.token_hex(SECRET_BYTES), "NX")
        return bytes(self._call("GET", DEMO_SECRET))

    def load(self) -> list[dict[str, Any]]:
        """Return the saved orders, in the order of the book; none if there is no book yet."""
        orders: list[dict[str, Any]] = json.loads(self._call("GET", DEMO_BOOK) or "[]")
        return orders

    def save(self, orders: list[dict[str, Any]]) -> None:
        """Save these orders in place of those before."""
        self._call("SET", DEMO_BOOK, json.dumps(orders))

    def _call(self, *command: str) -> Any:
        return call(self._client, *command)
