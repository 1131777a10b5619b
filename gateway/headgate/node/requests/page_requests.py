"""Runs functions of the application for requests of pages (`Headgate.on_request`).

In: checked requests of joined clients, and their cancellations (requests.py). Out: exactly one acknowledgement for each, with
the answer of the function, its refusal, `timed_out` or `request_failed`.

Each function runs in its own greenlet, because an answer may take seconds and the client's other messages must not wait. A late
or cancelled request is answered at once, and its function is stopped at its next wait. It counts until it has ended, so that
the number of functions is bounded, too. If a page leaves, its functions keep running, and their answers are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import msgspec
import structlog

from headgate.auth.identity import Answerer, PageRequest
from headgate.errors import (
    HeadgateError,
    InvalidRequest,
    LimitReached,
    PayloadTooLarge,
    RequestFailed,
    RequestTimedOut,
    UnknownRequest,
)
from headgate.events.json_data import encode_data
from headgate.events.wire.packets import ok, refused
from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.logging import wire_form
from headgate.runtime.loop import call_application, repeat, spawn
from headgate.runtime.metrics import PAGE_REQUEST, PAGE_REQUESTS, PAGE_REQUESTS_RUNNING
from headgate.runtime.rates import Rates
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import Acknowledge, Later

# Functions of all users together. Each has a greenlet and perhaps a connection to a database.
MAX_RUNNING = 500
RETRY_S = 1

log = structlog.get_logger("headgate.page_requests")


class PageRequests:
    """See the module. `answerers` has the functions by the name of the request. The mapping may grow."""

    def __init__(self, settings: Settings) -> None:
        self.answerers: Mapping[str, Answerer] = {}
        self._settings = settings
        self._rates = Rates(settings.requests_per_s, math.ceil(2 * settings.requests_per_s))
        self._running: dict[tuple[str, str], _Running] = {}
        self._log_throttle = LogThrottle()  # by the name of the request, because clients decide how often a function fails

    def begin(self, account: str, request: PageRequest, timeout_s: float, connection: object = None) -> Later:
        """Check a request of a user or an address; return a Later that runs its function, for at most `request_timeout_s`.

        `connection` waits for the answer (`asking`). Raises UnknownRequest, InvalidRequest, LimitReached.
        """
        answerer, settings = self.answerers.get(request.name), self._settings
        if answerer is None:
            raise UnknownRequest(request.name)
        if (account, request.id) in self._running:
            raise InvalidRequest("id: another request of this user has it, and waits for its answer")
        if sum(caller == account for caller, _ in self._running) >= settings.max_requests:
            raise LimitReached("max_requests", settings.max_requests, RETRY_S)
        if len(self._running) >= MAX_RUNNING:
            raise LimitReached("requests_running", MAX_RUNNING, RETRY_S)
        if wait_s := self._rates.spend(account, monotonic()):
            raise LimitReached("requests_per_s", settings.requests_per_s, wait_s)
        limit_s = min(timeout_s, settings.request_timeout_s)

        def run(acknowledge: Acknowledge) -> Callable[[], object]:
            function = partial(answerer, request)
            running = _Running(request, function, acknowledge, connection, settings.max_payload_bytes, self._log_throttle)
            self._running[account, request.id] = running
            running.start(limit_s, lambda: self._ended(account, request.id))
            PAGE_REQUESTS_RUNNING.set(len(self._running))
            return running.cancel

        return run

    def cancel(self, account: str, request_id: str) -> bool:
        """Stop the function of a request; return whether it ran. It may have had effects."""
        running = self._running.get((account, request_id))
        return running is not None and running.cancel()

    def asking(self) -> frozenset[object]:
        """Return the connections with an unanswered request, including closed ones."""
        return frozenset(running.connection for running in self._running.values() if not running.answered)

    def _ended(self, account: str, request_id: str) -> None:
        del self._running[account, request_id]
        PAGE_REQUESTS_RUNNING.set(len(self._running))


@dataclass(eq=False)
class _Running:
    """A running function. Its request is answered once, by the function or before it has ended."""

    request: PageRequest
    function: Callable[[], object]
    acknowledge: Acknowledge | None  # None once it is answered
    connection: object
    max_bytes: int
    log_throttle: LogThrottle

    @property
    def answered(self) -> bool:
        return self.acknowledge is None

    def start(self, limit_s: float, ended: Callable[[], object]) -> None:
        self._began_s = monotonic()
        self._timer = repeat(limit_s, lambda: self._stop("timed_out", RequestTimedOut(self.request.name, limit_s)))
        self._greenlet = spawn(self._run)
        self._greenlet.rawlink(lambda _: ended())

    def cancel(self) -> bool:
        """Answer, and stop the function. Idempotent. Callable from the hub."""
        return self._stop("cancelled", RequestFailed(self.request.name, "it was cancelled"))

    def _stop(self, outcome: str, error: HeadgateError) -> bool:
        if self.acknowledge is None:
            return False
        self._answer(outcome, refused(wire_form(error)))
        self._greenlet.kill(block=False)
        return True

    def _run(self) -> None:
        outcome, answer = "failed", refused(wire_form(RequestFailed(self.request.name, "its function ended without an answer")))
        try:
            outcome, answer = self._call()
        finally:
            self._answer(outcome, answer)

    def _call(self) -> tuple[str, dict[str, Any]]:
        """Run the function; return the outcome and the acknowledgement."""
        name, outcome = self.request.name, "answered"
        try:
            answer = call_application(self.function)
        except HeadgateError as error:
            outcome, answer = "refused", wire_form(error)
        except Exception:
            log.exception("a page request failed", request=name)
            return "failed", refused(wire_form(RequestFailed(name, "its function raised an exception")))
        try:
            data = encode_data(answer)
            if len(data) > self.max_bytes:
                raise PayloadTooLarge(len(data), self.max_bytes, "answer")
        except HeadgateError as error:
            if (left_out := self.log_throttle.due(name)) is not None:
                log.error("an answer to a page request cannot be sent", request=name, reason=error.message, left_out=left_out)
            return "failed", refused(wire_form(error))
        part = msgspec.Raw(data)
        return outcome, ok(data=part) if outcome == "answered" else {"ok": False, "error": part}

    def _answer(self, outcome: str, answer: Mapping[str, object]) -> None:
        acknowledge, self.acknowledge = self.acknowledge, None
        if acknowledge is not None:
            self._timer.close()
            PAGE_REQUESTS.labels(self.request.namespace, outcome).inc()
            PAGE_REQUEST.of().record(monotonic() - self._began_s)
            acknowledge(answer)
