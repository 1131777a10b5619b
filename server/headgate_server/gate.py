"""The gateway, as this server needs it: the contract between the Flask routes and `headgate.flask_extension`. No I/O.

The extension is the implementation that runs; a recording one stands in where a test needs a bus that is down, refuses
or answers without Redis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headgate.auth.identity import Handshake, Identity
from headgate.errors import HeadgateError
from headgate.event import Event


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

    def publish(
        self, topic: str, data: object, id: str | None = None, namespace: str | None = None, *, by: str | None = None
    ) -> Receipt:
        """Return once the event is in the log, or raise from the error tree. May switch greenlets."""
        ...

    def publish_each(
        self, events: Sequence[tuple[str, object, str | None]], namespace: str | None = None, *, by: str | None = None
    ) -> Sequence[Receipt | HeadgateError]:
        """Publish events (topic, data, id), each for itself; return a receipt or an error for each. May switch greenlets.

        Raises:
            LimitReached: too much waits to be published; nothing was.
        """
        ...

    def identify(self, handshake: Handshake) -> Identity:
        """Return who a request is from, or raise Unauthorized."""
        ...

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        """Return (epoch, a page of the log's matching events, the offset to go on from or None). May switch greenlets."""
        ...

    def ready(self) -> Mapping[str, object]:
        """Return `{"ready": bool, "bus": "up" or "down", …}`; never waits."""
        ...


class Siblings(Protocol):
    """The workers that share a port, seen from a route: `app.extensions["headgate.workers"]` where there are several."""

    def health(self) -> Mapping[str, object]:
        """Return `{"ready": bool, "workers": […], …}` of all: the worst, with each named. May switch greenlets."""
        ...

    def exposition(self) -> tuple[str, bytes]:
        """Return the counts of all, as Prometheus reads them: content type and text. May switch greenlets."""
        ...
