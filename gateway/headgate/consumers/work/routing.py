"""Routes an event to its user by mail or push only if the user has not seen or muted it, and wants it.

In: a due delivery. Out: how long it waits for the user, or why it is withdrawn. After the wait (`unless_seen_s`,
`unless_read_s`), the user's actions decide first, then the user's mutes, then the application's `wants`. An event without a
user goes at once.

If `wants` raises, blocks, or returns no boolean, the notification goes out, and the fault is counted and logged. `wants` runs
in one permanent thread, because applications have connections per thread. While it blocks it is not called again, so a worker
has at most one such thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from headgate.consumers.base import Consumer, Delivery, Reject
from headgate.consumers.notification import MUTED, READ, SEEN, SENT_ON, UNWANTED
from headgate.consumers.templates import Template, render_event, template_faults
from headgate.errors import BusRefused, BusUnavailable, InvalidRequest
from headgate.events.topic import INBOX, USERS, is_item, overlaps, user_of

from .spec import ConsumerSpec, RunnerOptions
from .state import State

MAX_USER_CHARACTERS = 1000
ITEMS = f"{USERS}.*.{INBOX}.*.#"
WANTS_WITHIN_S = 2.0
RAISED, LATE, NO_BOOLEAN = "raised", "late", "no_boolean"
WANTS_FAULTS = (RAISED, LATE, NO_BOOLEAN)
Wants = Callable[[str, Delivery, str], bool]
_Call = tuple[Future[object], tuple[str, Delivery, str]]


class Routing:
    """The routing of one worker. `fault` is passed to `WantsThread`."""

    def __init__(self, spec: ConsumerSpec, state: State, fault: Callable[[str, BaseException | None], None]) -> None:
        self._options, self._state = spec.runner, state
        self.channel = channel_of(spec.runner, spec.consumer, spec.options)
        source = spec.runner.seen_user
        self._template = None if source is None else Template("seen_user", source, limit=MAX_USER_CHARACTERS)
        self._wants_thread = None if spec.runner.wants is None else WantsThread(spec.runner.wants, fault)
        self.is_on = self.channel is not None or bool(spec.runner.unless_seen_s or spec.runner.unless_read_s)

    def user(self, delivery: Delivery) -> str | None:
        """Return the user of an event, or None if it is for several. Raises Reject if `seen_user` does not fit the event."""
        if self._template is None or is_item(delivery.topic):
            return user_of(delivery.topic)
        return render_event(self._template, delivery) or None

    def wait_ms(self, topic: str, age_ms: int) -> int:
        """Return how much longer a new event of this age waits for its user; 0 for no longer."""
        options = self._options
        wait_s = max(options.unless_seen_s, options.unless_read_s if is_item(topic) else 0.0)
        return max(0, round(1000 * wait_s) - max(0, age_ms))

    def withdrawn(self, user: str, delivery: Delivery, *, is_first: bool) -> str | None:
        """Return why a user's event must not be sent, one of `notification.WITHDRAWN`, or None to send it. Waits for Redis.

        Args:
            is_first: whether to ask the application, too. It is asked once, not for each attempt or each part of the work.

        Raises:
            Reject: the user's name is invalid.
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        try:
            facts = self._state.user_facts(user, delivery.topic, delivery.id or "")
        except InvalidRequest as error:
            raise Reject(error.message) from error
        options = self._options
        if facts.is_read and (options.unless_seen_s or options.unless_read_s):
            return READ
        if facts.is_shown and options.unless_seen_s:
            return SEEN
        if self.channel is None:
            return None
        if self.channel in facts.muted:
            return MUTED
        return (
            None
            if not is_first or self._wants_thread is None or self._wants_thread.ask(user, delivery, self.channel)
            else UNWANTED
        )

    def sent(self, deliveries: Sequence[Delivery]) -> None:
        """Record for `headgate trace` that these were sent to their users, if Redis accepts it."""
        if self.channel is None:
            return
        for delivery in deliveries:
            with suppress(Reject):
                self.record(self.user(delivery), delivery, SENT_ON[self.channel])

    def record(self, user: str | None, delivery: Delivery, outcome: str) -> None:
        """Record an outcome of `notification.OUTCOMES` for `headgate trace`. An error of Redis is ignored."""
        if user is not None:
            with suppress(BusUnavailable, BusRefused):
                self._state.record(user, delivery.id or "", outcome)

    def close(self) -> None:
        """End the thread that asks the application."""
        if self._wants_thread is not None:
            self._wants_thread.close()


class WantsThread:
    """Calls one function, from one thread.

    Args:
        fault: called with one of WANTS_FAULTS, and the exception, if any.
    """

    def __init__(
        self, wants: Wants, fault: Callable[[str, BaseException | None], None], within_s: float = WANTS_WITHIN_S
    ) -> None:
        self._wants, self._fault, self._within_s = wants, fault, within_s
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._blocked: Future[object] | None = None
        threading.Thread(target=self._run, name="wants", daemon=True).start()

    def ask(self, user: str, delivery: Delivery, channel: str) -> bool:
        """Return the function's answer, whether the user wants it, or True without an answer in time. Never raises."""
        answer: Future[object] = Future()
        if self._blocked is None or self._blocked.done():
            self._blocked = answer
            self._calls.put((answer, (user, delivery, channel)))
            wait((answer,), self._within_s)
        if not answer.done():
            self._fault(LATE, None)
        elif (error := answer.exception()) is not None:
            self._fault(RAISED, error)
        elif isinstance(result := answer.result(), bool):
            return result
        else:
            self._fault(NO_BOOLEAN, None)
        return True

    def close(self) -> None:
        """End the thread when the function returns."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            answer, arguments = call
            try:
                answer.set_result(self._wants(*arguments))
            except BaseException as error:  # noqa: BLE001 - an operator's code; the caller counts and logs it
                answer.set_exception(error)


def channel_of(runner: RunnerOptions, consumer: type[Consumer], options: Any) -> str | None:
    """Return the channel of a consumer, from its table, else from its type."""
    channel = runner.channel or consumer.channel(options)
    return None if channel == "none" else channel


def routing_faults(runner: RunnerOptions, consumer: type[Consumer], options: Any, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the joint faults of valid routing options, a line each."""
    names = ("unless_seen_s", "unless_read_s", "seen_user", "channel", "rate", "wants")
    given = [name for name in names if getattr(runner, name)]
    if consumer.batch:
        yield from (f"{name} is for types that take events one by one; this one takes pages" for name in given)
        return
    if runner.seen_user is None and not any(pattern.split(".")[0] in (USERS, "*", "#") for pattern in patterns):
        for name in [name for name in given if name in ("unless_seen_s", "wants")]:
            yield f"{name}: no pattern has topics of users ({USERS}.<user>.…); expected seen_user to name the user"
    if runner.unless_read_s and not any(overlaps(pattern, ITEMS) for pattern in patterns):
        yield f"unless_read_s: no pattern has items of inboxes; expected one such as {ITEMS}"
    yield from template_faults("seen_user", runner.seen_user, MAX_USER_CHARACTERS)
    if runner.wants is not None and channel_of(runner, consumer, options) is None:
        yield "wants: this consumer is no channel of a user; expected channel to be mail or push"
