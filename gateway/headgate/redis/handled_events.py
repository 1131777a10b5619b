"""Has a page handled an event? The question to all gateway processes, and what their pages say, for diagnosis/tracing.py.

In: an event's place in a log, from anyone who reaches Redis. Out: counts of the clients that are connected now and would get its
topic. Nothing is counted or told for each event: each page remembers the latest offsets that its handlers have had, and each
gateway process asks its pages when somebody asks it (node/requests/handling.py). It is a hint for people: whoever may join
may say anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import msgspec

from headgate.redis.client import Client
from headgate.redis.questions import ask
from headgate.redis.registry import living

KIND = "handled"
# What is left of the time for Redis and the gateways, when pages have answered.
_MARGIN_S = 0.15
_LEAST_S = 0.05


class HandledQuestion(msgspec.Struct, frozen=True):
    """Who has handled the event at this offset of the log that is in this epoch now? Pages have `wait_ms` for their answers."""

    namespace: str
    epoch: str
    offset: int
    topic: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class AtBrowsers:
    """What the clients say that are connected now and would get an event of the topic; those that have left say nothing.

    Attributes:
        clients: how many there are; the other counts add up to it.
        handled: a handler of the page, or of one of the tabs that share the connection, was called with the event.
        unhandled: the page has passed its place, and no handler was called with it.
        behind: it has not come to its place.
        unknown: it came later, or does not remember so far back; or the log has gone on in another epoch meanwhile.
        unanswered: no answer in time: the page is stopped, or its client has no such answer.
        not_asked: there were too many to ask all of them.
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
    """Ask all gateway processes; return the sums, and the names of those that did not answer. Waits for `within_s` or so at most.

    Args:
        client: must not give a command up within `within_s`.
        namespace, epoch, offset, topic: of which event; the epoch is the one that the log is in now.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    wait_s = max(within_s - _MARGIN_S, _LEAST_S)
    question = HandledQuestion(namespace, epoch, offset, topic, round(wait_s * 1000))
    answers = ask(client, KIND, question, living(client), _read, within_s=wait_s + _MARGIN_S)
    return total(answers.parts), answers.silent


def total(parts: Iterable[AtBrowsers]) -> AtBrowsers:
    """Return the sum of several answers."""
    counts = dict.fromkeys((field.name for field in fields(AtBrowsers)), 0)
    for part in parts:
        for name, count in asdict(part).items():
            counts[name] += count
    return AtBrowsers(**counts)
