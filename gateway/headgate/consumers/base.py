"""The interface of a consumer: the class to derive from, its deliveries, and its possible answers. No I/O.

In: deliveries, one after the other, from the runner. Out: nothing (done), a `Defer` (later), `Retry` (it will pass),
`OutcomeUnknown` (it may have worked) or `Reject` (it never will). Any other exception counts as a fault of its code: it is logged
with its traceback and tried again, until the event is set aside.

Every delivery may come twice (a process that dies between doing and acknowledging), so `Delivery.identity` names the work:
the same for every attempt, and a receiver can recognise a double by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from headgate.events.event import Event

if TYPE_CHECKING:
    from headgate.redis.user_facts import UserFacts
    from headgate.services.publisher import Receipt


class Delivery(Event, frozen=True, gc=False):
    """An event as a consumer is handed it: an Event (topic, data, id, time_ms, epoch, offset; `value()` decodes the data).

    `key` names one part of the event's work, such as one recipient of a mail ("" when there is only one part); `attempt` is 1 at
    first and counts every time that this part was handed out; `deferred` says that a `Defer` brought it back.
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
    """An answer to a delivery: keep it, durably, and bring it back at `until_s` (seconds since 1970).

    `together` brings all that are deferred under the same key in one call of `handle_together`, when the first of them is due.
    """

    until_s: float
    together: bool = False


class Retry(Exception):
    """It did not work and will pass: try again, later and later. `after_s` sets the least wait.

    The reason is shown to operators: it must hold no secret and nothing of the payload.
    """

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.after_s = reason, after_s


class OutcomeUnknown(Retry):
    """It may have worked: everything was sent, and the answer was lost or did not come in time.

    It is tried again, but no sooner than after `retry_last_s`. After the third attempt without a known outcome the event goes to
    the dead letters as `outcome_unknown`.
    """


class Reject(Exception):
    """It will never work: the event goes to the dead letters at once, with this reason (no secret, nothing of the payload)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Progress(NamedTuple):
    """How far a consumer has come, in milliseconds since 1970 by Redis' clock, whole and rounded down as an event's time is.

    Every event before `handled_ms` has been answered by all instances: it is the time of the oldest that is not (not yet taken,
    or taken and not yet acknowledged), else `now_ms`. Events that are deferred or wait for another attempt count as answered.
    `now_ms` is never before the newest event of the log.
    """

    now_ms: int
    handled_ms: int


class State(Protocol):
    """A consumer's small shared memory in Redis, one for all its instances. Every entry ends by itself.

    Names are the consumer's own (any text); they are kept apart from other consumers'. Methods wait for Redis.

    Raises (all): BusUnavailable, BusRefused: as `redis.client.call`. Not caught, they count as `Retry`.
    """

    def window(self, name: str, length_s: float) -> float | None:
        """Open a window of `length_s` unless one is open: None when it was opened now, else when it ends (since 1970)."""

    def within_rate(self, name: str, limit: int, period_s: float) -> float | None:
        """Count one against `limit` in `period_s`: None when it was within, else when there is room again (since 1970)."""

    def add(self, amounts: Mapping[tuple[str, int], float], ttl_s: float) -> None:
        """Add amounts to counters, (name, time bucket) → amount, in one round trip; each ends `ttl_s` after its last change."""

    def sums(self, wanted: Sequence[tuple[str, range]]) -> list[float]:
        """Return for each name the sum over its buckets, in one round trip."""

    def get(self, name: str) -> bytes | None:
        """Return what `put` kept, or None."""

    def put(self, name: str, value: bytes, ttl_s: float) -> None:
        """Keep a small value for `ttl_s`."""

    def lease(self, name: str, for_s: float) -> bool:
        """Take or renew a lease that one instance holds at a time; return whether it is ours for `for_s` from now."""

    def user_facts(self, user: str, topic: str, event_id: str) -> UserFacts:
        """Return what a user has done about an event, and on which channels the user has muted its topic."""

    def record(self, user: str, event_id: str, outcome: str) -> None:
        """Keep for a day what was done with an event for a user: the newest 1,000 of each user."""

    def progress(self) -> Progress:
        """Return how far the consumer has come, in one step and one round trip."""


class Publishing(Protocol):
    """The part of Publisher that a consumer has: see publisher.Publisher.publish."""

    def publish(
        self, topic: str, data: object, id: str | None = None, namespace: str | None = None, *, user: str | None = None
    ) -> Receipt: ...


@dataclass(frozen=True, slots=True)
class Context:
    """Given to a consumer beside its options: its name, its namespace, its state, and a publisher for events of its own.

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
    """The options of a consumer that has none."""


class Consumer:
    """Derive from this, and write `handle`. One object serves one worker thread; no method is called by two at once.

    `Options` is a frozen dataclass whose fields are declared with `options.option`: it is what may stand in the consumer's TOML
    table beside what every consumer has. `batch = True` hands `handle_many` whole pages instead: quicker, and all of a page comes
    again when the process dies inside.
    """

    Options: ClassVar[type] = NoOptions
    batch: ClassVar[bool] = False
    # Whether it keeps `rate` itself, as by collecting; else an event beyond it is deferred before `handle`.
    keeps_rate: ClassVar[bool] = False
    # Seconds between calls of `tick`; None: never.
    tick_s: ClassVar[float | None] = None

    def __init__(self, options: Any, context: Context) -> None:
        self.options, self.context = options, context

    @classmethod
    def check(cls, options: Any, patterns: Sequence[str]) -> list[str]:
        """Return what is wrong with options that are right one by one (templates, files, contradictions), a line each."""
        return []

    @classmethod
    def channel(cls, options: Any) -> str | None:
        """Return the channel of its users that it is with these options, `mail` or `push`; None: it reaches no user."""
        return None

    def start(self) -> None:
        """Called once before the first delivery, in the worker's thread."""

    def keys(self, delivery: Delivery) -> Sequence[str]:
        """Name the parts of this event's work: each is handed out, tried again and acknowledged by itself. None: ignore it.

        Raises: as `handle`.
        """
        return ("",)

    def handle(self, delivery: Delivery) -> Defer | None:
        """Do the work of one delivery.

        Raises:
            Retry, OutcomeUnknown, Reject: see there.
        """
        raise NotImplementedError

    def handle_together(self, key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        """Do the work of all that were deferred together under one key, oldest first. Raises as `handle`, for all of them."""
        raise NotImplementedError

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        """Do the work of a page (`batch = True`). Raises as `handle`; a `Retry` or fault has each of them tried again."""
        raise NotImplementedError

    def tick(self) -> None:
        """Called every `tick_s` between deliveries, in the worker's thread, whether or not there are any."""

    def preview(self, delivery: Delivery) -> str:
        """Say in a few lines what `handle` would do: what `--dry-run` prints. Does nothing."""
        return f"{type(self).__name__}: {delivery.topic}"

    def close(self) -> None:
        """Called once after the last delivery: let go of connections."""
