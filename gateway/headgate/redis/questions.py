"""Questions to all gateway processes, and their answers: how both are written to Redis, and read again.

In: a question from anyone who reaches Redis: an application, the command line, a gateway. Out: the answers, and the names of the
processes that gave none in time. A notice is a question without an answer: something in Redis is to be read now.

In Redis: a question is a message on `questions_channel`, which every gateway process hears. An answer is one or more parts on the
list `answers_key(id)`, which ends KEPT_S after the last. Redis says how many hear the question; the registry (registry.py)
has the names of those that should.

Rules. 1. At most once: a process that does not hear a question, or is too busy to answer in time, is named as silent; nobody
asks again by itself. 2. Time: nobody waits longer than `within_s`, and a process acts on no question that is older.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any

import msgspec

from headgate.errors import InvalidRequest

from .client import Client, call, call_all, call_at, database_number
from .keys import REVOKED, answers_key, questions_channel
from .registry import name_of

# How long answers are waited for, unless the one who asks says otherwise.
ANSWER_S = 1.0
MAX_ANSWER_S = 30.0
# The name of one that heard the question, did not answer, and is not in the registry: it is about to stop, or has just started.
UNREGISTERED = "a gateway that is not registered"
# What nobody has read is gone after this.
KEPT_S = 60
# A notice counts for so long.
_NOTICE_MS = 5000


class Question(msgspec.Struct, frozen=True):
    """A question of a kind. `within_ms`: a process that comes to it later lets it be."""

    id: str
    kind: str
    within_ms: int
    body: msgspec.Raw


class Part(msgspec.Struct, frozen=True):
    """A part of the answer of one process, by its id in the registry."""

    gateway: str
    last: bool
    body: msgspec.Raw


class Answers(msgspec.Struct, frozen=True):
    """The parts that have come, as they were read, and the names of the processes that are not through.

    `unanswered` of those have had the question. The others have no link to Redis: they stopped, or lost it.
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
    """Ask all gateway processes, and wait for the answers of those that hear it, or until one `is_enough`.

    `living` are the ids of those that should answer. `client` must not give a command up within `within_s`. `read` decodes a part
    with msgspec: a process whose answer it cannot read, such as one of another version, is silent. May switch greenlets.

    Raises:
        InvalidRequest: a time that cannot be.
        BusUnavailable, BusRefused: as `redis.client.call`; whether anybody has heard the question is not known.
    """
    if not 0 < within_s <= MAX_ANSWER_S:
        raise InvalidRequest(f"within: expected a time up to {MAX_ANSWER_S:g} seconds")
    give_up_s = now_s() + within_s
    question = Question(secrets.token_hex(8), kind, round(within_s * 1000), msgspec.Raw(_encode(body)))
    key = answers_key(question.id)
    heard = _publish(client, question)
    answered, parts = set[str](), list[Any]()
    while len(answered) < heard and (left_s := give_up_s - now_s()) > 0:
        found = call(client, "BLPOP", key, f"{max(left_s, 0.01):.3f}")
        if found is None:
            break
        try:
            part = _read_part(found[1])
            parts.append(read(part.body))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if part.last:
            answered.add(part.gateway)
        if is_enough(parts[-1]):
            return Answers(parts, ())
    silent = sorted(name_of(each) for each in set(living) - answered)
    if heard - len(answered) > len(silent):
        silent.append(UNREGISTERED)
    return Answers(parts, tuple(silent), heard - len(answered))


def announce(client: Client, kind: str) -> None:
    """Send a notice of a kind to all gateway processes, at most once. One round trip.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`; whether anybody has heard it is not known.
    """
    _publish(client, Question("", kind, _NOTICE_MS, msgspec.Raw(b"null")))


def read_question(message: bytes) -> Question | None:
    """Return the question in a message, or None: it is none of ours."""
    try:
        return _read_question(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def answer(client: Client, question: Question, gateway_id: str, body: object, *, last: bool) -> None:
    """Answer a question with one part, the last of this process or not. One round trip.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    key = answers_key(question.id)
    part = _encode(Part(gateway_id, last, msgspec.Raw(_encode(body))))
    call_all(client, [("RPUSH", key, part), ("EXPIRE", key, KEPT_S)])


def _publish(client: Client, question: Question) -> int:
    """Send a question; return how many processes hear it."""
    # To the server that has the links of all: so it counts every process that hears it, and nobody waits for the others.
    return int(call_at(client, REVOKED, "PUBLISH", questions_channel(database_number(client)), _encode(question)))
