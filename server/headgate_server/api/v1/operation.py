"""An operation of /api/v1: one method of one path, with all its properties. The rows of the table.

In: `Call`, a request with a known caller, whose parts were read according to the row. Out: a value of the type `returns`. No
row reads a request itself, so the table, the checks and the OpenAPI document cannot disagree.
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
    """Callers without a particular scope."""

    ANYONE = "anyone"
    """No credentials are asked for."""

    ANY_CALLER = "any caller"
    """A key or a token, whatever it grants."""


class Cost(Enum):
    """The work of an operation and its price in reads of `read_per_s`."""

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
        """The number of units in one read."""
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
    """A header field with an event id (grammar.EventId) of limited length."""

    description: str
    max_length: int


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


class InNamespace(msgspec.Struct, forbid_unknown_fields=True):
    """The parameter of most operations. A missing one is UNSET, because a query has no null."""

    namespace: str | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request. `namespace` is one that the gateway serves, `path` has the names in the path.

    `need` refuses a caller without a scope, and `need_namespaces` one whose scopes do not count in all of these namespaces, for
    facts that only the operation finds out. `reach` are the namespaces in which they count; None: all. `charge` counts the work
    of the operation in the units of its `cost`, even if the answer is a refusal.
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
        """Refuse a caller whose scopes do not count in every namespace of this Redis, for things without a namespace."""
        if self.reach is not None:
            self.need_namespaces(sorted({*known_namespaces(self.redis), *self.services.settings.namespaces}))


@dataclass(frozen=True, slots=True)
class Otherwise:
    """An answer with a status other than the row's, from those in `also`."""

    status: int
    value: Any


@dataclass(frozen=True, slots=True)
class Operation:
    """A row.

    Attributes:
        name: `operationId`.
        path: below /api/v1, with names in braces.
        scope: what the caller needs: a scope, the kind of one with a pattern, or a `Who`.
        pattern: the parameter with the scope's pattern; "" if the operation checks the scope itself.
        query, body, returns: the types; None: there is no body.
        status: of a successful answer; `also`: other statuses that are no refusals, with their types.
        problems: statuses in addition to those of every operation.
        answer: None if the operation answers itself (publishing.py).
        fields: header fields of the request that it reads.
        cost: what its work grows with, and its charge.
        searches: it may read much of the log, so each caller has at most one running (searches.py).
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
