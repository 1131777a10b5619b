"""An operation of /api/v1: one method of one path, with all that there is to know about it. The rows of the table.

In: `Call`, a request whose caller is known and whose parts have been read as the row says. Out: what `returns` says. No row reads
a request itself, so that the table, the checks and the OpenAPI document cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from headgate.auth.identity import Identity
from headgate.redis.client import Client
from headgate.redis.registry import known_namespaces
from headgate.services.clients import Clients

from .rights import reach
from .services import Lane, Services


class Who(Enum):
    """Callers without a scope of their own."""

    ANYONE = "anyone"
    """No credentials are asked for."""

    ANY_CALLER = "any caller"
    """A key or a token, whatever it grants."""


class Cost(Enum):
    """The work of an operation, and what a caller pays for it: reads of `read_per_s`."""

    NOTHING = "nothing: it asks nothing of Redis"
    REQUEST = "one read: its work does not grow with what is there"
    EVENTS = "a read for every 100 events that are looked at"
    ENTRIES = "a read for every 100 keys, pauses, dead letters, or KiB of these"
    STATUSES = "a read for every 10 consumers or namespaces"
    MEMBERS = "a read for every 1000 members of the topic, or 100 that are shown"
    CLIENTS = "a read for every 1000 clients that match"
    PUBLISHED = "no read: each event counts for `publish_per_s`"

    @property
    def units(self) -> int:
        """How many of what it counts make a read."""
        return _UNITS.get(self, 0)


_UNITS = {
    Cost.EVENTS: 100,
    Cost.ENTRIES: 100,
    Cost.STATUSES: 10,
    Cost.MEMBERS: 1000,
    Cost.CLIENTS: 1000,
}


@dataclass(frozen=True, slots=True)
class IdField:
    """A header field that holds an id of an event (grammar.EventId), of so many characters at most."""

    description: str
    max_length: int


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


class InNamespace(msgspec.Struct, forbid_unknown_fields=True):
    """The parameter that most operations have. One that is not there is UNSET: in a query nothing is null."""

    namespace: str | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Call:
    """A request, read. `namespace` is one that the gateway serves, `path` has the names in the path.

    `need` refuses the caller if it has not some scope, `need_namespaces` if its scopes do not count in all of these namespaces:
    for what only the operation finds out. `reach` are those in which they count; None: all. `charge` counts what the operation
    has looked at, in the units of its `cost`, also where the answer is a refusal.
    """

    services: Services
    identity: Identity
    namespace: str
    path: Mapping[str, str]
    query: Any
    body: Any
    need: Callable[[str], None]
    need_namespaces: Callable[[Iterable[str]], None]
    charge: Callable[[int], None]
    lane: Lane

    @property
    def redis(self) -> Client:
        """The client of the operation's lane."""
        return self.lane.redis

    @property
    def clients(self) -> Clients:
        """Asks all gateways about their clients."""
        return self.lane.clients

    @property
    def reach(self) -> tuple[str, ...] | None:
        """See the class."""
        return reach(self.identity, self.services.settings)

    def need_every_namespace(self) -> None:
        """Refuse a caller whose scopes do not count in every namespace of this Redis: for what has no namespace."""
        if self.reach is not None:
            self.need_namespaces(sorted({*known_namespaces(self.redis), *self.services.settings.namespaces}))


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
        fields: header fields of the request that it reads.
        cost: what its work grows with, and how that is charged.
        searches: it may look through much of the log: each caller has one such under way (searches.py).
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
    fields: Mapping[str, IdField] = field(default_factory=dict)
    cost: Cost = Cost.REQUEST
    searches: bool = False

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
