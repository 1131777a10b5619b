"""A gate that records the gateway as the routes of the ready-made server see it, without Redis and without a connection."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.auth.identity import Handshake, Identity
from headgate.errors import Forbidden, HeadgateError
from headgate.events.event import Event
from headgate.flask.extension import Headgate
from headgate.redis.inbox import InboxPage
from headgate.runtime.loop import in_hub_after
from headgate.services.publisher import NonePublished, PresencePage, PresentUser, Receipt


@dataclass
class RecordingGate(Headgate):
    """Keeps the publishes; refuses with `error` while that is set, from the `after`-th publish on."""

    published: list[tuple[str, Any]] = field(default_factory=list)
    traceparents: list[str | None] = field(default_factory=list)
    error: Exception | None = None
    after: int = 0
    begun: int = 0
    state: dict[str, Any] = field(default_factory=lambda: {"ready": True, "bus": "up"})
    unauthorized: set[str] = field(default_factory=set)
    present: list[PresentUser] = field(default_factory=list)
    identity: Identity = field(default_factory=lambda: Identity("anyone", ("#",), ("#",)))

    def publish(
        self, topic: str, data: Any, id: str | None = None, namespace: str | None = None, *, by: str | None = None, **_: Any
    ) -> Receipt:
        if self.error and len(self.published) >= self.after:
            raise self.error
        self.published.append((topic, data))
        return Receipt("0123456789abcdef", len(self.published), False, id or "made-up")

    def publish_each(
        self,
        events: Sequence[tuple[str, Any, str | None]],
        namespace: str | None = None,
        *,
        by: str | None = None,
        all_or_none: bool = False,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> list[Receipt | HeadgateError]:
        self.traceparents.append(traceparent)
        outcomes: list[Receipt | HeadgateError] = []
        if all_or_none and self.error is not None and isinstance(self.error, HeadgateError):
            raise NonePublished({self.after: self.error})
        for topic, data, event_id in events:
            try:
                value = msgspec.json.decode(data) if isinstance(data, msgspec.Raw | bytes) else data
                outcomes.append(self.publish(topic, value, event_id, namespace, by=by))
            except HeadgateError as error:
                outcomes.append(error)
        return outcomes

    def publishes_at_once(self, handshake: Handshake) -> Identity | None:
        return handshake.kept(self)

    def begin_publish(
        self,
        event: tuple[str, Any, str | None],
        namespace: str,
        done: Callable[[Receipt | HeadgateError], object],
        **options: Any,
    ) -> None:
        (outcome,) = self.publish_each([event], namespace, **options)
        self.begun += 1
        in_hub_after(0, lambda: done(outcome))

    def identify(self, handshake: Handshake) -> Identity:
        handshake.keep(self, self.identity)
        return self.identity

    def check_authorized(self, identity: Identity, pattern: str, action: str) -> None:
        if pattern in self.unauthorized:
            raise Forbidden(action, pattern)

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        raise AssertionError("tests/integration/server/test_http_api.py reads a real log")

    def current_inbox(
        self, read: Callable[[], InboxPage], had: tuple[str, int] | None = None, namespace: str | None = None
    ) -> InboxPage:
        return read()

    def presence_page(
        self, topic: str, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> PresencePage:
        rest = [one for one in self.present if after is None or one.user > after]
        return PresencePage(len(self.present), rest[:limit], rest[limit - 1].user if len(rest) > limit else None)

    def ready(self) -> Mapping[str, Any]:
        return self.state
