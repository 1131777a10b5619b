"""Appends to the log with the cheapest function that this Redis user may call, and retries where safe.

In: calls of `headgate_append`, each with an id. Out: the reply of Redis to each. A call without an answer is sent once more. If
the first one arrived, Redis recognises the id and does not append it twice. Several calls go in calls of `headgate_append_batch`,
bounded in events and bytes; log.lua defines batches and their replies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from time import sleep
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from headgate.errors import BusRefused, BusUnavailable, HeadgateError

from .budget import left_s
from .client import Client, at, call, call_many, database_number, drop_idle, is_forbidden
from .connections import Command
from .faults import refused, reply_error
from .functions import call_function, ensure_loaded, is_missing
from .keys import STRICT, TRUSTED, head_key, namespace_of

# Redis takes less than a millisecond for a batch, while all of its other clients wait. Batches twice as large would save 1 % per
# event.
MAX_BATCH_EVENTS = 100
MAX_BATCH_BYTES = 128 * 1024
BATCH: Final = "headgate_append_batch"
_KEY: Final = 3
_TOPIC, _PAYLOAD, _ID, _BY = 4, 5, 6, 7
# Replies of a server during or after a failover to another one. The command has not run, and the fault passes without help.
_TAKEN_OVER = frozenset({"READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"})
FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.25

# Publishers use the standard library's logging. An application without its own configuration gets warnings on standard error.
log = logging.getLogger("headgate.publisher")

C = TypeVar("C")
R = TypeVar("R")


class _Entry(Enum):
    """The function through which this Redis user may append, named by its form for several events."""

    BATCH = BATCH
    EACH = TRUSTED
    CHECKED = STRICT


# The entry to try next if Redis forbids one.
_NEXT_ENTRY = {_Entry.BATCH: _Entry.EACH, _Entry.EACH: _Entry.CHECKED}
_COST = {
    _Entry.EACH: "so each event is a call of its own",
    _Entry.CHECKED: "so Redis checks every payload again",
}


class Appending:
    """Appends to the log. The caller holds a Budget (budget.py)."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._checked: WeakSet[object] = WeakSet()  # servers with a checked function library; several in a Cluster
        self._checked_last: object = None
        self._declared: set[str] = set()  # keys of logs
        self._entry = _Entry.BATCH

    def append(self, command: Command) -> Any:
        """Append one event and return the reply. Waits for Redis.

        Raises:
            BusRefused: Redis refuses it.
            BusUnavailable: two attempts got no answer, or no server accepted it in time.
        """
        return self._retried(self._fcall, command)

    def append_many(self, commands: Sequence[Command]) -> list[Any]:
        """Append events in one round trip, perhaps with a last command that waits for them. Return a reply for each.

        Raises:
            BusUnavailable: as `append`. The caller cannot know which events were appended.
        """
        return self._retried(self._fcall_many, commands)

    def load_library(self, key: str) -> None:
        """Load the function library before the first call. `append` does so too. Raises as `append`."""
        self._retried(self.check_library, key)

    def _retried(self, send: Callable[[C], R], commands: C) -> R:
        """Send, and send once more if Redis did not answer. Redis recognises a command that arrived by its id.

        While Redis answers that a failover is under way, keep sending within the caller's budget (budget.py). Each attempt uses
        new connections, because after a failover the old ones lead to a former primary.
        """
        pause_s, once_more = 0.0, True
        while True:
            try:
                return send(commands)
            except BusUnavailable as error:
                left = left_s()
                if left is not None and left <= pause_s:
                    raise
                if error.redis_code not in _TAKEN_OVER:
                    if not once_more:
                        raise
                    once_more = False
            # Outside the handler, so that a traceback does not contain every attempt.
            drop_idle(self._client)
            if pause_s:
                sleep(pause_s)
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LAST_PAUSE_S)

    def _fcall(self, command: Command) -> Any:
        self.check_library(str(command[_KEY]))
        if self._entry is not _Entry.CHECKED:
            try:
                return call_function(self._client, *command)
            except BusRefused as error:
                if not is_forbidden(error):
                    raise
        reply = call_function(self._client, *_strict(command))
        self._stay_with(_Entry.CHECKED)
        return reply

    def _fcall_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send events, perhaps with a command that waits for them. Return a reply for each."""
        key = str(commands[0][_KEY])
        self.check_library(key)
        count = len(commands) - _waits(commands)
        events, waits = commands[:count], commands[count:]
        entry = began = _Entry.EACH if self._entry is _Entry.BATCH and count == 1 else self._entry
        replies = self._exchange(key, entry, events, waits)
        while entry in _NEXT_ENTRY and all(_is_no_right(reply) for reply in replies[:count]):
            entry = _NEXT_ENTRY[entry]
            replies = self._exchange(key, entry, events, waits)
        if entry is not began and not any(_is_no_right(reply) for reply in replies[:count]):
            self._stay_with(entry)
        # A server that cannot write now has refused all events, or all from some event on. So a retry keeps their order.
        answers = replies[:count]
        first = next((index for index, reply in enumerate(answers) if isinstance(reply, BusUnavailable)), None)
        if first is not None and all(isinstance(reply, BusUnavailable) for reply in answers[first:]):
            raise answers[first]
        return replies

    def _exchange(self, key: str, entry: _Entry, events: Sequence[Command], waits: Sequence[Command]) -> list[Any]:
        """Send events through an entry in one round trip. Return a reply for each, and the replies of `waits`."""
        gathered = in_batches(events) if entry is _Entry.BATCH else []
        calls: Sequence[Command] = [batch.command for batch in gathered] or events
        if entry is _Entry.CHECKED:
            calls = [_strict(call) for call in events]
        calls = [*calls, *waits]
        replies = call_many(self._client, calls)
        if any(is_missing(reply) for reply in replies):
            ensure_loaded(self._client, key)
            replies = call_many(self._client, calls)
        if not gathered:
            return replies
        each = [reply for batch, answer in zip(gathered, replies, strict=False) for reply in batch.replies(answer)]
        return each + replies[len(gathered) :]

    def _stay_with(self, entry: _Entry) -> None:
        """Use this entry from now on, because the user may not take the previous one."""
        if self._entry is not entry:
            self._entry = entry
            wanted = _Entry.BATCH if entry is _Entry.EACH else _Entry.EACH
            log.warning(
                "this Redis user may not call %s, %s (%s): allow +fcall|%s for less work there",
                *(wanted.value, _COST[entry], entry.value, wanted.value),
            )

    def check_library(self, key: str) -> None:
        """Load the function library, or replace an older one, before this publisher's first call to a server.

        Before the first event of a log, report its database number. The library publishes on no channel before it knows that.
        """
        server = at(self._client, key)
        if server is self._checked_last and key in self._declared:
            return
        if server not in self._checked:
            ensure_loaded(self._client, key)
            self._checked.add(server)
        self._checked_last = server
        if key not in self._declared:
            with suppress(BusRefused):  # no right or no room; a gateway reports the number too
                call(self._client, "HSETNX", head_key(namespace_of(key)), "database", database_number(self._client))
            self._declared.add(key)


def _strict(command: Command) -> Command:
    """Return the strict form of a call of the trusted function."""
    return (command[0], STRICT, *command[2:])


def _is_no_right(reply: Any) -> bool:
    return isinstance(reply, BusRefused) and is_forbidden(reply)


def _waits(batch: Sequence[Command]) -> int:
    """Return how many commands at the end of a batch wait for the others (0 or 1)."""
    return int(batch[-1][0] != "FCALL")


class Batch(NamedTuple):
    """One call, and the number of events in it."""

    command: Command
    events: int

    def replies(self, reply: Any) -> list[Any]:
        """Return (epoch, offset, whether it is a duplicate) or an error for each event.

        Raises:
            BusRefused: the reply does not belong to this call.
        """
        if isinstance(reply, HeadgateError):
            return [reply] * self.events
        try:
            replies = [each for line in reply.split(b"\n") for each in _read_line(line, self.events)]
        except ValueError:
            replies = []
        if len(replies) != self.events:
            raise refused(f"the function library did not answer for {self.events} events")
        return replies


def _read_line(line: bytes, at_most: int) -> list[Any]:
    if line.startswith(b"-"):
        return [reply_error(line[1:])]
    epoch, first, events = line.split(b" ")
    offset, count = int(first), int(events)
    if not count:
        return [(epoch, offset, 1)]
    return [(epoch, offset + index, 0) for index in range(min(count, at_most + 1))]


def in_batches(calls: Sequence[Command]) -> list[Batch]:
    """Return the batches for a list of calls on one log, in order."""
    batches: list[Batch] = []
    words: list[str | bytes | int] = []
    events = size = 0
    for each in calls:
        payload = each[_PAYLOAD]
        size += len(payload)  # type: ignore[arg-type]
        if events and (events >= MAX_BATCH_EVENTS or size > MAX_BATCH_BYTES):
            batches.append(Batch(("FCALL", BATCH, 1, each[_KEY], *words), events))
            words, events, size = [], 0, len(payload)  # type: ignore[arg-type]
        words += (each[_TOPIC], payload, each[_ID], each[_BY] if len(each) > _BY else "")
        events += 1
    batches.append(Batch(("FCALL", BATCH, 1, calls[0][_KEY], *words), events))
    return batches
