"""The interface of a consumer: the class to derive from, its deliveries, and its possible answers. No I/O.

In: deliveries, one after the other, from the runner. Out: nothing (done), a `Defer` (later), `Retry` (a temporary failure),
`OutcomeUnknown` (it may have worked) or `Reject` (a permanent failure). Any other exception counts as a fault of the consumer's
code. It is logged with its traceback and tried again, until the event is set aside.

Every delivery may repeat, if a process dies between doing and acknowledging it. `Delivery.identity` names the work, the same for
every attempt, so a receiver can recognise duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from headgate.events.event import Event

if TYPE_CHECKING:
    from headgate.redis.inbox import UserFacts
    from headgate.services.publisher import Receipt


class Delivery(Event, frozen=True, gc=False):
    """An event for a consumer, with the fields of an Event (topic, data, id, time_ms, epoch, offset; `value()` decodes the data).

    `key` names one part of the event's work, such as one recipient of a mail ("" if there is only one part); `attempt` is 1 at
    first and counts the deliveries of this part; `deferred` marks one that follows a `Defer`.
    """

    namespace: str = ""
    consumer: str = ""
    key: str = ""
    attempt: int = 1
    deferred: bool = False

    @property
    def identity(self) -> str:
        """The name of this work, the same for every attempt: consumer, namespace, epoch, offset and key."""
        return f"{self.consumer}:{self.namespace}:{self.epoch}-{self.offset}" + (f":{self.key}" if self.key else "")


@dataclass(frozen=True, slots=True)
class Defer:
    """Store the delivery, and repeat it at `until_s` (seconds since 1970).

    With `together`, all deliveries deferred under the same key arrive in one call of `handle_together`, when the first is due.
    """

    until_s: float
    together: bool = False


class Retry(Exception):
    """A temporary failure. The work is tried again, with growing delays. `after_s` sets the least delay.

    Operators see the reason, so it must contain no secret and nothing of the payload.
    """

    # Of a subclass whose own `__init__` does not call this one.
    reason: str = "no reason given"
    after_s: float | None = None

    def __init__(self, reason: object, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.after_s = _words(reason), None if after_s is None else float(after_s)


class OutcomeUnknown(Retry):
    """It may have worked, as everything was sent, and the answer was lost or late.

    It is tried again, but no sooner than after `retry_last_s`. After the third attempt without a known outcome the event goes to
    the dead letters as `outcome_unknown`.
    """


class Reject(Exception):
    """A permanent failure. The event goes to the dead letters at once, with this reason (no secret, nothing of the payload)."""

    reason: str = "no reason given"

    def __init__(self, reason: object) -> None:
        super().__init__(reason)
        self.reason = _words(reason)


class Progress(NamedTuple):
    """The progress of a consumer, in milliseconds since 1970 by Redis' clock, whole and rounded down as an event's time is.

    The instances have answered every event before `handled_ms`. It is the time of the oldest unanswered event (not yet taken, or
    taken and not yet acknowledged), else `now_ms`. Events that are deferred or wait for another attempt count as answered.
    `now_ms` is never before the newest event of the log.
    """

    now_ms: int
    handled_ms: int


class State(Protocol):
    """A consumer's small shared memory in Redis, common to all its instances. Every entry expires.

    Names are any text, separate from those of other consumers. Methods wait for Redis. Raises (all): BusUnavailable,
    BusRefused: as `redis.client.call`. Uncaught, they count as `Retry`.
    """

    def window(self, name: str, length_s: float) -> float | None:
        """Open a window of `length_s` unless one is open. Return None if it was opened, else the end of the open one (since
        1970).
        """

    def within_rate(self, name: str, limit: int, period_s: float, one: str | None = None) -> float | None:
        """Count one against `limit` in `period_s`. Return None if it is within, else when there is room again (since 1970).

        `one` names what counts, which counts once in the period, however many answers of Redis are lost. None: each call.
        """

    def add(self, amounts: Mapping[tuple[str, int], float], ttl_s: float) -> None:
        """Add amounts to counters, (name, time bucket) → amount, in one round trip; each lasts `ttl_s` from its last change."""

    def sums(self, wanted: Sequence[tuple[str, range]]) -> list[float]:
        """Return for each name the sum over its buckets, in one round trip."""

    def get(self, name: str) -> bytes | None:
        """Return the value of `put`, or None."""

    def put(self, name: str, value: bytes, ttl_s: float) -> None:
        """Store a small value for `ttl_s`."""

    def lease(self, name: str, for_s: float) -> bool:
        """Take or renew a lease for one instance at a time; return whether it is ours for `for_s` from now."""

    def user_facts(self, user: str, topic: str, event_id: str) -> UserFacts:
        """Return a user's actions on an event, and the channels on which the user has muted its topic."""

    def record(self, user: str, event_id: str, outcome: str) -> None:
        """Record for a day the outcome of an event for a user. Keeps the newest 1,000 of each user."""

    def progress(self) -> Progress:
        """Return the progress of the consumer, in one step and one round trip."""


class Publishing(Protocol):
    """The part of `publisher.Publisher` that a consumer has."""

    def publish(
        self, topic: str, data: object, id: str | None = None, namespace: str | None = None, *, user: str | None = None
    ) -> Receipt: ...


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of a consumer besides its options: name, namespace, state, and a publisher for its own events.

    `rate` and `rate_period_s` are for a consumer that `keeps_rate` itself.
    """

    name: str
    namespace: str
    state: State
    publisher: Publishing
    rate: int = 0
    rate_period_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a consumer without any."""


class Consumer:
    """Derive from this, and write `handle`. One object serves one worker thread, and its methods never run concurrently.

    `Options` is a frozen dataclass whose fields are declared with `options.option`. They extend the common options in the
    consumer's TOML table. `batch = True` passes whole pages to `handle_many` instead, which is faster, but the whole page
    repeats if the process dies within it.
    """

    Options: ClassVar[type] = NoOptions
    batch: ClassVar[bool] = False
    # Whether it enforces `rate` itself, for example by collecting; else the runner defers events beyond it before `handle`.
    keeps_rate: ClassVar[bool] = False
    # Seconds between calls of `tick`; None: never.
    tick_s: ClassVar[float | None] = None

    def __init__(self, options: Any, context: Context) -> None:
        self.options, self.context = options, context

    @classmethod
    def check(cls, options: Any, patterns: Sequence[str]) -> list[str]:
        """Return the faults of options that are valid one by one (templates, files, contradictions), a line each."""
        return []

    @classmethod
    def channel(cls, options: Any) -> str | None:
        """Return the channel to its users that these options make it, `mail` or `push`; None: it reaches no user."""
        return None

    def start(self) -> None:
        """Called once before the first delivery, in the worker's thread."""

    def keys(self, delivery: Delivery) -> Sequence[str]:
        """Name the parts of this event's work. Each is delivered, retried and acknowledged separately. No key: ignore it.

        Raises: as `handle`.
        """
        return ("",)

    def handle(self, delivery: Delivery) -> Defer | None:
        """Do the work of one delivery. Raises Retry, OutcomeUnknown, Reject: see there."""
        raise NotImplementedError

    def handle_together(self, key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        """Do the work of all that were deferred together under one key, oldest first. Raises as `handle`, for all of them."""
        raise NotImplementedError

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        """Do the work of a page (`batch = True`). Raises as `handle`; a `Retry` or fault repeats each of them.

        It returns None. Anything else, such as a `Defer`, is a fault of the code.
        """
        raise NotImplementedError

    def tick(self) -> None:
        """Called every `tick_s` between deliveries, in the worker's thread, whether or not there are any."""

    def preview(self, delivery: Delivery) -> str:
        """Describe in a few lines what `handle` would do, for `--dry-run`, without doing it."""
        return f"{type(self).__name__}: {delivery.topic}"

    def close(self) -> None:
        """Called once after the last delivery, to close connections."""


def _words(reason: object) -> str:
    """Return a reason, which may be an exception or have lone surrogates (a file's name), as text that UTF-8 can encode."""
    return str(reason).encode(errors="replace").decode()
