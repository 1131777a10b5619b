"""What this server asks of the gateway: the contract between the Flask routes and `headgate.flask_extension`. No I/O.

The extension is the implementation that runs; a recording one stands in where a test needs a bus that is down, refuses
or answers without Redis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Receipt(Protocol):
    """Proof that an event is in its namespace's log at `offset` of `epoch`; `duplicate` if its id was there already."""

    @property
    def epoch(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def duplicate(self) -> bool: ...
    @property
    def id(self) -> str: ...


class Gate(Protocol):
    """The gateway, seen from a route."""

    def publish(self, topic: str, data: Any, id: str | None = None, namespace: str | None = None) -> Receipt:
        """Return once the event is in the log, or raise from the error tree. May switch greenlets."""
        ...

    def ready(self) -> Mapping[str, Any]:
        """Return `{"ready": bool, "bus": "up" or "down", …}`; never waits."""
        ...
