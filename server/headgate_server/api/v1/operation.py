"""An operation of /api/v1: one method of one path, with all that there is to know about it. The rows of the table.

In: `Call`, a request whose caller is known and whose parts have been read as the row says. Out: what `returns` says. No row reads
a request itself, so that the table, the checks and the OpenAPI document cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from headgate.auth.identity import Identity

from .services import Services


class Who(Enum):
    """Callers without a scope of their own."""

    ANYONE = "anyone"
    """No credentials are asked for."""

    ANY_CALLER = "any caller"
    """A key or a token, whatever it grants."""


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


class InNamespace(msgspec.Struct, forbid_unknown_fields=True):
    """The parameter that most operations have. One that is not there is UNSET: in a query nothing is null."""

    namespace: str | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Call:
    """A request, read. `namespace` is one that the gateway serves, `path` has the names in the path.

    `need` refuses the caller if it has not some scope: for what only the operation finds out.
    """

    services: Services
    identity: Identity
    namespace: str
    path: Mapping[str, str]
    query: Any
    body: Any
    need: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Otherwise:
    """An answer with another status than the row's, one that the row names in `also`."""

    status: int
    value: Any


@dataclass(frozen=True, slots=True)
class Operation:
    """A row.

    Attributes:
        name: `operationId`.
        path: below /api/v1, with names in braces.
        scope: what the caller needs: a scope, the kind of one with a pattern, or a `Who`.
        pattern: the parameter whose value is the scope's pattern; "" where the operation asks for the scope itself.
        query, body, returns: the types; None: there is no body.
        status: of the answer when all is well; `also`: other statuses that are no refusals, with their types.
        problems: statuses beside those that every operation may answer.
        answer: None where the operation answers by itself (publishing.py).
        fields: header fields of the request that it reads, with their description.
    """

    name: str
    method: str
    path: str
    summary: str
    scope: str | Who
    returns: Any
    answer: Callable[[Call], Any] | None
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    status: int = 200
    also: Mapping[int, Any] = field(default_factory=dict)
    problems: tuple[int, ...] = ()
    pattern: str = ""
    about: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(re.findall(r"\{(\w+)\}", self.path))

    @property
    def in_namespace(self) -> bool:
        """Whether it is about one namespace, which the query names."""
        return issubclass(self.query, InNamespace)

    @property
    def group(self) -> str:
        """The first word of the path."""
        return self.path.split("/")[1]
