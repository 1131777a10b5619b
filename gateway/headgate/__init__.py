"""Headgate: real-time notifications from Python services to browsers, without silent loss.

`from headgate import Publisher` imports only modules without I/O, and creating one imports redis. The gateway's parts
(`Headgate`, the Flask extension) are loaded on first use, so a publisher never imports gevent, Flask or Socket.IO. For the same
reason `from headgate import *` leaves out `Headgate`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.events.topic import own_topics, pattern, user_of, user_word
from headgate.installation import __version__, needing

from .errors import (
    AuthorizeFailed,
    BusRefused,
    BusUnavailable,
    Forbidden,
    HeadgateError,
    InvalidEvent,
    InvalidPattern,
    InvalidRequest,
    InvalidSchema,
    InvalidTopic,
    LimitReached,
    NamespaceNotServed,
    NotDurable,
    NotSerializable,
    OriginNotAllowed,
    Overloaded,
    Paused,
    PayloadTooLarge,
    PublisherClosed,
    RequestFailed,
    RequestRefused,
    RequestTimedOut,
    SchemaViolation,
    SettingsError,
    Unauthorized,
    UnknownHost,
    UnknownNamespace,
    UnknownRequest,
)

if TYPE_CHECKING:
    from headgate.events.event import Event
    from headgate.flask.extension import Headgate as Headgate
    from headgate.redis.inbox import InboxItem, InboxPage
    from headgate.redis.lineage import Fate, LogPosition
    from headgate.redis.log_walk import Gap
    from headgate.services.async_publisher import AsyncPublisher
    from headgate.services.clients import Clients, ClientsPage, ConnectedClient, Reached
    from headgate.services.inbox import Inbox, InboxChange, read_change
    from headgate.services.publisher import (
        NonePublished,
        Prepared,
        PresencePage,
        PresentUser,
        Publisher,
        PublishManyError,
        Receipt,
    )
    from headgate.services.subscriber import Subscriber

    from .auth.identity import Handshake, Identity, PageRequest

# Module → what it brings, on first use.
_LAZY = {
    "auth.identity": ("Handshake", "Identity", "PageRequest"),
    "events.event": ("Event",),
    "flask.extension": ("Headgate",),
    "redis.inbox": ("InboxItem", "InboxPage"),
    "redis.lineage": ("Fate", "LogPosition"),
    "redis.log_walk": ("Gap",),
    "services.async_publisher": ("AsyncPublisher",),
    "services.clients": ("Clients", "ClientsPage", "ConnectedClient", "Reached"),
    "services.inbox": ("Inbox", "InboxChange", "read_change"),
    "services.publisher": (
        "NonePublished", "Prepared", "PresencePage", "PresentUser", "PublishManyError", "Publisher", "Receipt",
    ),
    "services.subscriber": ("Subscriber",),
}  # fmt: skip

__all__ = [
    "AsyncPublisher", "AuthorizeFailed", "BusRefused", "BusUnavailable", "Clients", "ClientsPage", "ConnectedClient", "Event",
    "Fate", "Forbidden", "Gap", "Handshake", "HeadgateError", "Identity", "Inbox", "InboxChange", "InboxItem",
    "InboxPage", "InvalidEvent", "InvalidPattern", "InvalidRequest", "InvalidSchema", "InvalidTopic", "LimitReached",
    "LogPosition", "NamespaceNotServed", "NonePublished", "NotDurable", "NotSerializable", "OriginNotAllowed", "Overloaded",
    "PageRequest", "Paused", "PayloadTooLarge", "Prepared", "PresencePage", "PresentUser", "PublishManyError", "Publisher",
    "PublisherClosed", "Reached", "Receipt", "RequestFailed", "RequestRefused", "RequestTimedOut", "SchemaViolation",
    "SettingsError", "Subscriber", "Unauthorized", "UnknownHost", "UnknownNamespace", "UnknownRequest", "__version__",
    "own_topics", "pattern", "read_change", "user_of", "user_word",
]  # fmt: skip


def __dir__() -> list[str]:  # for completion, and for the suggestions of Python for a wrong name
    return [*__all__, "Headgate"]


def __getattr__(name: str) -> Any:
    source = next((path for path, names in _LAZY.items() if name in names), None)
    if source is not None:
        with needing("server", f"headgate.{name}"):
            try:
                module = import_module(f".{source}", __name__)
            except AttributeError as error:  # `from headgate import …` would treat it as a missing name and hide it
                raise ImportError(f"headgate.{name} cannot be loaded: {error}", name=__name__) from error
            return getattr(module, name)
    raise AttributeError(f"module 'headgate' has no attribute {name!r}")
