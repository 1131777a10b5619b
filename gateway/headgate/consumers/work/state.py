"""A consumer's small shared memory in Redis, on the group's own keys. Every key expires.

In: the group's store. Names of any text become keys `hg:{N}:group:<group>:state:<kind>:<name>`, with a hash
in place of a name that is long or has unusual characters. Redis' clock counts where two instances must agree. The methods
convert its times to this machine's clock.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Mapping, Sequence

from headgate.consumers.base import Context, Progress
from headgate.consumers.notification import OUTCOMES
from headgate.redis.client import Client, call, call_all, call_at
from headgate.redis.connections import Command
from headgate.redis.inbox import UserFacts, read_user_facts
from headgate.redis.keys import group_key, log_key
from headgate.services.publisher import Publisher

from .spec import ConsumerSpec
from .store import Store

# Duration of a consumer's records for a user, and their maximum per user.
OUTCOME_S, MAX_OUTCOMES = 86400.0, 1000
_PLAIN = re.compile(r"[A-Za-z0-9_.:@-]{1,64}", re.ASCII)


class State:
    """A consumer's small shared memory in Redis, common to all its instances. One of these objects holds a lease at a time.

    Names are any text, separate from those of other consumers. Methods wait for Redis. Raises (all): BusUnavailable,
    BusRefused: as `redis.client.call`. Uncaught, they count as `Retry`.
    """

    def __init__(self, store: Store) -> None:
        self._client, self._store = store.client, store
        self._holder = uuid.uuid4().hex
        self._prefix = group_key(store.namespace, store.group) + ":state:"

    def within_rate(self, name: str, limit: int, period_s: float, one: str | None = None) -> float | None:
        """Count one against `limit` in `period_s`. Returns None if within, else when there is room again (since 1970).

        `one` names the counted work, which counts once in the period even if answers of Redis are lost. None: each call counts.
        """
        # The limit applies to every interval of `period_s`, not to fixed ones.
        at_ms = self._store.call("state_rate", _suffix("rate", name), limit, _ms(period_s), one or uuid.uuid4().hex)
        if at_ms < 0:
            return None
        seconds, microseconds = call_at(self._client, log_key(self._store.namespace), "TIME")
        return time.time() + float(at_ms) / 1000 - (int(seconds) + int(microseconds) / 1e6)

    def add(self, amounts: Mapping[tuple[str, int], float], ttl_s: float) -> None:
        """Add (name, time bucket) → amount to counters, in one round trip. Each lasts `ttl_s` from its last change."""
        commands: list[Command] = []
        for (name, bucket), amount in amounts.items():
            key = self._sum(name, bucket)
            commands += [("INCRBYFLOAT", key, repr(float(amount))), ("PEXPIRE", key, _ms(ttl_s))]
        if commands:
            call_all(self._client, commands)

    def sums(self, wanted: Sequence[tuple[str, range]]) -> list[float]:
        """Return for each name the sum over its buckets, in one round trip."""
        keys = [self._sum(name, bucket) for name, buckets in wanted for bucket in buckets]
        values = iter(call(self._client, "MGET", *keys) if keys else ())
        return [sum(float(next(values) or 0) for _ in buckets) for _, buckets in wanted]

    def get(self, name: str) -> bytes | None:
        """Return the value of `put`, or None."""
        value: bytes | None = call(self._client, "GET", self._prefix + _suffix("value", name))
        return value

    def put(self, name: str, value: bytes, ttl_s: float) -> None:
        """Store a small value for `ttl_s`."""
        self._store.call("state_put", _suffix("value", name), value, _ms(ttl_s))

    def lease(self, name: str, for_s: float) -> bool:
        """Take or renew an exclusive lease; return whether this instance has it for `for_s` from now."""
        return bool(self._store.call("state_lease", _suffix("lease", name), self._holder, _ms(for_s)))

    def user_facts(self, user: str, topic: str, event_id: str) -> UserFacts:
        """Return a user's actions on an event, and the channels on which the user has muted its topic."""
        return read_user_facts(self._client, self._store.namespace, user, topic, event_id)

    def record(self, user: str, event_id: str, outcome: str) -> None:
        """Record for a day the outcome of an event for a user. Keeps the newest 1,000 of each user."""
        self._store.call("state_record", _suffix("outcome", user), f"{outcome} {event_id}", _ms(OUTCOME_S), MAX_OUTCOMES)

    def progress(self) -> Progress:
        """Return the progress of the consumer, in one step and one round trip."""
        return self._store.progress()

    def _sum(self, name: str, bucket: int) -> str:
        return f"{self._prefix}{_suffix('sum', name)}:{bucket}"


def context_of(spec: ConsumerSpec, store: Store, publisher: Publisher) -> Context:
    """Return the context for an object of the consumer's class."""
    return Context(spec.name, spec.namespace, State(store), publisher, spec.runner.rate, spec.runner.rate_period_s)


def read_outcomes(client: Client, namespace: str, consumer: str, user: str, event_id: str) -> list[str]:
    """Return a consumer's records of an event for a user, of `notification.OUTCOMES`. Raises as `redis.client.call`."""
    key = f"{group_key(namespace, consumer)}:state:{_suffix('outcome', user)}"
    scores = call(client, "ZMSCORE", key, *(f"{outcome} {event_id}" for outcome in OUTCOMES))
    return [outcome for outcome, score in zip(OUTCOMES, scores, strict=True) if score is not None]


def _suffix(kind: str, name: str) -> str:
    """Return the end of a key. No plain name begins with `=`, which marks a hash."""
    plain = _PLAIN.fullmatch(name)
    return f"{kind}:{name}" if plain else f"{kind}:={hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
