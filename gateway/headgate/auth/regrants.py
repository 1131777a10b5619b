"""Explicit grants replace a user's own for a time. They are stored in Redis, with a copy in each gateway.

In: `regrant` from an application or the command line. Out: one field per user in the hash REGRANTED, with the grants and their
end by Redis' clock. Each gateway holds a copy, `Regrants`, on its own monotonic clock. It reads the hash after each connect to
Redis and receives each change as a question (services/clients.py).

Explicit grants apply to every login and token of the user until they end or are lifted, so a reconnect does not restore a
removed right.

A failover may lose the newest grants, and gateways write them back (repair.py). So that the newest decision about a user wins,
each has its time, and lifted grants stay in the hash as ended ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from headgate.errors import InvalidRequest, LimitReached
from headgate.events.numbers import check_items, check_whole
from headgate.events.topic import check_pattern
from headgate.redis.client import Client, call, time_at
from headgate.redis.functions import write_all
from headgate.redis.keys import REGRANTED

from .identity import Identity

# Active in total. Every gateway holds them in memory.
MAX_REGRANTS = 10_000
MAX_PATTERNS = 64
MAX_REGRANTED_S = 400 * 86400
DEFAULT_REGRANTED_S = 3600


class Explicit(msgspec.Struct, frozen=True):
    """Grants that replace a user's own.

    The end and the time of the decision are in seconds since 1970 by Redis' clock. The time is 0 from older versions.
    """

    subscribe: tuple[str, ...]
    publish: tuple[str, ...]
    until_s: int
    at_s: int = 0

    def over(self, identity: Identity) -> Identity:
        """Return an identity with these grants and its own topics."""
        return identity.granted(self.subscribe, self.publish)


_read = msgspec.json.Decoder(Explicit).decode


def encode(explicit: Explicit) -> str:
    """Return a value of the hash."""
    return msgspec.json.encode(explicit).decode()


OWN_USER = "an authenticator may not regrant its own user, as it is asked again then; return the grants in the Identity"
# The user whom a running authenticator identifies, if known, and those that it has regranted; empty when it has answered.
_running_call: ContextVar[Sequence[tuple[str | None, set[str]]]] = ContextVar("headgate_asking", default=())


@contextmanager
def authenticator_call(user: str | None) -> Iterator[set[str]]:
    """Run an authenticator for a user, if known before the answer; yield the users that it has regranted.

    If one of them is the user of its answer, the caller refuses that, because it would call the authenticator again without end.
    """
    regranted = set[str]()
    call = [(user, regranted)]
    token = _running_call.set(call)
    try:
        yield regranted
    finally:
        _running_call.reset(token)
        call.clear()  # greenlets started by the authenticator inherit this context


def note_regrant(user: str) -> None:
    """Record a regrant in the context of a running authenticator. Raises RuntimeError if the user is the one to authenticate."""
    for own, regranted in _running_call.get():
        if user == own:
            raise RuntimeError(OWN_USER)
        regranted.add(user)


def check_regrant(subscribe: Iterable[str], publish: Iterable[str], for_s: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check both lists and return them.

    Raises:
        InvalidPattern: a pattern is invalid.
        InvalidRequest: too many patterns, a string in place of a list, or an invalid time.
    """
    check_whole(for_s, "for_s", 1, MAX_REGRANTED_S, "seconds")
    lists = []
    for name, patterns in (("subscribe", subscribe), ("publish", publish)):
        lists.append(tuple(check_items(patterns, name, "patterns")))
        if len(lists[-1]) > MAX_PATTERNS:
            raise InvalidRequest(f"{name}: expected at most {MAX_PATTERNS} patterns")
    return tuple(map(check_pattern, lists[0])), tuple(map(check_pattern, lists[1]))


def store(client: Client, user: str, subscribe: tuple[str, ...], publish: tuple[str, ...], for_s: int) -> Explicit:
    """Replace a user's grants for `for_s` seconds from now; a later call wins. Waits for Redis, two round trips.

    Raises LimitReached: MAX_REGRANTS are active; BusUnavailable, BusRefused: as `redis.client.call`. Retrying is safe.
    """
    now_s = time_at(client, REGRANTED)
    if int(call(client, "HLEN", REGRANTED)) >= MAX_REGRANTS:
        _sweep(client, now_s, user)
    explicit = Explicit(subscribe, publish, now_s + for_s, now_s)
    write_all(client, [("HSET", REGRANTED, user, encode(explicit)), ("EXPIRE", REGRANTED, MAX_REGRANTED_S)])
    return explicit


def lift(client: Client, user: str) -> None:
    """Restore a user's own grants. Two round trips.

    Raises BusUnavailable, BusRefused: as `redis.client.call`. Retrying is safe.
    """
    now_s = time_at(client, REGRANTED)
    if int(call(client, "HLEN", REGRANTED)) >= MAX_REGRANTS:
        call(client, "HDEL", REGRANTED, user)
    else:
        lifted = encode(Explicit((), (), 0, now_s))  # ended, even if Redis' clock is set back
        write_all(client, [("HSET", REGRANTED, user, lifted), ("EXPIRE", REGRANTED, MAX_REGRANTED_S)])


def read_stored(client: Client) -> tuple[int, dict[str, Explicit]]:
    """Return Redis' time and the explicit grants, including ended ones. Two round trips.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    fields: Mapping[bytes, bytes] = call(client, "HGETALL", REGRANTED)
    now_s = time_at(client, REGRANTED)
    grants = {name.decode("utf-8", "replace"): _readable(value) for name, value in fields.items()}
    return now_s, {user: each for user, each in grants.items() if each is not None}


def read_regrant(client: Client, user: str) -> tuple[Explicit, int] | None:
    """Return a user's explicit grants with their remaining seconds (ended or lifted: 0 or less), if any. Two round trips.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    value: bytes | None = call(client, "HGET", REGRANTED, user)
    regrant = None if value is None else _readable(value)
    return None if regrant is None else (regrant, regrant.until_s - time_at(client, REGRANTED))


class Regrants:
    """A gateway's copy of the explicit grants. No I/O. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._of: dict[str, tuple[Explicit, float]] = {}
        self._lifted: dict[str, tuple[Explicit, float]] = {}  # with the end of the lifted grants

    def replace(self, grants: Mapping[str, tuple[Explicit, int]]) -> list[str]:
        """Replace the whole copy. Values carry their remaining seconds. Returns the users with changed grants."""
        known, now_s = self._active(self._of), self._now_s()
        self._of = {user: (each, now_s + left_s) for user, (each, left_s) in grants.items()}
        return [user for user in {**known, **self._of} if known.get(user) != self.of(user)]

    def known(self) -> dict[str, Explicit]:
        """Return the active explicit grants, and a newer decision for each lifted one."""
        self._lifted = {user: self._lifted[user] for user in self._active(self._lifted)}
        return {user: each for user, (each, _) in self._lifted.items()} | self._active(self._of)

    def put(self, user: str, explicit: Explicit | None, left_s: int) -> None:
        """Set a user's explicit grants, or remove them with None."""
        lifted = self._of.pop(user, None)
        if explicit is not None:
            self._of[user] = (explicit, self._now_s() + left_s)
        elif lifted is not None and len(self._lifted) < MAX_REGRANTS:
            self._lifted[user] = Explicit((), (), 0, lifted[0].at_s + 1), lifted[1]

    def of(self, user: str) -> Explicit | None:
        """Return a user's explicit grants, if any."""
        regrant = self._of.get(user)
        return regrant[0] if regrant is not None and regrant[1] > self._now_s() else None

    def take_ended(self) -> list[str]:
        """Remove ended grants and return their users."""
        now_s = self._now_s()
        ended = [user for user, (_, until_s) in self._of.items() if until_s <= now_s]
        for user in ended:
            del self._of[user]
        return ended

    def apply(self, identity: Identity) -> Identity:
        """Return an identity with its explicit grants applied."""
        explicit = self.of(identity.user) if self._of else None
        return identity if explicit is None else explicit.over(identity)

    def _active(self, grants: Mapping[str, tuple[Explicit, float]]) -> dict[str, Explicit]:
        now_s = self._now_s()
        return {user: each for user, (each, until_s) in grants.items() if until_s > now_s}


def _readable(value: bytes) -> Explicit | None:
    try:
        return _read(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # another program wrote this


def _sweep(client: Client, now_s: int, user: str) -> None:
    """Remove ended grants to make room. Raises LimitReached if none has ended and `user` has none to replace."""
    fields: Mapping[bytes, bytes] = call(client, "HGETALL", REGRANTED)
    ended = [name for name, value in fields.items() if (each := _readable(value)) is None or each.until_s <= now_s]
    if ended:
        call(client, "HDEL", REGRANTED, *ended)
    elif user.encode() not in fields:
        raise LimitReached("regrants", MAX_REGRANTS)
