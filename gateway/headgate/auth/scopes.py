"""Scopes are the rights of an API key over HTTP. No I/O.

    publish:PATTERN  read:PATTERN  presence:PATTERN     events, the log, members of the topics of a pattern
    send:PATTERN                                        events of these topics to one client, outside the log
    trace  inbox  clients  consumers  pauses  keys      read these
    inbox:write  clients:write  users:write  consumers:write  pauses:write  keys:write  change them
    admin                                               everything, in every namespace

A scope covers itself. A scope with a pattern also covers contained patterns, as a token's grants do. A scope that ends in
`:write` also covers the scope without it, and `admin` covers all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headgate.errors import InvalidRequest
from headgate.events.topic import check_pattern

from .grants import Grants

ADMIN = "admin"
WITH_PATTERN = ("publish", "read", "presence", "send")
PLAIN = (
    *("trace", "inbox", "inbox:write", "clients", "clients:write", "users:write", "consumers", "consumers:write", "pauses"),
    *("pauses:write", "keys", "keys:write", ADMIN),
)
# For more than this, use a token.
MAX_SCOPES = 64
EXPECTED = f"one of {', '.join(f'{kind}:PATTERN' for kind in WITH_PATTERN)}, {', '.join(PLAIN)}"
_WRITE = ":write"


def check_scope(text: object) -> str:
    """Check a scope and return it. Raises InvalidRequest or InvalidPattern."""
    if isinstance(text, str):
        if text in PLAIN:
            return text
        kind, colon, pattern = text.partition(":")
        if colon and kind in WITH_PATTERN:
            check_pattern(pattern)
            return text
    raise InvalidRequest(f"a scope {text!r:.60}; expected {EXPECTED}")


def check_scopes(texts: Iterable[object]) -> tuple[str, ...]:
    """Return scopes in order, without duplicates.

    Raises InvalidRequest or InvalidPattern for an invalid scope, for none, or for more than MAX_SCOPES.
    """
    scopes = tuple(dict.fromkeys(map(check_scope, texts)))
    if not 1 <= len(scopes) <= MAX_SCOPES:
        raise InvalidRequest(f"{len(scopes)} scopes; expected 1 to {MAX_SCOPES}")
    return scopes


class Scopes:
    """The scopes of one caller, compiled. Immutable."""

    __slots__ = ("_plain", "_with_pattern", "is_admin")

    def __init__(self, scopes: Iterable[str]) -> None:
        self._plain: set[str] = set()
        patterns: dict[str, list[str]] = {kind: [] for kind in WITH_PATTERN}
        for scope in scopes:
            if scope in PLAIN:
                self._plain |= {scope, scope.removesuffix(_WRITE)}
            else:
                kind, _, pattern = scope.partition(":")
                patterns[kind].append(pattern)
        self.is_admin = ADMIN in self._plain
        if self.is_admin:
            patterns = {kind: ["#"] for kind in WITH_PATTERN}
        self._with_pattern = {kind: Grants(listed) for kind, listed in patterns.items() if listed}

    def cover(self, scope: str) -> bool:
        """Return whether one of them covers a scope, such as `clients` or `read:orders.#`."""
        if self.is_admin or scope in self._plain:
            return True
        kind, _, pattern = scope.partition(":")
        grants = self._with_pattern.get(kind)
        return grants is not None and grants.contain(pattern)

    def have(self, kind: str) -> bool:
        """Return whether one of them is of this kind, with any pattern."""
        return kind in self._with_pattern


@lru_cache(maxsize=256)  # a service repeats its requests
def compiled(scopes: tuple[str, ...]) -> Scopes:
    return Scopes(scopes)


def patterns_of(scopes: Iterable[str], kind: str) -> tuple[str, ...]:
    """Return the patterns of a kind that scopes grant; `admin` grants every topic."""
    listed = tuple(scopes)
    return ("#",) if ADMIN in listed else tuple(each.partition(":")[2] for each in listed if each.startswith(f"{kind}:"))
