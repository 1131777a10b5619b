"""Revocations of users and tokens for a time. They are stored in Redis, with a copy in each gateway.

In: `revoke` from a publisher or the command line. Out: a member `user:<name>` or `token:<id>` in the sorted set REVOKED, scored
with its end by Redis' clock, and a message on its channel. Each gateway holds a copy, `Revocations`, on its own monotonic
clock, which revocation_watch.py keeps up to date.

Revoking a user refuses every identity with that name, with old and new tokens, until the revocation ends or is lifted.

A failover may lose the newest revocations, and gateways write them back (repair.py). So that the newest decision about a member
wins, the fraction of a score is the time of the decision, and a lifted member stays in the set for KEPT_S with a past end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headgate.errors import InvalidRequest, LimitReached, Unauthorized, UnauthorizedReason
from headgate.events.numbers import check_whole
from headgate.events.topic import check_user
from headgate.redis.client import Client, call_all, database_number, time_at
from headgate.redis.connections import Command
from headgate.redis.functions import write_all
from headgate.redis.keys import DEFAULT_REVOKED_S, REVOKED, revoked_channel

from .identity import Identity

# Active in total, each about 200 bytes in Redis and in every gateway. To refuse more tokens, change the key.
MAX_REVOCATIONS = 10_000
MAX_REVOKED_S = 400 * 86400
# A sweep takes half a millisecond, so a flood of messages must not cause one each.
SWEEP_EVERY_S = 1.0
MAX_TOKEN_ID_CHARACTERS = 255
# The most bytes of a message on the channel, which has the seconds and a name or id in UTF-8.
MAX_NEWS_BYTES = 2048
USER, TOKEN = "user", "token"
# How long an ended or lifted revocation stays in the set, unless the set is full. A gateway without news for longer writes
# nothing back, because it could have missed a lift.
KEPT_S = 3600
# The time of a decision modulo this (twelve days) fits into the fraction of a score.
_AT_MODULO_S = 2**20


class Decision(NamedTuple):
    """The newest decision about a member, made `age_s` ago. It refuses the member for `left_s` more seconds, if above 0."""

    member: str
    left_s: int
    age_s: int

    @classmethod
    def read(cls, member: str, score: float, now_s: int) -> Decision:
        """Read a score. The end of a lift is its own time, and it has ended even if Redis' clock was set back since."""
        end_s, fraction = divmod(score, 1)
        at_s, left_s = round(fraction * _AT_MODULO_S), int(end_s) - now_s
        is_lift = int(end_s) % _AT_MODULO_S == at_s
        return cls(member, min(left_s, 0) if is_lift else left_s, (now_s - at_s) % _AT_MODULO_S)

    def score(self, now_s: int) -> str:
        """Return the score."""
        # A revocation for a multiple of twelve days must not read as a lift.
        age_s = self.age_s + (self.left_s > 0 and (self.left_s + self.age_s) % _AT_MODULO_S == 0)
        return repr(now_s + self.left_s + (now_s - age_s) % _AT_MODULO_S / _AT_MODULO_S)


def revoke(client: Client, *, user: str | None = None, token_id: str | None = None, for_s: int = DEFAULT_REVOKED_S) -> int:
    """Refuse a user, or one token, for `for_s` seconds from now; 0 lifts it. Waits for Redis, three round trips.

    The last call wins. When this returns, the revocation is stored, and every gateway that reaches Redis applies it within a
    second. Returns how many gateway processes have received it. If a failover loses it, each of them writes it back.

    Raises:
        InvalidRequest: not exactly one of `user` and `token_id`, or an invalid value.
        LimitReached: MAX_REVOCATIONS are active.
        BusUnavailable, BusRefused: as `redis.client.call`. Retrying is safe.
    """
    member = _member(user, token_id)
    check_whole(for_s, "for_s", 0, MAX_REVOKED_S, "seconds")
    return revoke_member(client, member, for_s)


def revoke_member(client: Client, member: str, for_s: int) -> int:
    """Same as `revoke`, for a checked member."""
    now_s = time_at(client, REVOKED)
    _, count, known = call_all(client, [_sweep(now_s - KEPT_S), ("ZCARD", REVOKED), ("ZSCORE", REVOKED, member)])
    if known is None and int(count) >= MAX_REVOCATIONS:
        _, count = call_all(client, [_sweep(now_s), ("ZCARD", REVOKED)])
        if for_s and int(count) >= MAX_REVOCATIONS:
            raise LimitReached("revocations", MAX_REVOCATIONS)
    change = ("ZADD", REVOKED, Decision(member, for_s, 0).score(now_s), member)
    # Each call renews the expiry of the whole set, so it never outlives its last member by much.
    news = ("PUBLISH", revoked_channel(database_number(client)), f"{for_s} {member}")
    return int(write_all(client, [change, ("EXPIRE", REVOKED, MAX_REVOKED_S), news])[-1])


def _sweep(until_s: int) -> Command:
    return ("ZREMRANGEBYSCORE", REVOKED, "-inf", until_s)


class Revocations:
    """A gateway's copy of the revocations. Bounded; no I/O. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._of: dict[str, tuple[float, float]] = {}  # member → its end, and the time of the decision
        self._swept_s = self._current_s = -math.inf

    def __len__(self) -> int:
        return len(self._of)

    def replace(self, decisions: Iterable[Decision]) -> None:
        """Replace the whole copy."""
        now_s = self._current_s = self._now_s()
        self._of = {member: (now_s + left_s, now_s - age_s) for member, left_s, age_s in decisions}

    def note_current(self) -> None:
        """Record that the copy equals Redis now."""
        self._current_s = self._now_s()

    def known(self) -> list[Decision]:
        """Return the active revocations, or none if Redis may have dropped lifts since the copy last equalled it."""
        now_s = self._now_s()
        if now_s - self._current_s >= KEPT_S:
            return []
        return [
            Decision(member, math.ceil(until_s - now_s), int(now_s - at_s))
            for member, (until_s, at_s) in self._of.items()
            if until_s > now_s
        ]

    def apply(self, message: bytes) -> str | None:
        """Apply a message of the channel; return the revoked member, or None for a lift or an unknown message."""
        member, left_s = read_news(message) or ("", 0)
        if left_s == 0:
            self._of.pop(member, None)
            return None
        now_s = self._now_s()
        self._of[member] = now_s + left_s, now_s
        if len(self._of) > MAX_REVOCATIONS and now_s - self._swept_s >= SWEEP_EVERY_S:
            self._forget_ended()
        if len(self._of) > 2 * MAX_REVOCATIONS:  # `revoke` never stores as many, so it is applied but not kept
            del self._of[member]
        return member

    def members(self) -> list[str]:
        self._forget_ended()
        return list(self._of)

    def check(self, identity: Identity) -> None:
        """Refuse a revoked identity. Raises Unauthorized: `revoked`."""
        if self._of and (
            self._holds(f"{USER}:{identity.user}")
            or (identity.token_id is not None and self._holds(f"{TOKEN}:{identity.token_id}"))
        ):
            raise Unauthorized(UnauthorizedReason.REVOKED)

    def _holds(self, member: str) -> bool:
        revocation = self._of.get(member)
        return revocation is not None and self._now_s() < revocation[0]

    def _forget_ended(self) -> None:
        now_s = self._swept_s = self._now_s()
        self._of = {member: revocation for member, revocation in self._of.items() if revocation[0] > now_s}


def read_news(message: bytes) -> tuple[str, int] | None:
    """Return the member of a message and for how many seconds it is revoked (0: lifted), or None if invalid."""
    left, _, member = message[:MAX_NEWS_BYTES].decode("utf-8", "replace").partition(" ")
    is_valid = left.isascii() and left.isdecimal() and len(left) <= 9 and kind_of(member) is not None
    return (member, int(left)) if is_valid else None


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
