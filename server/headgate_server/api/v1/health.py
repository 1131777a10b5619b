"""Health, and the meaning of each code. Open to anyone."""

from __future__ import annotations

import msgspec

from headgate_server.api.health import report

from .operation import Call, Cost, Operation, Otherwise, Who
from .problems import NotFound, descriptions


class NamespaceHealth(msgspec.Struct):
    """A namespace: the state of its bus, the position of its feed, its number of clients on this gateway."""

    bus: str
    epoch: str | None = None
    offset: int = 0
    clients: int = 0


class Health(msgspec.Struct, omit_defaults=True):
    """Whether this gateway (all its workers) can publish and deliver; else what is `missing`. The rest is for loopback."""

    ready: bool
    missing: list[str]
    bus: str | None = None
    namespaces: dict[str, NamespaceHealth] = {}
    admission: str | None = None
    paused: list[str] = []
    build: str | None = None


class CodeMeaning(msgspec.Struct):
    """A code of a problem: its usual status, and its meaning."""

    code: str
    status: int
    meaning: str


def health(call: Call) -> Health | Otherwise:
    """Return the health of this gateway, as far as the caller may see it."""
    found = msgspec.convert(report(call.services.gate), Health)
    return found if found.ready else Otherwise(503, found)


def meaning(call: Call) -> CodeMeaning:
    """Return the meaning of a code."""
    code = call.path["code"]
    found = descriptions().get(code)
    if found is None:
        raise NotFound("code", code)
    return CodeMeaning(code, *found)


OPERATIONS = (
    Operation(
        "getHealth",
        "GET",
        "/health",
        "Say whether this gateway works",
        Who.ANYONE,
        Health,
        health,
        also={503: Health},
        cost=Cost.NOTHING,
    ),
    Operation(
        "getProblem",
        "GET",
        "/problems/{code}",
        "Say what the code of a problem means",
        Who.ANYONE,
        CodeMeaning,
        meaning,
        problems=(404,),
        cost=Cost.NOTHING,
    ),
)
