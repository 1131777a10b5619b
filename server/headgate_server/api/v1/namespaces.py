"""Lists the caller's namespaces, with the position of each log and its retention."""

from __future__ import annotations

import msgspec

from headgate.auth.identity import Identity
from headgate.redis.client import Client
from headgate.redis.log import EventLog

from .operation import ANY_CALLER, Call, Cost, operation
from .problems import not_found
from .services import Services


class Retention(msgspec.Struct):
    """The limits of the log, beyond which older events are removed. 0 bytes means no such limit."""

    max_events: int
    max_age_s: int
    max_bytes: int


class NamespaceInfo(msgspec.Struct):
    """A log, with its epoch and the offsets of its first and its newest event (`head`).

    `bytes` is the size of its events, counted as for `max_bytes` (payload, topic and 128 for each), some seconds ago.
    """

    name: str
    epoch: str
    first: int
    head: int
    bytes: int
    retention: Retention


@operation("GET /namespaces", ANY_CALLER, cost=Cost.STATUSES, members="namespaces")
def list_namespaces(call: Call) -> list[NamespaceInfo]:
    """List namespaces and their logs.

    They are in the order of the gateway's settings.
    """
    names = _entered(call.services, call.identity)
    call.charge(len(names))
    return [_info(call.redis, name) for name in names]


@operation("GET /namespaces/{name}", ANY_CALLER, problems=(404,))
def get_namespace(call: Call) -> NamespaceInfo:
    """Read the state of a log."""
    name = call.path["name"]
    if name not in _entered(call.services, call.identity):
        raise not_found("namespace", name)
    return _info(call.redis, name)


def _entered(services: Services, identity: Identity) -> list[str]:
    served = services.settings.namespaces
    return [name for name in served if identity.may_enter(name, served[0])]


def _info(redis: Client, name: str) -> NamespaceInfo:
    log = EventLog(name, redis, 0)
    head, extent = log.head(), log.extent()
    retention = Retention(extent.max_events, extent.max_age_s, extent.max_bytes)
    return NamespaceInfo(name, head.epoch, head.first, head.offset, extent.bytes, retention)
