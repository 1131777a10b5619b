"""Asks all gateway processes whether their pages have handled an event, for diagnosis/tracing.py.

In: an event's place in a log, from any program with access to Redis. Out: counts of the connected clients that would get its
topic. No event is counted or reported in advance. Each page remembers the latest offsets that its handlers received, and each
gateway process asks its pages on request (node/requests/handling.py). The result is a hint for people, because any client that
may join may claim anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import msgspec

from headgate.redis.client import Client
from headgate.redis.questions import ask
from headgate.redis.registry import living

KIND = "handled"
# The part of the time that stays for Redis and the gateways after the pages have answered.
_MARGIN_S = 0.15
_LEAST_S = 0.05


class HandledQuestion(msgspec.Struct, frozen=True):
    """Which pages have handled the event at this offset? `epoch` is its log's current one. Pages have `wait_ms` to answer."""

    namespace: str
    epoch: str
    offset: int
    topic: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class AtBrowsers:
    """The answers of the connected clients that would get an event of the topic. Disconnected clients do not count.

    Attributes:
        clients: their number, which the other counts add up to.
        handled: a handler of the page, or of one of the tabs that share the connection, was called with the event.
        unhandled: the page has passed the event's place without calling a handler.
        behind: the page has not reached the event's place.
        unknown: the page came later or does not remember that far back, or the log has changed its epoch.
        unanswered: no answer in time, because the page is stopped or its client does not support the question.
        not_asked: too many clients to ask them all.
    """

    clients: int = 0
    handled: int = 0
    unhandled: int = 0
    behind: int = 0
    unknown: int = 0
    unanswered: int = 0
    not_asked: int = 0


_read = msgspec.json.Decoder(AtBrowsers).decode


def ask_browsers(
    client: Client, namespace: str, epoch: str, offset: int, topic: str, within_s: float
) -> tuple[AtBrowsers, tuple[str, ...]]:
    """Ask all gateway processes. Return the sums, and the names of the silent processes. Waits about `within_s` at most.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.

    Args:
        client: must not time out within `within_s`.
        namespace, epoch, offset, topic: of the event. `epoch` is the log's current one.
    """
    wait_s = max(within_s - _MARGIN_S, _LEAST_S)
    question = HandledQuestion(namespace, epoch, offset, topic, round(wait_s * 1000))
    answers = ask(client, KIND, question, living(client), _read, within_s=wait_s + _MARGIN_S)
    return total(answers.parts), answers.silent


def total(parts: Iterable[AtBrowsers]) -> AtBrowsers:
    """Return the sum of several answers."""
    return AtBrowsers(*map(sum, zip(*map(astuple, parts), strict=True)))
