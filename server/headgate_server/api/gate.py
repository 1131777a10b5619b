"""The gateway for this server: the contract between the Flask routes and `headgate.flask.extension`. No I/O.

The extension implements it. Tests that need a bus that is down, refuses, or answers without Redis use a recording one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate.auth.identity import Handshake, Identity
from headgate.errors import HeadgateError
from headgate.events.event import Event

if TYPE_CHECKING:
    from headgate.redis.inbox import InboxPage
    from headgate.services.publisher import PresencePage, Receipt


class Gate(Protocol):
    """The gateway as routes see it."""

    def publish(
        self, topic: str, data: object, id: str | None = None, namespace: str | None = None, *, by: str | None = None
    ) -> Receipt:
        """Return once the event is in the log, or raise from the error tree. May switch greenlets."""
        ...

    def publish_each(
        self,
        events: Sequence[tuple[str, object, str | None]],
        namespace: str | None = None,
        *,
        by: str | None = None,
        all_or_none: bool = False,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> Sequence[Receipt | HeadgateError]:
        """Publish events (topic, data, id) independently; return a receipt or an error for each. May switch greenlets.

        Raises:
            NonePublished: all or none, and one of them cannot be published.
            LimitReached: too many events wait to be published; nothing was.
        """
        ...

    def identify(self, handshake: Handshake) -> Identity:
        """Return the identity of a caller, or raise Unauthorized."""
        ...

    def check_authorized(self, identity: Identity, pattern: str, action: str) -> None:
        """Raise Forbidden if the application refuses a caller a pattern that its grants cover. May switch greenlets."""
        ...

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        """Return (epoch, a page of the log's matching events, the offset to continue from or None). May switch greenlets."""
        ...

    def current_inbox(
        self, read: Callable[[], InboxPage], had: tuple[str, int] | None = None, namespace: str | None = None
    ) -> InboxPage:
        """Return a page of an inbox, by `read`, that has what this gateway has had, and what its reader has had up to `had`.

        `had` is (epoch, offset). May switch greenlets.

        Raises:
            InvalidRequest: the log does not know the epoch.
            BusUnavailable: Redis answers with older pages.
        """
        ...

    def presence_page(
        self, topic: str, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> PresencePage:
        """Return a page of the users in a topic now, by name, after the user `after`. May switch greenlets."""
        ...

    def ready(self) -> Mapping[str, object]:
        """Return `{"ready": bool, "bus": "up" or "down", …}`; never waits."""
        ...


class PeerWorkers(Protocol):
    """The workers on a shared port: `app.extensions["headgate.workers"]` if there are several."""

    def health(self) -> Mapping[str, object]:
        """Return `{"ready": bool, "workers": […], …}`: the worst state of all, and each by name. May switch greenlets."""
        ...

    def exposition(self) -> tuple[str, bytes]:
        """Return the metrics of all workers in the format that Prometheus prefers. May switch greenlets."""
        ...
