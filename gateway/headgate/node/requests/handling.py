"""Handling: asks the pages of this gateway process whether their handlers have had an event, when a trace wants to know.

In: a question that went to all processes (answers.py); answers of clients, which are requests (handlers.py). Out: a notice to
each client that would get the event's topic; the sums of what they say.

Rules. 1. Bounded: MAX_ROUNDS questions at a time, each to MAX_ASKED clients; a client has one question that it has not answered,
so one that reads nothing gets no second. 2. `handled` is said of no event that no handler has had: an answer counts only if the
page stands in the epoch in which the offset was meant. In that epoch it has been told of everything that the log has lost.
3. Nothing here is on the way of an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from itertools import count

from headgate.delivery.client import Client
from headgate.node.namespace import Namespace
from headgate.protocol.frames import message_frame
from headgate.protocol.packets import HANDLED, notice_packet
from headgate.protocol.requests import Handled, read_handled
from headgate.redis.handled_events import AtBrowsers, HandledQuestion
from headgate.runtime.loop import Signal, one_round

MAX_ASKED = 1000
# Of the greenlets that answer questions, one half may wait for pages.
MAX_ROUNDS = 2
MAX_WAIT_MS = 1000
# Let the loop run after so many clients.
_STRIDE = 100


class Verdict(IntEnum):
    """What a client has said. Of several tabs that share a connection, the greatest counts."""

    NOTHING = 0
    UNKNOWN = 1
    UNHANDLED = 2
    BEHIND = 3
    HANDLED = 4


class _Round:
    """One question, while its clients may answer."""

    def __init__(self, question: HandledQuestion) -> None:
        self.question = question
        self.verdicts: dict[Client, Verdict] = {}
        self.handled = 0
        self.asked_all = False
        self.complete = Signal()

    def take(self, client: Client, answer: Handled) -> None:
        before = self.verdicts.get(client)
        if before is None:
            return
        self.verdicts[client] = max(before, verdict(answer, self.question))
        self.handled += before < Verdict.HANDLED == self.verdicts[client]
        self.look()

    def look(self) -> None:
        """Nobody has anything to add to `handled`; to anything else another tab may."""
        if self.asked_all and self.handled == len(self.verdicts):
            self.complete.set()


class Handling:
    """See the module."""

    def __init__(self, namespaces: Mapping[str, Namespace]) -> None:
        self._namespaces = namespaces
        self._rounds: dict[int, _Round] = {}
        self._numbers = count(1)

    def find(self, question: HandledQuestion) -> list[AtBrowsers]:
        """Ask, and wait for the answers, for `wait_ms` at most."""
        namespace = self._namespaces.get(question.namespace)
        if namespace is None:
            return [AtBrowsers()]
        audience = namespace.audience(question.topic)
        if len(self._rounds) >= MAX_ROUNDS:
            return [AtBrowsers(clients=len(audience), not_asked=len(audience))]
        if namespace.bus.epoch != question.epoch:  # this gateway has still to hear of it, or has heard more
            return [AtBrowsers(clients=len(audience), unknown=len(audience))]
        number, round_ = next(self._numbers), _Round(question)
        self._rounds[number] = round_
        try:
            behind = self._ask(namespace, audience[:MAX_ASKED], number, round_)
            round_.complete.wait(min(question.wait_ms, MAX_WAIT_MS) / 1000)
        finally:
            del self._rounds[number]
        said = Counter(round_.verdicts.values())
        return [
            AtBrowsers(
                clients=len(audience),
                handled=said[Verdict.HANDLED],
                unhandled=said[Verdict.UNHANDLED],
                behind=said[Verdict.BEHIND] + behind,
                unknown=said[Verdict.UNKNOWN],
                unanswered=said[Verdict.NOTHING],
                not_asked=max(0, len(audience) - MAX_ASKED),
            )
        ]

    def take(self, namespace: Namespace, client: Client, body: Mapping[str, object]) -> dict[str, object]:
        """Take a client's answer. One that comes too late, or that nobody has asked for, counts for nothing.

        Raises:
            InvalidRequest.
        """
        answer = read_handled(body)
        if client.asked == answer.ask:
            client.asked = 0
        round_ = self._rounds.get(answer.ask)
        if round_ is not None:
            round_.take(client, answer)
        return {}

    def _ask(self, namespace: Namespace, audience: tuple[Client, ...], number: int, round_: _Round) -> int:
        """Ask clients; return how many are known to be behind, and are not asked."""
        offset, behind = round_.question.offset, 0
        frame = message_frame(notice_packet(namespace.name, HANDLED, {"ask": number, "offset": offset}))
        for nth, client in enumerate(audience, 1):
            if client.state.arriving or namespace.had(client) < offset:
                behind += 1
                continue
            round_.verdicts[client] = Verdict.NOTHING
            if not client.asked:
                client.asked = number
                client.connection.offer_control(frame)
            if not nth % _STRIDE:
                one_round()
        round_.asked_all = True
        round_.look()
        return behind


def verdict(answer: Handled, question: HandledQuestion) -> Verdict:
    """Return what an answer means."""
    if answer.epoch != question.epoch:
        return Verdict.UNKNOWN
    if answer.handled:
        return Verdict.HANDLED
    if answer.offset < question.offset:
        return Verdict.BEHIND
    return Verdict.UNKNOWN if question.offset <= answer.since else Verdict.UNHANDLED
