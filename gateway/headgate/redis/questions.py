"""Questions to all gateway processes, and their answers, over Redis.

In: a question from any program with access to Redis: an application, the command line, a gateway. Out: the answers, and the
names of the processes that did not answer in time. A notice is a question without an answer; it asks the processes to read
something in Redis now.

In Redis: a question is a message on `questions_channel`, to which every gateway process subscribes. An answer is one or more
parts on the list `answers_key(id)`, which ends KEPT_S after the last part. Redis reports how many processes receive the
question; the registry (registry.py) has the names of those that should.

Rules. 1. At most once: a process that misses a question, or is too busy to answer in time, is named as silent. No question is
repeated. 2. Time: the caller waits at most `within_s`, and a process ignores an older question.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from time import monotonic
from typing import Any

import msgspec

from headgate.events.numbers import check_seconds

from .client import Client, call, database_number, publish_at
from .functions import write_all
from .keys import REVOKED, answers_key, questions_channel
from .registry import living, name_of

# The default time to wait for answers.
ANSWER_S = 1.0
MIN_ANSWER_S, MAX_ANSWER_S = 0.001, 30.0
# The name of a process that received the question, did not answer, and is not in the registry. It is about to stop, or has just
# started.
UNREGISTERED = "a gateway that is not registered"
# Unread answers end after this time.
KEPT_S = 60
# How long a notice is valid.
_NOTICE_MS = 5000


class Question(msgspec.Struct, frozen=True):
    """A question of a kind. A process that reads it after `within_ms` ignores it."""

    id: str
    kind: str
    within_ms: int
    body: msgspec.Raw


class Part(msgspec.Struct, frozen=True):
    """A part of the answer of one process, with its id in the registry."""

    gateway: str
    last: bool
    body: msgspec.Raw


class Answers(msgspec.Struct, frozen=True):
    """The decoded parts that arrived, and the names of the processes without a complete answer.

    `unanswered` is how many of those received the question. The others have stopped or lost their link to Redis.
    """

    parts: Sequence[Any]
    silent: tuple[str, ...]
    unanswered: int = 0


_encode = msgspec.json.encode
_read_question = msgspec.json.Decoder(Question).decode
_read_part = msgspec.json.Decoder(Part).decode


def ask(
    client: Client,
    kind: str,
    body: object,
    living: Iterable[str],
    read: Callable[[msgspec.Raw], Any],
    *,
    within_s: float = ANSWER_S,
    is_enough: Callable[[Any], bool] = lambda part: False,
    now_s: Callable[[], float] = monotonic,
) -> Answers:
    """Ask all gateway processes, and wait for the answers of those that receive it, or for one that `is_enough`.

    `living` are the ids of the processes that should answer. `client` must not time out within `within_s`. `read` decodes a
    part with msgspec. A process with an unreadable answer, as from another version, counts as silent. May switch greenlets.

    Raises:
        InvalidRequest: `within_s` is out of range.
        BusUnavailable, BusRefused: as `redis.client.call`. It is unknown whether any process received the question.
    """
    check_seconds(within_s, "within_s", MAX_ANSWER_S, MIN_ANSWER_S)
    give_up_s = now_s() + within_s
    question = Question(secrets.token_hex(8), kind, round(within_s * 1000), msgspec.Raw(_encode(body)))
    key = answers_key(question.id)
    receivers = _publish(client, question)
    answered, parts = set[str](), list[Any]()
    while len(answered) < receivers and (left_s := give_up_s - now_s()) > 0:
        popped = call(client, "BLPOP", key, f"{max(left_s, 0.01):.3f}")
        if popped is None:
            break
        try:
            part = _read_part(popped[1])
            parts.append(read(part.body))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if part.last:
            answered.add(part.gateway)
        if is_enough(parts[-1]):
            return Answers(parts, ())
    silent = sorted(name_of(each) for each in set(living) - answered)
    if receivers - len(answered) > len(silent):
        silent.append(UNREGISTERED)
    return Answers(parts, tuple(silent), receivers - len(answered))


def announce(client: Client, kind: str) -> None:
    """Send a notice of a kind to all gateway processes, at most once. One round trip.

    Raises as `redis.client.call`. It is unknown whether any process received it.
    """
    _publish(client, Question("", kind, _NOTICE_MS, msgspec.Raw(b"null")))


def read_question(message: bytes) -> Question | None:
    """Return the question in a message, or None if it is not one of ours."""
    try:
        return _read_question(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def answer(client: Client, question: Question, gateway_id: str, body: object, *, last: bool) -> None:
    """Answer a question with one part, which may be the last of this process. One round trip. Raises as `redis.client.call`."""
    key = answers_key(question.id)
    part = _encode(Part(gateway_id, last, msgspec.Raw(_encode(body))))
    write_all(client, [("RPUSH", key, part), ("EXPIRE", key, KEPT_S)])


def _publish(client: Client, question: Question) -> int:
    """Send a question. Return how many processes receive it."""
    # Sent to the server with the links of all processes, so that it counts all receivers and the caller waits for no others.
    return publish_at(client, REVOKED, questions_channel(database_number(client)), _encode(question))


# The question whether pages have handled an event, for diagnosis/tracing.py. No event is counted or reported in advance. Each
# page remembers the latest offsets that its handlers received, and each gateway process asks its pages on request
# (node/requests/handling.py). The result is a hint for people, because any client that may join may claim anything.
HANDLED = "handled"
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
    answers = ask(client, HANDLED, question, living(client), _read, within_s=wait_s + _MARGIN_S)
    return total(answers.parts), answers.silent


def total(parts: Iterable[AtBrowsers]) -> AtBrowsers:
    """Return the sum of several answers."""
    return AtBrowsers(*map(sum, zip(*map(astuple, parts), strict=True)))
