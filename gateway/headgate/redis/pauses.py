"""Pauses in Redis: an operator stops connects, publishes or a namespace on all gateways, for a time or until a resume.

In: `headgate pause` and `headgate resume`. Out: the sorted set PAUSED of members `connects`, `publishes` and
`namespace:<name>`, whose score is the end time by Redis' clock (`+inf`: open), and a notice to all gateways (questions.py).
They read the set after a notice, and every few seconds (node/cluster/pauses.py). A flush ends all pauses.

Raises (all functions): BusUnavailable, BusRefused: as `redis.client.call`. Every call may be repeated.
"""

from __future__ import annotations

from contextlib import suppress

from headgate.errors import BusRefused, InvalidRequest, LimitReached
from headgate.events.numbers import is_whole
from headgate.events.topic import check_namespace

from .client import Client, call, call_all, time_at
from .functions import write_all
from .keys import PAUSED
from .questions import announce

CONNECTS, PUBLISHES = "connects", "publishes"
_NAMESPACE = "namespace:"
# The notice that the set has changed.
KIND = "pauses"
# Most pauses of namespaces. Every gateway reads them all every few seconds.
MAX_PAUSES = 1000
MAX_PAUSED_S = 400 * 86400


def namespace_member(name: str) -> str:
    """Return the member for a namespace. Raises UnknownNamespace: no namespace can have that name."""
    return _NAMESPACE + check_namespace(name)


def namespace_of(member: str) -> str | None:
    """Return the namespace of a member; None for another kind."""
    return member.removeprefix(_NAMESPACE) if member.startswith(_NAMESPACE) else None


def pause(client: Client, member: str, for_s: int | None = None) -> None:
    """Pause a member for `for_s` seconds from now, or until `resume`. A later call wins. Waits for Redis, for four round trips
    at most.

    Raises:
        InvalidRequest: `for_s` is out of range.
        LimitReached: MAX_PAUSES are active.
        BusUnavailable, BusRefused: as `redis.client.call`. Call again: it is idempotent.
    """
    if for_s is not None and not is_whole(for_s, 1, MAX_PAUSED_S):
        raise InvalidRequest(f"for: expected a time of whole seconds, from 1 second to {MAX_PAUSED_S // 86400} days")
    now_s = time_at(client, PAUSED)
    sweep = ("ZREMRANGEBYSCORE", PAUSED, "-inf", now_s)
    _, count, known = call_all(client, [sweep, ("ZCARD", PAUSED), ("ZSCORE", PAUSED, member)])
    if known is None and int(count) >= MAX_PAUSES:
        raise LimitReached("pauses", MAX_PAUSES)
    until = "+inf" if for_s is None else now_s + for_s
    write_all(client, [("ZADD", PAUSED, until, member)])
    _announce(client)


def resume(client: Client, member: str) -> bool:
    """End a pause. Return whether there was one."""
    was_paused = bool(call(client, "ZREM", PAUSED, member))
    if was_paused:
        _announce(client)
    return was_paused


def read_paused(client: Client) -> dict[str, float]:
    """Return each active pause with the seconds left (infinite: until `resume`). Two round trips; one without pauses."""
    reply = call(client, "ZRANGE", PAUSED, 0, 2 * MAX_PAUSES, "WITHSCORES")
    if not reply:
        return {}
    pairs = reply if isinstance(reply[0], list | tuple) else zip(reply[::2], reply[1::2], strict=True)
    now_s = time_at(client, PAUSED)
    left_s = {member.decode("utf-8", "replace"): float(until) - now_s for member, until in pairs}
    return {member: left for member, left in left_s.items() if left > 0}


def _announce(client: Client) -> None:
    """Make all gateways read the set now. If this user may not announce it, they read it at their next regular check."""
    with suppress(BusRefused):
        announce(client, KIND)
