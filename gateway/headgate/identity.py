"""Who a client is and what it may do: the types between an application's authenticator and the gateway. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .grants import compiled
from .topic import check_pattern


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a connecting client has shown: the CONNECT `auth` object, and the WSGI environment of its HTTP request."""

    namespace: str
    auth: Mapping[str, Any]
    environ: Mapping[str, Any] = field(repr=False)

    @property
    def token(self) -> str | None:
        """The `token` of the auth object, if it is a string."""
        token = self.auth.get("token")
        return token if isinstance(token, str) else None


# Who has shown no token, where that is allowed. Not one person: it is outside what is counted per user.
ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated client: a name and the patterns that it may subscribe to and publish to. Nothing by default.

    `expires_at` (seconds since 1970, None: never) ends the client then, unless a `refresh` has brought a later one;
    `token_id` is what a single token can be revoked by.

    Raises:
        InvalidPattern: a grant is not a pattern.
    """

    user: str
    subscribe: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    expires_at: float | None = None
    token_id: str | None = None

    def __post_init__(self) -> None:
        for grant in (*self.subscribe, *self.publish):
            check_pattern(grant)

    def may_subscribe(self, pattern: str) -> bool:
        """Return whether some grant contains the whole pattern (pattern in pattern, not topic in pattern)."""
        return compiled(tuple(self.subscribe)).contain(pattern)

    def may_publish(self, topic: str) -> bool:
        """Return whether some grant contains the topic."""
        return compiled(tuple(self.publish)).contain(topic)


# An application's authenticator: the identity behind a handshake, or None (or an Unauthorized) to refuse it.
Authenticator = Callable[[Handshake], Identity | None]
