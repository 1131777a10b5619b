"""The demo's orders, and the secret that signs tokens, in the gateway's Redis, where they survive restarts of both.

In: the book after each change. Out: the same, for every process, as one JSON text of less than 8 KiB; one of them at a time has
the book. The first process creates the secret, and all gateways of a Redis share it. A program that can read it can already
publish there, so it gives no further rights. It uses only GET and SET.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from headgate.errors import BusUnavailable, HeadgateError
from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import DEMO_BOOK, DEMO_LOCK, DEMO_SECRET

TIMEOUT_S = 2.0
# A dead process holds the book for this long.
HELD_S, POLL_S = 5.0, 0.02
# The length of the hash of the signature (RFC 2104, section 3).
SECRET_BYTES = 32


class Kept:
    """See the module. Every method waits for Redis, may switch greenlets, and raises BusUnavailable or BusRefused.

    Args:
        find_url: returns the address of Redis; called at the first command.
    """

    def __init__(self, find_url: Callable[[], str]) -> None:
        self._find_url = find_url
        self._client: Client | None = None

    def secret(self) -> bytes:
        """Return the secret, the same for all callers."""
        self._call("SET", DEMO_SECRET, secrets.token_hex(SECRET_BYTES), "NX")
        return bytes(self._call("GET", DEMO_SECRET))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from the book for the time of the block."""
        mine, until_s = secrets.token_hex(8), time.monotonic() + 2 * HELD_S
        while not self._call("SET", DEMO_LOCK, mine, "NX", "PX", str(int(HELD_S * 1000))):
            if time.monotonic() >= until_s:
                raise BusUnavailable("other processes have the orders of the demo")
            time.sleep(POLL_S)
        try:
            yield
        finally:
            with suppress(HeadgateError):  # it ends by itself
                if self._call("GET", DEMO_LOCK) == mine.encode():
                    self._call("SET", DEMO_LOCK, mine, "PX", "1")

    def load(self) -> list[dict[str, Any]]:
        """Return the saved orders, in the order of the book; empty without a book."""
        orders: list[dict[str, Any]] = json.loads(self._call("GET", DEMO_BOOK) or "[]")
        return orders

    def save(self, orders: list[dict[str, Any]]) -> None:
        """Save these orders in place of the previous ones."""
        self._call("SET", DEMO_BOOK, json.dumps(orders))

    def _call(self, *command: str) -> Any:
        self._client = self._client or open_client(self._find_url(), timeout_s=TIMEOUT_S, max_connections=1)
        return call(self._client, *command)
