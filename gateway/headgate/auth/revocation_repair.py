"""The repair of the revocations in Redis: a gateway that reads the set writes back what the set has lost.

In: the copy of the gateway (revocation.py). Out: the revocations of Redis and of the copy. Whatever happened in between, the
newest decision about a member counts. Nothing is ever taken out of the set.

One command adds what is missing, and then every gateway reads the set again. So of many gateways that find the same loss, the
first one repairs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import structlog

from headgate.errors import HeadgateError
from headgate.redis.client import Client, call, call_at, database_number
from headgate.redis.connections import Command
from headgate.redis.functions import write_all
from headgate.redis.keys import REVOKED, revoked_channel

from .revocation import KEPT_S, MAX_REVOCATIONS, MAX_REVOKED_S, Decision

log = structlog.get_logger("headgate.revocation")

# The message that the set has revocations again which it had lost. No revocation has this form.
WRITTEN_BACK = b"written back"
# Two decisions about a member count as newer and older from this distance on. A gateway knows the time of one that it has
# received only within the time of the call, and its address may have led to the old primary for five seconds.
APART_S = 10
# Members in one command. A function of Redis takes no more than 8,000 arguments.
_STRIDE = 1000


def read_revoked(client: Client, known: Iterable[Decision] = ()) -> list[Decision]:
    """Return every active revocation, at most twice MAX_REVOCATIONS. First write those of `known` back that Redis lacks.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    now_s = int(call_at(client, REVOKED, "TIME")[0])
    # Concurrent calls at the limit may exceed it by a few.
    rows = call(
        client, "ZRANGE", REVOKED, "+inf", now_s - KEPT_S, "BYSCORE", "REV", "LIMIT", 0, 2 * MAX_REVOCATIONS, "WITHSCORES"
    )
    pairs = rows if not rows or isinstance(rows[0], list | tuple) else zip(rows[::2], rows[1::2], strict=True)
    stored = {}
    for name, score in pairs:
        member = name.decode("utf-8", "replace")
        stored[member] = Decision.read(member, float(score), now_s)
    lost = lacking(known, stored)
    if lost:
        _write_back(client, lost, stored, now_s)
    return [each for each in (stored | {each.member: each for each in lost}).values() if each.left_s > 0]


def lacking(known: Iterable[Decision], stored: Mapping[str, Decision]) -> list[Decision]:
    """Return the known revocations of which Redis has neither the decision nor a newer one."""
    return [
        each
        for each in known
        if each.left_s > 0
        and (
            (there := stored.get(each.member)) is None
            # An older decision that refuses for longer stays. If a lift is lost, it has to be repeated.
            or min(there.age_s - each.age_s, each.left_s - there.left_s) > APART_S
        )
    ]


def _write_back(client: Client, lost: Iterable[Decision], stored: Mapping[str, Decision], now_s: int) -> None:
    """Write revocations that Redis has lost, and make all gateways read the set again if any was still missing.

    A member that is not in the set is only added, so no decision since the read is overwritten. For one with an older decision
    the later end counts.
    """
    commands: list[Command] = []
    for option, is_there in (("NX", False), ("GT", True)):
        pairs = [(each.score(now_s), each.member) for each in lost if (each.member in stored) is is_there]
        for first in range(0, len(pairs), _STRIDE):
            commands.append(("ZADD", REVOKED, option, "CH", *chain.from_iterable(pairs[first : first + _STRIDE])))
    try:
        written = sum(map(int, write_all(client, [*commands, ("EXPIRE", REVOKED, MAX_REVOKED_S)])[:-1]))
        if written:  # otherwise another gateway was first
            call(client, "PUBLISH", revoked_channel(database_number(client)), WRITTEN_BACK)
            log.warning("revocations written back", written=written)
    except HeadgateError as error:  # this gateway refuses them all the same
        log.warning("revocations not written back", error=error.message)
