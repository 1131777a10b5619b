"""Repairs rights in Redis. A gateway that reads revocations and explicit grants writes back those that Redis has lost.

In: the copies of the gateway (revocation.py, regrants.py). Out: the union of Redis and the copies. In every case the newest
decision about a user or token counts, and nothing is removed from Redis. `KeptKeys` notices the loss of a whole key.

One command adds the missing entries, and then every gateway reads everything again. So the first of many gateways with the same
loss repairs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import structlog

from headgate.errors import BusRefused, HeadgateError
from headgate.redis.client import Client, call, call_many, database_number, is_forbidden, time_at
from headgate.redis.connections import Command
from headgate.redis.functions import write_all
from headgate.redis.keys import REGRANTED, REVOKED, revoked_channel

from .regrants import MAX_REGRANTED_S, Explicit, encode, read_stored
from .revocation import KEPT_S, MAX_REVOCATIONS, MAX_REVOKED_S, Decision

log = structlog.get_logger("headgate.revocation")

# The message on the channel of revocations after lost rights were written back. No revocation has this form.
WRITTEN_BACK = b"written back"
# A decision counts as newer than another from this distance on. A gateway knows the time of a received decision only within the
# time of the call, and may have been connected to the old primary for five seconds.
APART_S = 10
# Members in one command. A Redis function takes at most 8,000 arguments.
_STRIDE = 1000


def read_revoked(client: Client, known: Iterable[Decision] = ()) -> list[Decision]:
    """Return every active revocation, at most twice MAX_REVOCATIONS. First writes back those of `known` that Redis lacks.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    now_s = time_at(client, REVOKED)
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
    _write_back(client, REVOKED, list(_adding(lost, stored, now_s)), MAX_REVOKED_S)
    return [each for each in (stored | {each.member: each for each in lost}).values() if each.left_s > 0]


def lacking(known: Iterable[Decision], stored: Mapping[str, Decision]) -> list[Decision]:
    """Return the known revocations for which Redis has neither this nor a newer decision."""
    return [
        each
        for each in known
        if each.left_s > 0
        and (
            (there := stored.get(each.member)) is None
            # An older decision with a later end stays. A lost lift must be repeated.
            or min(there.age_s - each.age_s, each.left_s - there.left_s) > APART_S
        )
    ]


def read_regrants(client: Client, known: Mapping[str, Explicit] | None = None) -> dict[str, tuple[Explicit, int]]:
    """Return the active explicit grants with their remaining seconds. First writes back those of `known` that Redis lacks.

    A user without grants there is only added, so a decision since the read is never overwritten. For a user with an older
    decision, the repair may overwrite one made within these milliseconds.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    now_s, stored = read_stored(client)
    lost = {
        user: each
        for user, each in (known or {}).items()
        if (each.until_s > now_s if (there := stored.get(user)) is None else 0 < there.at_s < each.at_s)
    }
    setting = [("HSET" if user in stored else "HSETNX", REGRANTED, user, encode(each)) for user, each in lost.items()]
    _write_back(client, REGRANTED, setting, MAX_REGRANTED_S)
    return {user: (each, each.until_s - now_s) for user, each in (stored | lost).items() if each.until_s > now_s}


class KeptKeys:
    """Notices that Redis has lost a key with rights alone, which breaks no connection: it was evicted, or deleted by hand."""

    def __init__(self) -> None:
        self._questions: dict[str, Command] = {REVOKED: ("ZRANGE", REVOKED, 0, 0), REGRANTED: ("HLEN", REGRANTED)}
        self._there: set[str] = set()

    def has_lost(self, client: Client) -> bool:
        """Return whether a key is gone that was there at the call before, perhaps because its last right has ended.

        Asks no more about a key that this user may not read. One round trip. Raises as `redis.client.call`.
        """
        asked = dict(self._questions)
        before, self._there = self._there, set[str]()
        for key, reply in zip(asked, call_many(client, asked.values()), strict=True):
            if isinstance(reply, BusRefused) and is_forbidden(reply):
                del self._questions[key]
            elif reply:
                self._there.add(key)
        return not before <= self._there


def _adding(lost: Sequence[Decision], stored: Mapping[str, Decision], now_s: int) -> Iterator[Command]:
    """Return the commands that write revocations back.

    A member missing from the set is only added, so a decision since the read is never overwritten. For a member with an older
    decision the later end counts.
    """
    for option, is_there in (("NX", False), ("GT", True)):
        pairs = [(each.score(now_s), each.member) for each in lost if (each.member in stored) is is_there]
        for first in range(0, len(pairs), _STRIDE):
            yield "ZADD", REVOKED, option, "CH", *chain.from_iterable(pairs[first : first + _STRIDE])


def _write_back(client: Client, key: str, commands: Sequence[Command], expire_s: int) -> None:
    """Write lost rights back, and make all gateways read everything again if any was still missing."""
    if not commands:
        return
    try:
        replies = write_all(client, [*commands, ("EXPIRE", key, expire_s)])
        written = sum(1 if command[0] == "HSET" else int(reply) for command, reply in zip(commands, replies, strict=False))
        if written:  # otherwise another gateway was first
            call(client, "PUBLISH", revoked_channel(database_number(client)), WRITTEN_BACK)
            log.warning("rights written back", key=key, written=written)
    except HeadgateError as error:  # this gateway still applies them
        log.warning("rights not written back", key=key, error=error.message)
