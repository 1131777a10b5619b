"""The interface of a consumer, with the base class, its deliveries, and its possible answers. No I/O.

In: deliveries, one after the other, from the runner. Out: nothing (done), a `Defer` (later), `Retry` (a temporary failure),
`OutcomeUnknown` (it may have worked) or `Reject` (a permanent failure). Any other exception counts as a fault of the consumer's
code. The runner logs it with its traceback and tries again, until it sets the event aside.

A delivery repeats if a process dies between doing and acknowledging it. `Delivery.identity` is the same for every attempt, so a
receiver can recognize duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headgate.events.event import Event

if TYPE_CHECKING:
    from headgate.services.publisher import Publisher

    from .work.state import State


class Delivery(Event, frozen=True, gc=False):
    """An event for a consumer, with the fields of an Event (topic, data, id, time_ms, epoch, offset; `value()` decodes the data).

    `key` names one part of the event's work, such as one recipient of a mail ("" if there is only one part). `attempt` counts
    the deliveries of this part from 1. `deferred` marks a delivery after a `Defer`, and `unknown` counts earlier attempts without
    a known outcome. `admitted` means that it has been counted for the rate.
    """

    namespace: str = ""
    consumer: str = ""
    key: str = ""
    attempt: int = 1
    deferred: bool = False
    unknown: int = 0
    admitted: bool = False

    @property
    def identity(self) -> str:
        """The name of this work (consumer, namespace, epoch, offset and key), the same for every attempt."""
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

    # For a subclass with an `__init__` that does not call this one.
    reason: str = "no reason given"
    after_s: float | None = None

    def __init__(self, reason: object = "no reason given", after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.after_s = _words(reason), None if after_s is None else float(after_s)


class OutcomeUnknown(Retry):
    """It may have worked, because everything was sent but the answer was lost or late.

    It is tried again after `retry_last_s` or later. After the third attempt without a known outcome the event goes to
    the dead letters as `outcome_unknown`.
    """


class Reject(Exception):
    """A permanent failure. The event goes to the dead letters at once, with this reason (no secret, nothing of the payload)."""

    reason: str = "no reason given"

    def __init__(self, reason: object = "no reason given") -> None:
        super().__init__(reason)
        self.reason = _words(reason)


class Progress(NamedTuple):
    """The progress of a consumer, in whole milliseconds since 1970 by Redis' clock, rounded down as an event's time is.

    The instances have answered every event before `handled_ms`. It is the time of the oldest event not yet taken or
    acknowledged, else `now_ms`. Events that are deferred or wait for another attempt count as answered.
    `now_ms` is never before the newest event of the log.
    """

    now_ms: int
    handled_ms: int


@dataclass(frozen=True, slots=True)
class Context:
    """The name, namespace and state of a consumer, and a publisher for its own events.

    `rate` and `rate_period_s` are for a consumer that `keeps_rate` itself.
    """

    name: str
    namespace: str
    state: State
    publisher: Publisher
    rate: int = 0
    rate_period_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a consumer without any."""


class Consumer:
    """The base class of consumers. Override `handle`. One object serves one thread, and its methods never run concurrently.

    `Options` is a frozen dataclass with fields declared by `options.option`. They extend the common options in the consumer's
    TOML table. With `batch = True`, `handle_many` gets whole pages instead, which is faster, but the whole page repeats if the
    process dies within it.
    """

    Options: ClassVar[type] = NoOptions
    batch: ClassVar[bool] = False
    # Whether it enforces `rate` itself, for example by collecting. Otherwise the runner defers events beyond it before `handle`.
    keeps_rate: ClassVar[bool] = False
    # Seconds between calls of `tick`; None for no calls.
    tick_s: ClassVar[float | None] = None

    def __init__(self, options: Any, context: Context) -> None:
        self.options, self.context = options, context

    @classmethod
    def check(cls, options: Any, patterns: Sequence[str]) -> list[str]:
        """Return the joint faults of valid options (templates, files, contradictions), a line each."""
        return []

    @classmethod
    def channel(cls, options: Any) -> str | None:
        """Return the channel to users, `mail` or `push`, with these options; None if it does not send to users."""
        return None

    def start(self) -> None:
        """Called once before the first delivery, in the worker's thread."""

    def keys(self, delivery: Delivery) -> Sequence[str]:
        """Name the parts of this event's work, to be delivered, retried and acknowledged separately. None ignore the event.

        Raises as `handle`.
        """
        return ("",)

    def handle(self, delivery: Delivery) -> Defer | None:
        """Do the work of one delivery. Raises Retry, OutcomeUnknown or Reject."""
        raise NotImplementedError

    def handle_together(self, key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        """Do the work of all deliveries deferred together under one key, oldest first. Raises as `handle`, for all of them."""
        raise NotImplementedError

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        """Do the work of a page (`batch = True`). Raises as `handle`. A `Retry` or fault repeats each delivery.

        It returns None. Anything else, such as a `Defer`, is a fault of the code.
        """
        raise NotImplementedError

    def pause_s(self) -> float:
        """Return how long the receiver takes nothing at all from this object; 0 if it does.

        While it takes work from another thread of this process, this thread leaves the work to that one.
        """
        return 0.0

    def tick(self) -> None:
        """Called every `tick_s` between deliveries, in the worker's thread, even without deliveries."""

    def preview(self, delivery: Delivery) -> str:
        """Describe in a few lines what `handle` would do, for `--dry-run`, without doing it."""
        return f"{type(self).__name__}: {delivery.topic}"

    def close(self) -> None:
        """Called once after the last delivery, to close connections."""


def _words(reason: object) -> str:
    """Return a reason, which may be an exception or have lone surrogates (a file's name), as text that UTF-8 can encode."""
    return str(reason).encode(errors="replace").decode()
