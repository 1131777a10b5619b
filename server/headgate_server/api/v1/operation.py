"""An operation of /api/v1 is a row of the table, one method of one path with all its properties.

In: `Call`, a request with a known caller, read according to the row. Out: a value of the type `returns`. A row never reads a
request itself, so the table, the checks and the OpenAPI document cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from inspect import Parameter, signature
from operator import or_
from typing import Annotated, Any, NoReturn, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from headgate.auth.api_keys import shown_name
from headgate.auth.identity import Identity
from headgate.auth.scopes import PLAIN, WITH_PATTERN
from headgate.errors import Forbidden
from headgate.events.event import ID_CHARACTERS, MAX_ID_LENGTH
from headgate.events.topic import MAX_TOPIC_BYTES, MAX_TOPIC_WORDS
from headgate.redis.client import Client
from headgate.redis.registry import known_namespaces
from headgate.services.clients import Clients

from .problems import namespaces_missing, scope_missing
from .rights import may, reach, refuse
from .services import Services

# The grammar of names for the OpenAPI document. `topic.py` checks them and reports faults.
_WORD = "[A-Za-z0-9_-]+"
_TOKEN = rf"({_WORD}|\*|#)"
_MORE = MAX_TOPIC_WORDS - 1
_PATTERN = rf"{_TOKEN}(\.{_TOKEN}){{0,{_MORE}}}"
MAX_SCOPE = 200

Topic = Annotated[
    str, Meta(extra_json_schema={"maxLength": MAX_TOPIC_BYTES, "pattern": rf"^{_WORD}(\.{_WORD}){{0,{_MORE}}}$"})
]  # fmt: skip
Pattern = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_TOPIC_BYTES, "pattern": f"^{_PATTERN}$"})]
EventId = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_ID_LENGTH, "pattern": f"^{ID_CHARACTERS}+$"})]
Scope = Annotated[
    str, Meta(max_length=MAX_SCOPE, extra_json_schema={"pattern": f"^(({'|'.join(WITH_PATTERN)}):{_PATTERN}|{'|'.join(PLAIN)})$"})
]

# In place of a scope: no credentials are needed, or any key or token.
ANYONE, ANY_CALLER = OPEN = ("no credentials", "any key or token")
_Member: TypeAlias = tuple[str, Any] | tuple[str, Any, Any]
_NO_QUERY = msgspec.defstruct("Query", [], forbid_unknown_fields=True)


class Cost(Enum):
    """The work of an operation and its price in reads of `read_per_s`."""

    units: int
    """The number of units in one read."""

    NOTHING = "nothing, because it does not use Redis", 0
    REQUEST = "one read, because its work does not grow", 0
    EVENTS = "a read for every 100 events searched", 100
    ENTRIES = "a read for every 100 keys, pauses, dead letters, or KiB of these", 100
    STATUSES = "a read for every 10 consumers or namespaces", 10
    MEMBERS = "a read for every 1000 members of the topic, or 100 returned ones", 1000
    CLIENTS = "a read for every 1000 matching clients", 1000
    PUBLISHED = "no read, but each event counts for `publish_per_s`", 0

    def __new__(cls, words: str, units: int) -> Cost:
        """The value is the words."""
        cost = object.__new__(cls)
        cost._value_, cost.units = words, units
        return cost


@dataclass(slots=True)
class Call:
    """A request. `namespace` is one of the gateway's, `path` has the names in the path, and `query` is parsed.

    `need` and `need_namespaces` are for facts that only the operation finds out.
    """

    services: Services
    identity: Identity
    namespace: str
    path: Mapping[str, str]
    environ: Mapping[str, Any]
    query: Any = None
    looked_at: int = 0

    @property
    def by(self) -> str:
        """The caller, for the audit log."""
        return shown_name(self.identity.user)

    @property
    def redis(self) -> Client:
        return self.services.redis

    @property
    def clients(self) -> Clients:
        return self.services.clients

    @property
    def reach(self) -> tuple[str, ...] | None:
        """The namespaces of the caller's scopes; None for all."""
        return reach(self.identity, self.services.settings)

    def need(self, scope: str) -> None:
        """Refuse a caller without a scope."""
        if not may(self.identity, scope, self.services.settings):
            self.refuse(scope_missing(scope))

    def need_namespaces(self, wanted: Iterable[str]) -> None:
        """Refuse a caller without scopes in all of these namespaces."""
        mine = self.reach
        if mine is not None and (missing := [each for each in wanted if each not in mine]):
            self.refuse(namespaces_missing(missing))

    def need_every_namespace(self) -> None:
        """Refuse a caller without scopes in every namespace of this Redis, for things without a namespace."""
        if self.reach is not None:
            self.need_namespaces(sorted({*known_namespaces(self.redis), *self.services.settings.namespaces}))

    def refuse(self, why: Forbidden) -> NoReturn:
        """Refuse the caller, with a line in the audit log. Raises `why`."""
        refuse(self.identity, why, self.namespace, self.environ, self.services.settings.proxies)

    def charge(self, count: int) -> None:
        """Count the work of the operation in the units of its `cost`, even if the answer is a refusal."""
        self.looked_at += count


@dataclass(frozen=True, slots=True)
class Operation:
    """A row.

    Attributes:
        name: `operationId`.
        path: below /api/v1, with names in braces.
        scope: the scope that the caller needs, the kind of one with a pattern, or one of OPEN.
        pattern: the parameter with the scope's pattern; "" if the operation checks the scope itself.
        query, body, returns: the types; None without a body. A type without a docstring is written in place in the document.
        status: of a successful answer. `also` has other statuses that are not refusals, with their types.
        problems: statuses in addition to those of every operation.
        answer: returns the value, or the value and a status from `also`, for a call and the parameters of its query; None if
            the operation answers itself (publishing.py).
        in_namespace: it concerns one namespace, named in the query.
        members: the names of the answer's members, if the value is only their values (a tuple of several).
        fields: the header fields with an event id that it reads, with the description and the greatest length of each.
        cost: the growth of its work, and its charge.
        searches: it may read much of the log, so each caller has at most one running (shares.py).
    """

    name: str
    method: str
    path: str
    summary: str
    scope: str
    returns: Any
    answer: Callable[..., Any] | None
    query: type[msgspec.Struct] = _NO_QUERY
    body: type[msgspec.Struct] | None = None
    status: int = 200
    also: Mapping[int, Any] = field(default_factory=dict)
    problems: tuple[int, ...] = ()
    pattern: str = ""
    in_namespace: bool = False
    members: str = ""
    about: str = ""
    fields: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    cost: Cost = Cost.REQUEST
    searches: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{(\w+)\}", self.path))

    @property
    def group(self) -> str:
        return self.path.split("/")[1]


def operation(request: str, scope: str, **row: Any) -> Callable[[Callable[..., Any]], Operation]:
    """Make a function the `answer` of a row; a decorator. `request` is a method and a path.

    The row gets its name from the function's, `returns` from the annotation, and `summary` and `about` from the docstring. The
    function's keyword-only parameters are the members of the body of a POST or PUT, and the parameters of any other query.
    """
    method, path = request.split()
    has_body = method in ("POST", "PUT")

    def row_of(answer: Callable[..., Any]) -> Operation:
        first, *others = answer.__name__.split("_")
        name = first + "".join(word.capitalize() for word in others)
        summary, _, about = (answer.__doc__ or "").partition("\n")
        hints = get_type_hints(answer, include_extras=True)
        returns = row.pop("returns", None) or hints["return"]
        if members := row.get("members", "").split():
            kinds = get_args(returns) if len(members) > 1 else (returns,)
            returns = msgspec.defstruct(f"{name}Answer", list(zip(members, kinds, strict=True)))
        parts = (summary.removesuffix("."), scope, None if returns is type(None) else returns, answer)
        named = [each for each in signature(answer).parameters.values() if each.kind is each.KEYWORD_ONLY]
        asked = [_member(each, hints[each.name], in_query=not has_body) for each in named]
        query: list[_Member] = [("namespace", str | msgspec.UnsetType, msgspec.UNSET)] if row.get("in_namespace") else []
        row["query"] = _struct("Query", query if has_body else query + asked)
        row["body"] = _struct(f"{name}Body", asked) if has_body else None
        return Operation(name, method, path, *parts, about=" ".join(about.split()), **row)

    return row_of


def _struct(name: str, members: Sequence[_Member]) -> type[msgspec.Struct]:
    options: dict[str, Any] = {"rename": {"from_": "from"}, "forbid_unknown_fields": True, "kw_only": True}
    return msgspec.defstruct(name, members, **options)


def _member(parameter: Parameter, kind: Any, *, in_query: bool) -> _Member:
    """Return a member of a body or a query. UNSET replaces None in a query, because that has no null."""
    name, default = parameter.name, parameter.default
    if default is parameter.empty:
        return name, kind
    return (name, _not_null(kind), msgspec.UNSET if default is None else default) if in_query else (name, kind, default)


def _not_null(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        inner, *meta = get_args(kind)
        return Annotated[(_not_null(inner), *meta)]
    options = get_args(kind)
    return reduce(or_, (msgspec.UnsetType if each is type(None) else each for each in options)) if type(None) in options else kind
