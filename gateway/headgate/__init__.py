"""Headgate: real-time notifications from Python services to browsers, without silent loss.

`from headgate import Publisher` brings in modules without I/O only, and to make one brings in redis. The gateway's parts
(`Headgate`, the Flask extension) are loaded when they are first asked for, so that a publisher never imports gevent, Flask or
Socket.IO.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
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
    SchemaViolation,
    SettingsError,
    Unauthorized,
    UnknownHost,
    UnknownNamespace,
)
from .extras import needing
from .topic import own_topics, pattern, user_word

if TYPE_CHECKING:
    from .async_publisher import AsyncPublisher
    from .auth.identity import Handshake, Identity
    from .clients import Clients, ClientsPage, ConnectedClient, Reached
    from .flask_extension import Headgate
    from .publisher import PresentUser, Publisher, Receipt
    from .subscriber import Gap, Subscriber

__version__ = "0.2.0"

_LAZY = {
    "AsyncPublisher": "async_publisher",
    "Clients": "clients",
    "ClientsPage": "clients",
    "ConnectedClient": "clients",
    "Reached": "clients",
    "Gap": "subscriber",
    "Headgate": "flask_extension",
    "Handshake": "auth.identity",
    "Identity": "auth.identity",
    "PresentUser": "publisher",
    "Publisher": "publisher",
    "Receipt": "publisher",
    "Subscriber": "subscriber",
}

__all__ = [
    "AsyncPublisher",
    "BusRefused",
    "BusUnavailable",
    "Clients",
    "ClientsPage",
    "ConnectedClient",
    "Forbidden",
    "Gap",
    "Handshake",
    "Headgate",
    "HeadgateError",
    "Identity",
    "InvalidEvent",
    "InvalidPattern",
    "InvalidRequest",
    "InvalidSchema",
    "InvalidTopic",
    "LimitReached",
    "NamespaceNotServed",
    "NotDurable",
    "NotSerializable",
    "OriginNotAllowed",
    "Overloaded",
    "Paused",
    "PayloadTooLarge",
    "PresentUser",
    "Publisher",
    "PublisherClosed",
    "Reached",
    "Receipt",
    "SchemaViolation",
    "SettingsError",
    "Subscriber",
    "Unauthorized",
    "UnknownHost",
    "UnknownNamespace",
    "__version__",
    "own_topics",
    "pattern",
    "user_word",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        with needing("server", f"headgate.{name}"):
            try:
                module = import_module(f".{_LAZY[name]}", __name__)
            except AttributeError as error:  # `from headgate import …` would take it for a name that does not exist, and drop it
                raise ImportError(f"headgate.{name} cannot be loaded: {error}", name=__name__) from error
            return getattr(module, name)
    raise AttributeError(f"module 'headgate' has no attribute {name!r}")
