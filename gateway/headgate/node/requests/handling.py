"""Asks the pages of this gateway process whether their handlers have had an event, for a trace.

In: a question that went to all processes (answers.py); answers of clients, which are requests (requests.py). Out: a notice to
each client that would get the event's topic; the sums of the answers.

Rules. 1. MAX_QUESTIONS run at a time, each to MAX_ASKED clients. A client has at most one open question, even if it reads
nothing. 2. An event counts as `handled` only if a handler has had it. An answer counts only if the page is in the epoch of the
offset, where it was notified of everything that the log has lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from itertools import count

from headgate.delivery.client import Client
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import HANDLED, notice_packet
from headgate.events.wire.requests import Handled, read_handled
from headgate.node.namespace import Namespace
from headgate.redis.questions import AtBrowsers, HandledQuestion
from headgate.runtime.loop import Signal, one_round

MAX_ASKED = 1000
MAX_QUESTIONS = 2  # half of the greenlets that answer questions may wait for pages
MAX_WAIT_MS = 1000
_STRIDE = 100  # clients after which the loop runs


class PageAnswer(IntEnum):
    """The answer of a client. The greatest one counts if several tabs share a connection."""

    NOTHING = 0
    UNKNOWN = 1
    UNHANDLED = 2
    BEHIND = 3
    HANDLED = 4


class _OpenQuestion:
    """One question, while its clients may answer."""

    def __init__(self, question: HandledQuestion) -> None:
        self.question = question
        self.answers: dict[Client, PageAnswer] = {}
        self.handled = 0
        self.asked_all = False
        self.complete = Signal()

    def take(self, client: Client, answer: Handled) -> None:
        before = self.answers.get(client)
        if before is None:
            return
        self.answers[client] = max(before, page_answer(answer, self.question))
        self.handled += before < PageAnswer.HANDLED == self.answers[client]
        self.check_complete()

    def check_complete(self) -> None:
        """Set `complete` if every client answered `handled`. After any other answer, another tab may still answer."""
        if self.asked_all and self.handled == len(self.answers):
            self.complete.set()


class Handling:
    """See the module."""

    def __init__(self, namespaces: Mapping[str, Namespace]) -> None:
        self._namespaces = namespaces
        self._questions: dict[int, _OpenQuestion] = {}
        self._numbers = count(1)

    def find(self, question: HandledQuestion) -> list[AtBrowsers]:
        """Ask, and wait at most `wait_ms` for the answers."""
        namespace = self._namespaces.get(question.namespace)
        if namespace is None:
            return [AtBrowsers()]
        audience = namespace.audience(question.topic)
        if len(self._questions) >= MAX_QUESTIONS:
            return [AtBrowsers(clients=len(audience), not_asked=len(audience))]
        if namespace.bus.epoch != question.epoch:  # this gateway has not reached that epoch yet, or has passed it
            return [AtBrowsers(clients=len(audience), unknown=len(audience))]
        number, open_question = next(self._numbers), _OpenQuestion(question)
        self._questions[number] = open_question
        try:
            behind = self._ask(namespace, audience[:MAX_ASKED], number, open_question)
            open_question.complete.wait(min(question.wait_ms, MAX_WAIT_MS) / 1000)
        finally:
            del self._questions[number]
        counts = Counter(open_question.answers.values())
        return [
            AtBrowsers(
                clients=len(audience),
                handled=counts[PageAnswer.HANDLED],
                unhandled=counts[PageAnswer.UNHANDLED],
                behind=counts[PageAnswer.BEHIND] + behind,
                unknown=counts[PageAnswer.UNKNOWN],
                unanswered=counts[PageAnswer.NOTHING],
                not_asked=max(0, len(audience) - MAX_ASKED),
            )
        ]

    def take(self, namespace: Namespace, client: Client, body: Mapping[str, object]) -> dict[str, object]:
        """Take a client's answer. A late one, or one to no question, has no effect. Raises InvalidRequest."""
        answer = read_handled(body)
        if client.asked == answer.ask:
            client.asked = 0
        open_question = self._questions.get(answer.ask)
        if open_question is not None:
            open_question.take(client, answer)
        return {}

    def _ask(self, namespace: Namespace, audience: tuple[Client, ...], number: int, open_question: _OpenQuestion) -> int:
        """Ask clients; return how many were left out because they have not reached the offset."""
        offset, behind = open_question.question.offset, 0
        frame = message_frame(notice_packet(namespace.name, HANDLED, {"ask": number, "offset": offset}))
        for nth, client in enumerate(audience, 1):
            if client.state.arriving or namespace.had(client) < offset:
                behind += 1
                continue
            open_question.answers[client] = PageAnswer.NOTHING
            if not client.asked:
                client.asked = number
                client.connection.offer_control(frame)
            if not nth % _STRIDE:
                one_round()
        open_question.asked_all = True
        open_question.check_complete()
        return behind


def page_answer(answer: Handled, question: HandledQuestion) -> PageAnswer:
    """Return what an answer says about the event."""
    if answer.epoch != question.epoch:
        return PageAnswer.UNKNOWN
    if answer.handled:
        return PageAnswer.HANDLED
    if answer.offset < question.offset:
        return PageAnswer.BEHIND
    return PageAnswer.UNKNOWN if question.offset <= answer.since else PageAnswer.UNHANDLED
