"""The types between an application's authenticator and the gateway, above all the identity of a client. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_plus

from headgate.errors import InvalidPattern
from headgate.events.numbers import is_number
from headgate.events.topic import INBOX, check_namespace, check_pattern, check_user, own_topics

from .grants import compiled

_WILDCARDS = frozenset("*#")
_INBOX = f".{INBOX}"
# Limits for redacted log text, which are its length, the shortest hidden run, the shortest secret, and the depth of `auth`.
MAX_LOGGED_CHARACTERS = 500
_RUN, _SHORTEST_SECRET, _MAX_DEPTH = 8, 4, 4
# Query fields of Engine.IO itself.
_TRANSPORT_FIELDS = ("EIO", "transport", "sid", "t")


@dataclass(slots=True)
class Handshake:
    """The credentials of a connecting client, in the `auth` object of CONNECT and the WSGI environment of its HTTP request.

    Neither appears in `repr`, because both may hold the token.
    """

    namespace: str
    auth: Mapping[str, Any] = field(repr=False)
    environ: Mapping[str, Any] = field(repr=False)
    _proven: tuple[object, Identity] | None = field(default=None, init=False, repr=False, compare=False)

    def keep(self, keys: object, identity: Identity) -> None:
        """Cache the identity that the token proved with these keys."""
        self._proven = (keys, identity)

    def forget(self) -> None:
        """Forget the cached identity."""
        self._proven = None

    def kept(self, keys: object = None) -> Identity | None:
        """Return the identity cached for these keys, or for any keys with None."""
        proven = self._proven
        return proven[1] if proven is not None and (keys is None or proven[0] is keys) else None

    @property
    def token(self) -> str | None:
        """The `token` of the auth object, if it is a string."""
        token = self.auth.get("token")
        return token if isinstance(token, str) else None

    def redacted(self, text: str, limit: int = MAX_LOGGED_CHARACTERS) -> str:
        """Return at most `limit` characters of a text, for a log, without any part of the secrets of this handshake."""
        headers = (str(self.environ.get(name, "")) for name in ("HTTP_AUTHORIZATION", "HTTP_COOKIE"))
        query = str(self.environ.get("QUERY_STRING", "")).split("&")
        values = [value for name, _, value in (field.partition("=") for field in query) if name not in _TRANSPORT_FIELDS]
        return _without(text[:limit], [*_texts(self.auth), *headers, *values, *map(unquote_plus, values)])


# Patterns or names, as an application gives them.
Listed = tuple[str, ...] | list[str] | set[str] | frozenset[str]

# Rights in the console, to read or to act as well. Only an authenticator grants them, never a token.
Admin = Literal["read", "act"]

# Stands for all namespaces in an API key.
EVERY = "*"
# The user name of clients without a token, if allowed. Limits per user do not apply to it.
ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated client, with a name and the patterns that it may subscribe to and publish to.

    By default it has only the grant that the gateway gives to every user, `own_topics(user)`.
    The client ends at `expires_at` (seconds since 1970, None for never) unless a `refresh` extends it. `token_id` allows
    revoking a single token. It is valid in `namespaces` (None for the gateway's first).
    `admin` admits to the console, to read with `read` and to act as well with `act` (docs/console.md).
    `scopes` are those of an API key (scopes.py), in addition to its grants; None for a user. A key's `namespaces` may hold EVERY.
    `own_topics` is the pattern of the user's own topics, which the gateway grants; None for anonymous clients and keys.

    Build grants from variables with `headgate.pattern`, and insert a user's name with `headgate.user_word`. A name with `*` or
    `#` as a whole part between dots is rejected together with a grant that contains it unchanged, because an f-string would
    have made it a wildcard.

    The grants and `namespaces` may be given as lists or sets, and are kept as tuples.

    Raises:
        InvalidRequest: the user's name is invalid.
        InvalidPattern: a grant is not a pattern, or holds the user's name as a wildcard.
        UnknownNamespace: a namespace name is invalid.
        TypeError: the grants are a string and not a list or tuple, the user's name or `token_id` is not a string, `expires_at` is
            not a number, or `admin` is not a right.
    """

    user: str
    subscribe: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    expires_at: float | None = None
    token_id: str | None = None
    namespaces: tuple[str, ...] | None = None
    admin: Admin | None = None
    scopes: tuple[str, ...] | None = None
    own_topics: str | None = field(default=None, init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # the types that `_listed` takes, without a string

        def __init__(
            self,
            user: str,
            subscribe: Listed = (),
            publish: Listed = (),
            expires_at: float | None = None,
            token_id: str | None = None,
            namespaces: Listed | None = None,
            admin: Admin | None = None,
            scopes: tuple[str, ...] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, value in (("user", self.user), ("token_id", "" if self.token_id is None else self.token_id)):
            if not isinstance(value, str):
                raise TypeError(f"Identity({name}=…): expected text, got {type(value).__name__}")
        end: object = 0 if self.expires_at is None else self.expires_at
        if not is_number(end, -math.inf, math.inf):
            raise TypeError(f"Identity(expires_at=…): expected seconds since 1970, got {type(end).__name__} {end!r:.80}")
        if self.scopes is None:  # the account of a key is not a valid user name
            check_user(self.user)
            if self.user != ANONYMOUS:
                object.__setattr__(self, "own_topics", own_topics(self.user))
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
        own: str | None,
        subscribe: tuple[str, ...],
        publish: tuple[str, ...],
        expires_at: float | None,
        token_id: str | None,
        namespaces: tuple[str, ...] | None,
        admin: Admin | None = None,
    ) -> Identity:
        """Return an identity from checked parts. Checking the patterns twice was half the cost of a token.

        `own` is the pattern of the user's own topics.
        """
        identity = object.__new__(cls)
        # One by one, because a loop takes five times as long.
        put = object.__setattr__
        put(identity, "user", user)
        put(identity, "subscribe", subscribe)
        put(identity, "publish", publish)
        put(identity, "expires_at", expires_at)
        put(identity, "token_id", token_id)
        put(identity, "namespaces", namespaces)
        put(identity, "admin", admin)
        put(identity, "scopes", None)
        put(identity, "own_topics", own)
        return identity

    def with_own_topics(self) -> Identity:
        """Return this identity with the user's own topics granted, if it has any."""
        own = self.own_topics
        if own is None or own in self.subscribe:
            return self
        rest = (self.publish, self.expires_at, self.token_id, self.namespaces, self.admin)
        return self.of_checked(self.user, own, (*self.subscribe, own), *rest)

    def granted(self, subscribe: tuple[str, ...], publish: tuple[str, ...]) -> Identity:
        """Return this identity with other grants (checked patterns) and the user's own topics."""
        args = (self.user, self.own_topics, subscribe, publish, self.expires_at, self.token_id, self.namespaces)
        return self.of_checked(*args).with_own_topics()

    def may_enter(self, namespace: str, first: str) -> bool:
        """Return whether it is valid in a namespace. `first` is the gateway's first one."""
        if self.namespaces is None:
            return namespace == first
        return namespace in self.namespaces or EVERY in self.namespaces

    def may_subscribe(self, pattern: str) -> bool:
        """Return whether some grant contains the whole pattern (pattern in pattern, not topic in pattern)."""
        # Most clients request a granted pattern literally, and then nothing has to be compiled.
        return pattern in self.subscribe or compiled(self.subscribe).contain(pattern)

    def may_publish(self, topic: str) -> bool:
        """Return whether some grant contains the topic, or whether it is the topic for changes of the user's own inbox."""
        if compiled(self.publish).contain(topic):
            return True
        return topic.endswith(_INBOX) and (own := self.own_topics) is not None and topic == own.removesuffix(".#") + _INBOX


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request of a page, for an answering function of the application (`Headgate.on_request`).

    `data` is decoded JSON, checked by the schema of `name` if there is one. `id` is unique among the pending requests of the
    user.
    """

    name: str
    data: Any = field(repr=False)
    identity: Identity
    namespace: str
    id: str


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield every text in a JSON value, down to _MAX_DEPTH."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list) and depth < _MAX_DEPTH:
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner, depth + 1)


def _without(text: str, secrets: Iterable[str]) -> str:
    """Hide every run of _RUN or more characters from a secret in a text, because parts of a secret reveal it, too."""
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


def check_name_in_grant(user: str, grant: str) -> None:
    """Check that a grant does not contain a user's name as a wildcard, which would let users choose their own rights.

    Raises InvalidPattern.
    """
    if ("*" in user or "#" in user) and not _WILDCARDS.isdisjoint(user.split(".")) and f".{user}." in f".{grant}.":
        raise InvalidPattern(grant, "it holds the user's name, which is a wildcard there; expected headgate.user_word(user)")


def _listed(given: object, name: str, of: str) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple. Rejects a string, because iterating over it would yield its letters."""
    if isinstance(given, list | tuple | set | frozenset):
        return tuple(given)
    raise TypeError(f"Identity({name}=…): expected a list or tuple of {of}, got {type(given).__name__} {given!r:.80}")


# Returns whether an identity may do an action (`subscribe`, `replay`, `presence`) with a pattern that its grants cover.
Authorizer = Callable[[Identity, str, str], bool]
# Answers a request with JSON data, or raises.
Answerer = Callable[[PageRequest], object]
# Returns the identity of a handshake, or refuses it with None or by raising Unauthorized.
Authenticator = Callable[[Handshake], Identity | None]
