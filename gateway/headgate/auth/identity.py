"""Identities: the name of a client and its grants. The types between an application's authenticator and the gateway. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import unquote_plus

from headgate.errors import InvalidPattern, InvalidRequest
from headgate.events.topic import INBOX, check_namespace, check_pattern, check_user, own_topics

from .grants import compiled

_WILDCARDS = frozenset("*#")
_INBOX = f".{INBOX}"
# Bounds of a text for the log that may hold a secret, and of the part of a secret that is hidden in it.
MAX_LOGGED_CHARACTERS = 500
_RUN, _SHORTEST_SECRET, _MAX_DEPTH = 8, 4, 4
# The fields of a query that are Engine.IO's own.
_TRANSPORT_FIELDS = ("EIO", "transport", "sid", "t")


@dataclass(slots=True)
class Handshake:
    """The credentials of a connecting client: the CONNECT `auth` object, and the WSGI environment of its HTTP request.

    Neither is in its `repr`: both may hold the token.
    """

    namespace: str
    auth: Mapping[str, Any] = field(repr=False)
    environ: Mapping[str, Any] = field(repr=False)
    _proven: tuple[object, Identity] | None = field(default=None, init=False, repr=False, compare=False)

    def keep(self, keys: object, identity: Identity) -> None:
        """Keep the identity that the token has proved with these keys, for the next time that this handshake is shown."""
        self._proven = (keys, identity)

    def kept(self, keys: object = None) -> Identity | None:
        """Return the identity that was kept last, if it was with these keys (None: with any)."""
        proven = self._proven
        return proven[1] if proven is not None and (keys is None or proven[0] is keys) else None

    @property
    def token(self) -> str | None:
        """The `token` of the auth object, if it is a string."""
        token = self.auth.get("token")
        return token if isinstance(token, str) else None

    def redacted(self, text: str, limit: int = MAX_LOGGED_CHARACTERS) -> str:
        """Return at most `limit` characters of a text, for a log, without any part of a secret that it holds."""
        headers = (str(self.environ.get(name, "")) for name in ("HTTP_AUTHORIZATION", "HTTP_COOKIE"))
        query = str(self.environ.get("QUERY_STRING", "")).split("&")
        values = [value for name, _, value in (field.partition("=") for field in query) if name not in _TRANSPORT_FIELDS]
        return _without(text[:limit], [*_texts(self.auth), *headers, *values, *map(unquote_plus, values)])


# The rights in the console: to look, and to act as well. An authenticator gives them; no token does.
Admin = Literal["read", "act"]

# In the place of a namespace in an API key: all of them.
EVERY = "*"
# The name of clients without a token, where they are allowed. Not one person: the limits per user do not count it.
ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated client: a name and the patterns that it may subscribe to and publish to.

    By default it may do nothing, but for the grant that the gateway gives to every user: `own_topics(user)`.
    `expires_at` (seconds since 1970, None: never) ends the client then, unless a `refresh` has brought a later one;
    a single token can be revoked by its `token_id`; `namespaces` are those that it is for (None: the gateway's first).
    `admin` lets it into the console: `read` to look, `act` to act as well (docs/console.md).
    `scopes` are those of an API key (scopes.py), beside the grants that they make; None: it is a user. A key's `namespaces` may
    hold EVERY.

    Grants made of variables go through `headgate.pattern`, and a user's name in one through `headgate.user_word`. A name that has
    `*` or `#` as a whole part between dots is refused together with a grant in which it stands as it is: an f-string would have
    made it a wildcard.

    Raises:
        InvalidRequest: the user's name cannot be one.
        InvalidPattern: a grant is not a pattern, or holds the user's name as a wildcard.
        UnknownNamespace: a namespace has a name that none can have.
        TypeError: the grants are one text, and not a list or tuple; the user's name is not text; `admin` is no such right.
    """

    user: str
    subscribe: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    expires_at: float | None = None
    token_id: str | None = None
    namespaces: tuple[str, ...] | None = None
    admin: Admin | None = None
    scopes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.user, str):
            raise TypeError(f"Identity(user=…): expected text, got {type(self.user).__name__}")
        if self.scopes is None:  # a key is called what no user is
            check_user(self.user)
        if self.admin not in (None, "read", "act"):
            raise TypeError(f"Identity(admin=…): expected 'read', 'act' or None, got {self.admin!r:.80}")
        for name in ("subscribe", "publish"):
            object.__setattr__(self, name, tuple(map(check_pattern, _listed(getattr(self, name), name, "patterns"))))
            for grant in getattr(self, name):
                check_name_in_grant(self.user, grant)
        if self.namespaces is not None:
            names = _listed(self.namespaces, "namespaces", "names")
            of_key = self.scopes is not None
            checked = tuple(name if of_key and name == EVERY else check_namespace(name) for name in names)
            object.__setattr__(self, "namespaces", checked)

    @classmethod
    def of_checked(
        cls,
        user: str,
        subscribe: tuple[str, ...],
        publish: tuple[str, ...],
        expires_at: float | None,
        token_id: str | None,
        namespaces: tuple[str, ...] | None,
        admin: Admin | None = None,
    ) -> Identity:
        """Return an identity whose parts have all been checked: half of a token's cost was to check its patterns twice."""
        identity = object.__new__(cls)
        # One by one: a loop over names and values takes five times as long, and each join makes two identities.
        put = object.__setattr__
        put(identity, "user", user)
        put(identity, "subscribe", subscribe)
        put(identity, "publish", publish)
        put(identity, "expires_at", expires_at)
        put(identity, "token_id", token_id)
        put(identity, "namespaces", namespaces)
        put(identity, "admin", admin)
        put(identity, "scopes", None)
        return identity

    @property
    def own_topics(self) -> str | None:
        """The pattern of the user's own topics, or None: all the anonymous have one name, and a key is no user."""
        return _own_topics(self.user)

    def with_own_topics(self) -> Identity:
        """Return this identity with the user's own topics granted, if it has some."""
        own = self.own_topics
        if own is None or own in self.subscribe:
            return self
        subscribe = (*self.subscribe, own)
        return self.of_checked(self.user, subscribe, self.publish, self.expires_at, self.token_id, self.namespaces, self.admin)

    def granted(self, subscribe: tuple[str, ...], publish: tuple[str, ...]) -> Identity:
        """Return this identity with other grants (checked patterns), and the user's own topics."""
        args = (self.user, subscribe, publish, self.expires_at, self.token_id, self.namespaces)
        return self.of_checked(*args).with_own_topics()

    def may_enter(self, namespace: str, first: str) -> bool:
        """Return whether it is for a namespace, where `first` is the gateway's first one."""
        if self.namespaces is None:
            return namespace == first
        return namespace in self.namespaces or EVERY in self.namespaces

    def may_subscribe(self, pattern: str) -> bool:
        """Return whether some grant contains the whole pattern (pattern in pattern, not topic in pattern)."""
        # Letter by letter, as most ask for their own topics: then nothing needs to be compiled.
        return pattern in self.subscribe or compiled(self.subscribe).contain(pattern)

    def may_publish(self, topic: str) -> bool:
        """Return whether some grant contains the topic, or it is that of the changes of the user's own inbox."""
        return compiled(self.publish).contain(topic) or (topic.endswith(_INBOX) and topic == _own_inbox(self.own_topics))


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield every text in a JSON value, to the depth that an authenticator may look at."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list) and depth < _MAX_DEPTH:
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner, depth + 1)


def _without(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which every run of _RUN characters or more that a secret has too is hidden: a part of it tells as well."""
    hidden = bytearray(len(text))
    for secret in secrets:
        size = min(_RUN, len(secret))
        if size < _SHORTEST_SECRET:
            continue
        for at in range(len(text) - size + 1):
            if text[at : at + size] in secret:
                hidden[at : at + size] = b"\1" * size
    shown = "".join("\0" if hide else letter for letter, hide in zip(text, hidden, strict=True))
    return re.sub("\0+", "(hidden)", shown)


@lru_cache(maxsize=4096)  # a user who comes back: 8 µs of each login
def _own_topics(user: str) -> str | None:
    try:
        return None if user == ANONYMOUS else own_topics(user)
    except InvalidRequest:  # a key's
        return None


def _own_inbox(own_topics: str | None) -> str | None:
    return None if own_topics is None else own_topics.removesuffix(".#") + _INBOX


def check_name_in_grant(user: str, grant: str) -> None:
    """Check that a grant does not hold a user's name as a wildcard: whoever may choose a name must not choose what it grants.

    Raises:
        InvalidPattern.
    """
    if ("*" in user or "#" in user) and not _WILDCARDS.isdisjoint(user.split(".")) and f".{user}." in f".{grant}.":
        raise InvalidPattern(grant, "it holds the user's name, which is a wildcard there; expected headgate.user_word(user)")


def _listed(given: object, name: str, of: str) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple. One text is refused: its letters would be taken for the list."""
    if isinstance(given, list | tuple | set | frozenset):
        return tuple(given)
    raise TypeError(f"Identity({name}=…): expected a list or tuple of {of}, got {type(given).__name__} {given!r:.80}")


# An application's authenticator: the identity behind a handshake, or None (or an Unauthorized) to refuse it.
# Returns whether an identity may do an action (`subscribe`, `replay`, `presence`) with a pattern that its grants cover.
Authorizer = Callable[[Identity, str, str], bool]
Authenticator = Callable[[Handshake], Identity | None]
