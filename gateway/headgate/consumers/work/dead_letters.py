"""Dead letters are abandoned work of a consumer, to view, retry or drop, in a bounded stream per consumer.

In: a command client from redis/client.py. Out: pages of letters, oldest first. A retried letter becomes a new deferred task
that is due now, even if the consumer does not run.

All methods raise BusUnavailable and BusRefused as `redis.client.call`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from headgate.errors import InvalidRequest
from headgate.redis.client import Client, call
from headgate.redis.keys import group_key

from .store import Store, again
from .task import UNREADABLE, Task, unpack

PAGE_LETTERS = 100
_ID = re.compile(r"\d{1,15}-\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A letter, with its `id` among the dead letters, its time, the cause, and its work.

    `why` is one of `unreadable` (the log's entry is no event), `poison` (it ended the process three times, or the consumer's code
    failed five times), `rejected` (a permanent failure), `gave_up` (tried for too long) and `outcome_unknown` (it may have
    worked, and is not repeated further). `reason` is a text. The `task` of an unreadable letter has its readable parts, and can
    only be dropped.
    """

    id: str
    at_ms: int
    why: str
    reason: str
    task: Task

    def shown(self) -> Letter:
        """Return its public form. Data that may not be JSON is text."""
        task = self.task
        data = msgspec.json.encode(task.data.decode(errors="replace")) if self.why == UNREADABLE else task.data
        parts = (self.id, self.at_ms, self.why, self.reason, task.epoch, task.offset, task.topic, task.id, task.key)
        return Letter(*parts, msgspec.Raw(data))


class Letter(msgspec.Struct):
    """A dead letter, with its time (ms since 1970), the reason, and its event. `key` is the part of the event's work.

    If `why` is `unreadable`, `data` is text, and the letter can only be dropped.
    """

    id: str
    time: int
    why: str
    reason: str
    epoch: str
    offset: int
    topic: str
    event_id: str | None
    key: str
    data: msgspec.Raw


class DeadLetters:
    """The dead letters of one consumer."""

    def __init__(self, client: Client, namespace: str, consumer: str) -> None:
        self._client = client
        self._store = Store(client, "", namespace, consumer, 0)
        self._key = group_key(namespace, consumer) + ":dead"

    def count(self) -> int:
        """Return the number of letters."""
        return int(call(self._client, "XLEN", self._key))

    def page(self, after: str | None = None, limit: int = PAGE_LETTERS) -> list[DeadLetter]:
        """Return the letters after the one with this id (None: from the oldest), at most `limit` (1 to PAGE_LETTERS).

        Raises InvalidRequest for an invalid limit or id.
        """
        if not 1 <= limit <= PAGE_LETTERS:
            raise InvalidRequest(f"a page of {limit} dead letters; expected 1 to {PAGE_LETTERS}")
        first = "-" if after is None else f"({check_letter_id(after)}"
        return [_letter(*entry) for entry in call(self._client, "XRANGE", self._key, first, "+", "COUNT", limit)]

    def show(self, letter_id: str) -> DeadLetter | None:
        """Return one letter, or None if it does not exist. Raises InvalidRequest for an invalid id."""
        check_letter_id(letter_id)
        entries = call(self._client, "XRANGE", self._key, letter_id, letter_id)
        return _letter(*entries[0]) if entries else None

    def retry(self, letter_ids: Sequence[str]) -> int:
        """Retry these letters now; return how many. Skips missing and unreadable ones.

        Raises InvalidRequest: not an id.
        """
        return self._put_back([letter for letter_id in dict.fromkeys(letter_ids) if (letter := self.show(letter_id))])

    def drop(self, letter_ids: Sequence[str]) -> int:
        """Drop these letters for good; return how many existed. Raises InvalidRequest for an invalid id."""
        checked = [check_letter_id(letter_id) for letter_id in letter_ids]
        return int(self._store.call("group_drop", *checked)) if checked else 0

    def retry_all(self) -> int:
        """Retry all current letters except unreadable ones, page by page; return how many."""
        return sum(self._put_back(page) for page in self._pages())

    def drop_all(self) -> int:
        """Drop all current letters, page by page; return how many existed."""
        return sum(self.drop([letter.id for letter in page]) for page in self._pages())

    def _pages(self) -> Iterator[list[DeadLetter]]:
        """Yield the current letters, without later ones, because a retried letter may die again."""
        left, after = self.count(), None
        while left > 0 and (page := self.page(after, min(left, PAGE_LETTERS))):
            left, after = left - len(page), page[-1].id
            yield page

    def _put_back(self, letters: Sequence[DeadLetter]) -> int:
        answers = [again(letter.id, _untried(letter.task)) for letter in letters if letter.why != UNREADABLE]
        if answers:
            self._store.settle(answers)
        return len(answers)


def _untried(task: Task) -> Task:
    """Return the task as it was before its first attempt."""
    event = (task.epoch, task.offset, task.topic, task.id, task.time_ms, task.data)
    return Task(*event, key=task.key, split=task.split, traceparent=task.traceparent)


def _letter(entry_id: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    body = fields.get(b"body", b"")
    why, reason = fields.get(b"why", b"").decode("ascii", "replace"), fields.get(b"reason", b"").decode("utf-8", "replace")
    try:
        task = unpack(body)
    except msgspec.DecodeError:
        task, why = Task("", 0, "", None, 0, body), UNREADABLE
    return DeadLetter(entry_id.decode(), int(entry_id.partition(b"-")[0]), why, reason, task)


def check_letter_id(letter_id: str) -> str:
    if not _ID.fullmatch(letter_id):
        raise InvalidRequest(f"a dead letter's id {letter_id[:40]!r}; expected <milliseconds>-<number> as `list` shows it")
    return letter_id
