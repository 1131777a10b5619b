"""The answers of this gateway process to questions that go to all processes (redis/questions.py).

In: the kinds of questions, each from the part that knows the answer; messages of the channel, from the link that brings
revocations. Out: the answers, written to Redis by one of MAX_WORKERS greenlets, off the event path. Questions that may wait for
an application have as many greenlets to themselves, so a hanging authenticator delays no other question.

Rules. 1. A question beyond MAX_WAITING, or older than its asker's wait, is dropped. The asker then lists this process as silent.
2. A fault costs the answer and a log line, at most one in ten seconds for its kind, as a Redis that takes no answers refuses
   every one, and a script may ask thousands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import msgspec
import structlog

from headgate.errors import HeadgateError
from headgate.redis.client import Client
from headgate.redis.questions import Question, answer, read_question
from headgate.redis.shared_table import SharedTable
from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.loop import spawn
from headgate.runtime.metrics import QUESTIONS as ASKED

log = structlog.get_logger("headgate.answers")

MAX_WAITING = 1000
MAX_WORKERS = 4
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


class QuestionKind(NamedTuple):
    """How to answer one kind of question."""

    body: type  # of its body
    find: Callable[[Any], Sequence[object]]  # returns the parts of the answer; may wait
    # Takes the body on arrival, in the order of the questions, even if the question is dropped. Must not wait.
    note: Callable[[Any], object] | None = None
    asks_application: bool = False  # whether `find` may wait for application code
    # Called when questions may have been missed, with a client to read their changes from Redis.
    missed: Callable[[Client], object] | None = None


def announced(note: Callable[[], object], *, may_be_missed: bool) -> QuestionKind:
    """Return the handling of a question that only announces something. A possible miss calls `note`, unless `may_be_missed`."""
    return QuestionKind(type(None), lambda _: (), lambda _: note(), missed=None if may_be_missed else lambda _: note())


class _Lane:
    """Questions that wait for the same greenlets, each with the end of its asker's wait."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Question, float]] = deque()
        self.workers = 0


class Answers:
    """See the module. `now_s` is monotonic."""

    def __init__(self, client: Client, process: SharedTable, now_s: Callable[[], float] = monotonic) -> None:
        self._client, self._process, self._now_s = client, process, now_s
        self._kinds: dict[str, QuestionKind] = {}
        self._lane, self._lane_of_applications = _Lane(), _Lane()
        self._closed = False
        self._log_throttle = LogThrottle(now_s)

    def add(self, kinds: Mapping[str, QuestionKind]) -> None:
        """Answer these kinds of questions as well."""
        self._kinds |= kinds

    def begin(self, client: Client) -> None:
        """Read possibly missed changes, now that questions arrive. Waits for Redis.

        Raises HeadgateError: as `redis.client.call`.
        """
        for kind in self._kinds.values():
            if kind.missed is not None:
                kind.missed(client)

    def receive(self, message: bytes) -> None:
        """Take a message of the channel. Never waits."""
        question = read_question(message)
        if question is None or question.kind not in self._kinds or self._closed:
            return
        kind = self._kinds[question.kind]
        if kind.note is not None:
            with suppress(*_UNREADABLE):  # its answer reports that
                kind.note(msgspec.json.decode(question.body, type=kind.body))
        lane = self._lane_of_applications if kind.asks_application else self._lane
        if len(lane.waiting) >= MAX_WAITING:
            ASKED.labels(question.kind, "left_out").inc()
            return
        lane.waiting.append((question, self._now_s() + question.within_ms / 1000))
        if lane.workers < MAX_WORKERS:
            lane.workers += 1
            spawn(self._work, lane)

    def close(self) -> None:
        """Stop answering. Idempotent."""
        self._closed = True
        for lane in (self._lane, self._lane_of_applications):
            lane.waiting.clear()

    def _work(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                question, until_s = lane.waiting.popleft()
                if self._now_s() >= until_s:
                    ASKED.labels(question.kind, "left_out").inc()
                else:
                    self._answer(question)
        finally:
            lane.workers -= 1

    def _answer(self, question: Question) -> None:
        kind = self._kinds[question.kind]
        outcome = "failed"
        try:
            parts = kind.find(msgspec.json.decode(question.body, type=kind.body))
            for at, part in enumerate(parts, 1):  # one call each, so that the loop runs between two
                answer(self._client, question, self._process.id, part, last=at == len(parts))
            outcome = "answered"
        except (HeadgateError, *_UNREADABLE) as error:
            name = f"{question.kind} {error.code if isinstance(error, HeadgateError) else 'unreadable'}"
            if not self._closed and (left_out := self._log_throttle.due(name)) is not None:
                log.warning("question not answered", kind=question.kind, error=str(error), left_out=left_out)
        except Exception:
            # A fault of ours must not end the greenlet while other questions wait.
            if not self._closed and (left_out := self._log_throttle.due(f"{question.kind} failed")) is not None:
                log.exception("question failed", kind=question.kind, left_out=left_out)
        ASKED.labels(question.kind, outcome).inc()
