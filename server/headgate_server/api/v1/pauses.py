"""Pauses connects, publishes or a namespace on every gateway of a Redis, for a time or until resumed."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from headgate.auth.audit import audit
from headgate.errors import HeadgateError
from headgate.redis import pauses
from headgate.redis.pauses import CONNECTS, MAX_PAUSED_S, PUBLISHES, namespace_member, namespace_of

from .operation import Call, Cost, operation
from .problems import not_found


class Pause(msgspec.Struct):
    """A pause of `connects`, `publishes` or `namespace:<name>`. `left_s` is the time until it ends (null until resumed)."""

    what: str
    left_s: int | None


@operation("GET /pauses", "pauses", cost=Cost.ENTRIES, members="pauses")
def list_pauses(call: Call) -> list[Pause]:
    """List the pauses.

    They are sorted by name. Includes only namespaces of the caller's key.
    """
    paused = pauses.read_paused(call.redis)
    call.charge(len(paused))
    return [
        Pause(what, None if math.isinf(left) else math.ceil(left))
        for what, left in sorted(paused.items())
        if call.reach is None or namespace_of(what) in (None, *call.reach)
    ]


@operation("PUT /pauses/{what}", "pauses:write", problems=(404, 409))
def pause(call: Call, *, for_s: Annotated[int, Meta(ge=1, le=MAX_PAUSED_S)] | None = None) -> Pause:
    """Pause connects, publishes or a namespace.

    `what` is `connects`, `publishes` or `namespace:<name>`. Without `for_s` it lasts until resumed. Every gateway of
    this Redis applies it within two seconds. For `connects` and `publishes` the key must be for every namespace.
    """
    what = _member(call)
    pauses.pause(call.redis, what, for_s)
    audit.acted("paused", by=call.by, what=what, for_s=for_s)
    return Pause(what, for_s)


@operation("DELETE /pauses/{what}", "pauses:write", status=204, problems=(404,))
def resume(call: Call) -> None:
    """End a pause."""
    what = _member(call)
    if not pauses.resume(call.redis, what):
        raise not_found("pause", what)
    audit.acted("resumed", by=call.by, what=what)


def _member(call: Call) -> str:
    """Return the paused thing in the path. For `connects` and `publishes` the caller must be for every namespace."""
    what = call.path["what"]
    name = namespace_of(what)
    if name is not None:
        try:
            member = namespace_member(name)
        except HeadgateError:
            raise not_found("pause", what) from None
        call.need_namespaces([name])
        return member
    if what not in (CONNECTS, PUBLISHES):
        raise not_found("pause", what)
    call.need_every_namespace()
    return what
