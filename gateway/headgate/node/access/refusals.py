"""Counts refused requests, and disconnects a client with too many.

In: the errors that refused requests of clients. Out: the same as `{code, message, …}` for the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from headgate.delivery.client import Client
from headgate.errors import HeadgateError
from headgate.node.connection import connection_of
from headgate.runtime.logging import wire_form
from headgate.runtime.metrics import REFUSED
from headgate.runtime.rates import Rates
from headgate.transport.frame_parser import POLICY

# A page with an occasional refusal over hours is harmless.
FORGIVEN_PER_S = 1.0


class Refusals:
    """The recent refusals of each connection. `limit`: how many it may have; `now_s` is monotonic."""

    def __init__(self, limit: int, now_s: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._now_s = now_s
        self._rates = Rates(FORGIVEN_PER_S, limit)

    def apply(self, limit: int) -> None:
        """Apply another limit. All counts start again."""
        if limit != self._limit:
            self._limit, self._rates = limit, Rates(FORGIVEN_PER_S, limit)

    def refuse(self, namespace: str, client: Client | None, error: HeadgateError) -> dict[str, Any]:
        """Count a refusal, and end the connection of a client with too many; return the error for the wire."""
        REFUSED.labels(namespace, error.code).inc()
        if client is not None and not error.retry and not client.connection.closed:
            connection = connection_of(client)
            if self._rates.spend(connection.sid, self._now_s()):
                connection.end("refused too often", code=POLICY, shown=f"limit_reached: refusals (at most {self._limit})")
        return wire_form(error)

    def forget(self, eio_sid: str) -> None:
        """Forget an ended connection. Idempotent."""
        self._rates.forget(eio_sid)
