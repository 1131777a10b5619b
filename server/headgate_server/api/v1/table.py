"""The table of all operations of /api/v1, those open to anyone (health, the meaning of codes), and the OpenAPI document."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from headgate_server.api.health import report

from . import clients, consumers, inbox, keys, namespaces, pauses, publishing, reading
from .openapi import document
from .operation import ANYONE, Call, Cost, Operation, operation
from .problems import descriptions, not_found


class NamespaceHealth(msgspec.Struct):
    """A namespace, with the state of its bus, the position of its feed, and its number of clients on this gateway."""

    bus: str
    epoch: str | None = None
    offset: int = 0
    clients: int = 0


class Health(msgspec.Struct, omit_defaults=True):
    """Whether this gateway (all its workers) can publish and deliver, or else the `missing` parts. The rest is for loopback."""

    ready: bool
    missing: list[str]
    bus: str | None = None
    namespaces: dict[str, NamespaceHealth] = {}
    admission: str | None = None
    paused: list[str] = []
    build: str | None = None


@operation("GET /health", ANYONE, returns=Health, also={503: Health}, cost=Cost.NOTHING)
def get_health(call: Call) -> Health | tuple[Health, int]:
    """Check whether this gateway works."""
    health = msgspec.convert(report(call.services.gate), Health)
    return health if health.ready else (health, 503)


@operation("GET /problems/{code}", ANYONE, problems=(404,), cost=Cost.NOTHING, members="code status meaning")
def get_problem(call: Call) -> tuple[str, int, str]:
    """Explain the code of a problem."""
    code = call.path["code"]
    description = descriptions().get(code)
    if description is None:
        raise not_found("code", code)
    return code, *description


@operation("GET /openapi.json", ANYONE, returns=dict[str, Any], cost=Cost.NOTHING)
def get_document(_: Call) -> msgspec.Raw:
    """Read this document."""
    return openapi_text()


_ROOMS = (reading, inbox, namespaces, clients, consumers, pauses, keys)
_ROWS = (row for room in _ROOMS for row in vars(room).values() if isinstance(row, Operation))
OPERATIONS: tuple[Operation, ...] = (*publishing.OPERATIONS, *_ROWS, get_health, get_problem, get_document)


@cache
def openapi() -> dict[str, Any]:
    """Return the document. The first caller builds it, so a gateway starts faster."""
    return document(OPERATIONS)


@cache
def openapi_text() -> msgspec.Raw:
    """Return the document as JSON. It is encoded only once, because anyone may ask for it."""
    return msgspec.Raw(msgspec.json.encode(openapi()))
