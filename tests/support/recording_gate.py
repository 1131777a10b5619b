"""A gate that records: the gateway as the routes of the ready-made server see it, without Redis and without a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.auth.identity import Handshake, Identity
from headgate.errors import HeadgateError
from headgate.event import Event


@dataclass
class Receipt:
    epoch: str
    offset: int
    duplicate: bool
    id: str


@dataclass
class RecordingGate:
    """Keeps what is published; refuses with `error` while that is set, from the `after`-th publish on."""

    published: list[tuple[str, Any]] = field(default_factory=list)
    error: Exception | None = None
    after: int = 0
    state: dict[str, Any] = field(default_factory=lambda: {"ready": True, "bus": "up"})
    identity: Identity = field(default_factory=lambda: Identity("anyone", ("#",), ("#",)))

    def publish(
        self, topic: str, data: Any, id: str | None = None, namespace: str | None = None, *, by: str | None = None
    ) -> Receipt:
        if self.error and len(self.published) >= self.after:
            raise self.error
        self.published.append((topic, data))
        return Receipt("0123456789abcdef", len(self.published), False, id or "made-up")

    def publish_each(
        self, events: Sequence[tuple[str, Any, str | None]], namespace: str | None = None, *, by: str | None = None
    ) -> list[Receipt | HeadgateError]:
        outcomes: list[Receipt | HeadgateError] = []
        for topic, data, event_id in events:
            try:
                value = msgspec.json.decode(data) if isinstance(data, msgspec.Raw | bytes) else data
                outcomes.append(self.publish(topic, value, event_id, namespace, by=by))
            except HeadgateError as error:
                outcomes.append(error)
        return outcomes

    def identify(self, handshake: Handshake) -> Identity:
        return self.identity

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        raise AssertionError("tests/integration/server/test_http_api.py reads a real log")

    def ready(self) -> Mapping[str, Any]:
        return self.state
