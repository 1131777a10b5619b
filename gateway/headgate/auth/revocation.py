"""Revocation of users and tokens for a time; how it is stored in Redis, and the copy in each gateway.

In: `revoke` from a publisher or the command line. Out: a member `user:<name>` or `token:<id>` in the sorted set REVOKED, scored
with its end by Redis' clock, and a message on its channel. Each gateway holds a copy, `Revocations`, on its own monotonic
clock, which revocation_watch.py keeps up to date.

Revoking a user refuses every identity with that name, with old and new tokens, until the revocation ends or is lifted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from headgate.errors import InvalidRequest, LimitReached, Unauthorized, UnauthorizedReason
from headgate.events.numbers import check_whole
from headgate.events.topic import check_user
from headgate.redis.client import Client, call, call_all, call_at, database_number
from headgate.redis.functions import write_all
from headgate.redis.keys import DEFAULT_REVOKED_S, REVOKED, revoked_channel

from .identity import Identity

# Active in total, each about 200 bytes in Redis and in every gateway. To refuse more tokens, change the key.
MAX_REVOCATIONS = 10_000
MAX_REVOKED_S = 400 * 86400
# A sweep takes half a millisecond, so a flood of messages must not cause one each.
SWEEP_EVERY_S = 1.0
MAX_TOKEN_ID_CHARACTERS = 255
# A message on the channel: the seconds, and a name or id in UTF-8.
MAX_NEWS_BYTES = 2048
USER, TOKEN = "user", "token"


def revoke(client: Client, *, user: str | None = None, token_id: str | None = None, for_s: int = DEFAULT_REVOKED_S) -> None:
    """Refuse a user, or one token, for `for_s` seconds from now; 0 lifts it. Waits for Redis, three round trips.

    The last call wins. When this returns, the revocation is stored, and every gateway that reaches Redis applies it within a
    second.

    Raises:
        InvalidRequest: not exactly one of `user` and `token_id`, or an invalid value.
        LimitReached: MAX_REVOCATIONS are active.
        BusUnavailable, BusRefused: as `redis.client.call`. Retrying is safe.
    """
    member = _member(user, token_id)
    check_whole(for_s, "for_s", 0, MAX_REVOKED_S, "seconds")
    now_s = int(call_at(client, REVOKED, "TIME")[0])
    sweep = ("ZREMRANGEBYSCORE", REVOKED, "-inf", now_s)
    _, count, known = call_all(client, [sweep, ("ZCARD", REVOKED), ("ZSCORE", REVOKED, member)])
    if for_s and known is None and int(count) >= MAX_REVOCATIONS:
        raise LimitReached("revocations", MAX_REVOCATIONS)
    change = ("ZADD", REVOKED, now_s + for_s, member) if for_s else ("ZREM", REVOKED, member)
    # Each call renews the expiry of the whole set, so it never outlives its last member by much.
    news = ("PUBLISH", revoked_channel(database_number(client)), f"{for_s} {member}")
    write_all(client, [change, ("EXPIRE", REVOKED, MAX_REVOKED_S), news])


def read_revoked(client: Client) -> list[tuple[str, int]]:
    """Return (member, remaining seconds) of every active revocation, at most twice MAX_REVOCATIONS.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    now_s = int(call_at(client, REVOKED, "TIME")[0])
    # Concurrent calls at the limit may exceed it by a few.
    rows = call(client, "ZRANGE", REVOKED, "+inf", f"({now_s}", "BYSCORE", "REV", "LIMIT", 0, 2 * MAX_REVOCATIONS, "WITHSCORES")
    pairs = rows if not rows or isinstance(rows[0], list | tuple) else list(zip(rows[::2], rows[1::2], strict=True))
    return [(member.decode("utf-8", "replace"), int(float(until)) - now_s) for member, until in pairs]


class Revocations:
    """A gateway's copy of the revocations. Bounded; no I/O. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until_s: dict[str, float] = {}
        self._swept_s = -math.inf

    def __len__(self) -> int:
        return len(self._until_s)

    def replace(self, members: Iterable[tuple[str, int]]) -> None:
        """Replace the whole copy with (member, remaining seconds)."""
        now_s = self._now_s()
        self._until_s = {member: now_s + left_s for member, left_s in members}

    def apply(self, message: bytes) -> str | None:
        """Apply a message of the channel; return the revoked member, or None if it lifts one or is not ours."""
        left, _, member = message[:MAX_NEWS_BYTES].decode("utf-8", "replace").partition(" ")
        if not left.isascii() or not left.isdecimal() or len(left) > 9 or kind_of(member) is None:
            return None
        if int(left) == 0:
            self._until_s.pop(member, None)
            return None
        self._until_s[member] = self._now_s() + int(left)
        if len(self._until_s) > MAX_REVOCATIONS and self._now_s() - self._swept_s >= SWEEP_EVERY_S:
            self._forget_ended()
        if len(self._until_s) > 2 * MAX_REVOCATIONS:  # more than `revoke` ever stores, so it is applied and not kept
            del self._until_s[member]
        return member

    def members(self) -> list[str]:
        self._forget_ended()
        return list(self._until_s)

    def check(self, identity: Identity) -> None:
        """Refuse a revoked identity. Raises Unauthorized: `revoked`."""
        if self._until_s and (
            self._holds(f"{USER}:{identity.user}")
            or (identity.token_id is not None and self._holds(f"{TOKEN}:{identity.token_id}"))
        ):
            raise Unauthorized(UnauthorizedReason.REVOKED)

    def _holds(self, member: str) -> bool:
        until_s = self._until_s.get(member)
        return until_s is not None and self._now_s() < until_s

    def _forget_ended(self) -> None:
        now_s = self._swept_s = self._now_s()
        self._until_s = {member: until_s for member, until_s in self._until_s.items() if until_s > now_s}


def kind_of(member: str) -> tuple[str, str] | None:
    """Return ("user" or "token", name) of a member, or None if invalid."""
    kind, colon, name = member.partition(":")
    return (kind, name) if colon and name and kind in (USER, TOKEN) else None


def _member(user: str | None, token_id: str | None) -> str:
    if (user is None) == (token_id is None):
        raise InvalidRequest("revoke takes either a user or a token id")
    if user is not None:
        return f"{USER}:{check_user(user)}"
    if not isinstance(token_id, str) or not token_id.isprintable() or not 0 < len(token_id) <= MAX_TOKEN_ID_CHARACTERS:
        raise InvalidRequest(f"token_id: expected 1 to {MAX_TOKEN_ID_CHARACTERS} printable characters")
    return f"{TOKEN}:{token_id}"
