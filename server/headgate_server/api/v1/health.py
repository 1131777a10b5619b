"""Health, and the meaning of each code. Open to anyone."""

from __future__ import annotations

import msgspec

from headgate_server.api.health import report

from .operation import Call, Cost, Otherwise, Who, operation
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


@operation("GET /health", Who.ANYONE, returns=Health, also={503: Health}, cost=Cost.NOTHING)
def get_health(call: Call) -> Health | Otherwise:
    """Say whether this gateway works."""
    health = msgspec.convert(report(call.services.gate), Health)
    return health if health.ready else Otherwise(503, health)


@operation("GET /problems/{code}", Who.ANYONE, problems=(404,), cost=Cost.NOTHING)
def get_problem(call: Call) -> CodeMeaning:
    """Say what the code of a problem means."""
    code = call.path["code"]
    description = descriptions().get(code)
    if description is None:
        raise NotFound("code", code)
    return CodeMeaning(code, *description)
