"""A publisher's calls to Redis, each within one time budget.

In: commands that the publisher has checked and encoded. Out: the replies, or an error. This module contains all parts of a
publisher that need redis-py. It is imported when a publisher is created.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import Any, Final, Literal, NamedTuple, TypeVar

from headgate.auth.revocation import revoke
from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidRequest, NamespaceNotServed
from headgate.redis.bounded import NewestReceipts
from headgate.redis.budget import Budget, left_s, refuse_while_stalled
from headgate.redis.client import at, call, call_at, call_many, database_number, drop_idle, is_forbidden, open_client, place_of
from headgate.redis.cluster import shown_command
from headgate.redis.connections import Command
from headgate.redis.durability import Durability, Replicas, count_online
from headgate.redis.faults import refused, reply_error, unavailable
from headgate.redis.functions import VERSION, call_function, ensure_loaded, is_missing
from headgate.redis.inbox import InboxPage, inbox_reader, read_current
from headgate.redis.keys import STRICT, TRUSTED, head_key, live_channel, log_key, namespace_of
from headgate.redis.lineage import Fate, LogPosition, alone
from headgate.redis.log import EventLog
from headgate.redis.presence import read_page
from headgate.redis.presence_entries import Member
from headgate.redis.registry import asked_about, has_been_served, note_served
from headgate.services.schemas.check import OnViolation, SchemaCheck, open_check

# They share a call's time, so a dead idle connection leaves time for a new one.
ATTEMPTS = 2
# The share of a call's time that Redis may wait for replicas or the disk, because its answer must arrive before the timeout.
_SHARE_OF_WAITING = 0.8
# A publisher remembers facts about this many namespaces. Beyond that it forgets them all.
MAX_PLACES = 1000

# Redis takes less than a millisecond for a batch, while all its other clients wait. Batches twice as large save 1 % per event.
MAX_BATCH_EVENTS = 100
MAX_BATCH_BYTES = 128 * 1024
BATCH: Final = "headgate_append_batch"
_KEY: Final = 3
_TOPIC, _PAYLOAD, _ID, _BY = 4, 5, 6, 7
# Replies of a server during or after a failover to another one. The command has not run, and the fault is temporary.
_TAKEN_OVER = frozenset({"READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"})
FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.25

# Publishers use the standard library's logging. An application without its own configuration gets warnings on standard error.
log = logging.getLogger("headgate.publisher")

C = TypeVar("C")
R = TypeVar("R")


# For each function that appends, the next one to try if this Redis user may not call it.
_NEXT_ENTRY = {BATCH: TRUSTED, TRUSTED: STRICT}
_COST = {TRUSTED: "so each event takes a separate call", STRICT: "so Redis checks every payload again"}


class LogWriter:
    """See the module, and `Publisher` for the arguments.

    It appends with the cheapest function that this Redis user may call. A call without an answer is sent once more. If the
    first one arrived, Redis recognizes the id and does not append the event twice. Several events go into calls of
    `headgate_append_batch`, bounded in events and bytes. log.lua defines batches and their replies.

    Attributes:
        newest: receipts that every new connection reports first.
    """

    def __init__(self, redis_url: str, timeout_s: float, *, strict_namespace: bool) -> None:
        self._timeout_s = timeout_s
        self.newest = NewestReceipts()
        self._client = open_client(redis_url, timeout_s=timeout_s / ATTEMPTS, newest=self.newest)
        self._checked: dict[str, object] = {}  # by the key of a log, its server at the last check of the library
        self._entry: str = BATCH
        self._strict_namespace = strict_namespace
        self._asked = asked_about(self._client)
        self._replicas: Replicas = {}
        # The server of each namespace, as named by `place_of`. It never changes.
        self._places: dict[str, str] = {}

    def budget(self, namespace: str, *, is_patient: bool = False) -> Budget:
        """Return the total time budget of a call to a namespace's Redis."""
        return Budget(self._places.get(namespace) or self._place(namespace), self._timeout_s, is_patient=is_patient)

    def refuse_while_stalled(self, namespace: str) -> None:
        """Raise BusUnavailable while Redis is stalled. Never waits."""
        refuse_while_stalled(self._places.get(namespace) or self._place(namespace), self._timeout_s)

    def _place(self, namespace: str) -> str:
        if len(self._places) >= MAX_PLACES:
            self._places.clear()
            self._checked.clear()
        place = self._places[namespace] = place_of(self._client, log_key(namespace))
        return place

    def append(self, command: Command) -> Any:
        """Append one event and return the reply, within the caller's budget. Waits for Redis.

        Raises BusRefused if Redis refuses it, and BusUnavailable after two attempts without an answer, or if no server accepts
        it in time.
        """
        return self._retried(self._fcall, command)

    def append_many(self, commands: Sequence[Command]) -> list[Any]:
        """Append events in one round trip, optionally with a last command that waits for them. Returns a reply for each.

        Raises BusUnavailable as `append`. The caller cannot know which events were appended.
        """
        return self._retried(self._fcall_many, commands)

    def _retried(self, send: Callable[[C], R], commands: C) -> R:
        """Send, and send once more without an answer. Redis recognizes a repeated command by its id.

        While Redis reports a failover, it keeps sending within the caller's budget (budget.py). Each attempt uses new
        connections, because after a failover the old ones lead to a former primary. A refusal of a repeated command says
        nothing about the earlier attempts, so it becomes BusUnavailable.
        """
        pause_s, once_more, is_repeated = 0.0, True, False
        while True:
            try:
                reply = send(commands)
                if is_repeated and isinstance(reply, list):
                    refusal = next((each for each in reply if isinstance(each, BusRefused)), None)
                    if refusal is not None:
                        raise refusal
                return reply
            except BusRefused as error:
                if not is_repeated:
                    raise
                unknown = unavailable(f"{error.parts['reason']}; an earlier attempt may have succeeded", error.redis_code)
                for note in getattr(error, "__notes__", ()):
                    unknown.add_note(note)
                raise unknown from error
            except BusUnavailable as error:
                left = left_s()
                if left is not None and left <= pause_s:
                    raise
                if error.redis_code not in _TAKEN_OVER:
                    if not once_more:
                        raise
                    once_more = False
                is_repeated = True
            # Outside the handler, so that the traceback does not contain every attempt.
            drop_idle(self._client)
            if pause_s:
                sleep(pause_s)
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LAST_PAUSE_S)

    def _fcall(self, command: Command) -> Any:
        self.check_library(str(command[_KEY]))
        if self._entry != STRICT:
            try:
                return call_function(self._client, *command)
            except BusRefused as error:
                if not is_forbidden(error):
                    raise
        reply = call_function(self._client, *_strict(command))
        self._stay_with(STRICT)
        return reply

    def _fcall_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send events, optionally with a command that waits for them. Returns a reply for each."""
        key = str(commands[0][_KEY])
        self.check_library(key)
        count = len(commands) - (commands[-1][0] != "FCALL")  # without a last command that waits for them
        entry = began = TRUSTED if self._entry == BATCH and count == 1 else self._entry
        replies = self._exchange(key, entry, commands, count)
        if not [reply for reply in replies if isinstance(reply, HeadgateError)]:
            return replies
        while entry in _NEXT_ENTRY and all(map(_is_no_right, replies[:count])):
            entry = _NEXT_ENTRY[entry]
            replies = self._exchange(key, entry, commands, count)
        answers = replies[:count]
        if entry != began and not any(map(_is_no_right, answers)):
            self._stay_with(entry)
        # A server that cannot write refuses all events, or all from some event on. So a retry keeps their order.
        first = next((index for index, reply in enumerate(answers) if isinstance(reply, BusUnavailable)), None)
        if first is not None and all(isinstance(reply, BusUnavailable) for reply in answers[first:]):
            raise answers[first]
        return replies

    def _exchange(self, key: str, entry: str, commands: Sequence[Command], count: int) -> list[Any]:
        """Send `count` events by a function, and the command after them, in one round trip. Returns a reply for each."""
        gathered = in_batches(commands[:count]) if entry == BATCH else []
        calls: Sequence[Command] = [batch.command for batch in gathered] or commands[:count]
        if entry == STRICT:
            calls = [_strict(call) for call in calls]
        calls = [*calls, *commands[count:]]
        replies = call_many(self._client, calls)
        if any(map(is_missing, replies)):
            ensure_loaded(self._client, key)
            replies = call_many(self._client, calls)
        if not gathered:
            return replies
        where = place_of(self._client, key)
        each = [reply for batch, answer in zip(gathered, replies, strict=False) for reply in batch.replies(answer, where)]
        return each + replies[len(gathered) :]

    def _stay_with(self, entry: str) -> None:
        """Use this function from now on, because the user may not call the previous one."""
        if self._entry != entry:
            self._entry = entry
            wanted = BATCH if entry == TRUSTED else TRUSTED
            log.warning(
                "this Redis user may not call %s, %s (%s): allow +fcall|%s for less work there",
                *(wanted, _COST[entry], entry, wanted),
            )

    def check_library(self, key: str) -> None:
        """Load the function library, or replace an older one, before this publisher's first call to a server.

        Before the first event of a log, it also reports the log's database number, without which the library publishes nothing.
        """
        server = at(self._client, key)
        if self._checked.get(key) is server:
            return
        declaration: Command = ("HSETNX", head_key(namespace_of(key)), "database", database_number(self._client))
        version, declared = call_many(server, [("FCALL_RO", "headgate_version", 0), declaration])  # in one round trip
        if not (isinstance(version, int) and version >= VERSION):
            ensure_loaded(self._client, key)
        if isinstance(declared, HeadgateError):
            with suppress(BusRefused):  # no right or no room; a gateway reports the number too
                call(self._client, *declaration)
        self._checked[key] = server

    def open_check(
        self, schemas: str | None, mode: Literal["off", "warn", "refuse"] | None, on_violation: OnViolation | None
    ) -> SchemaCheck | None:
        """Return the schema check, or None without one. Raises as `schemas.check.open_check`."""
        return open_check(self._client, schemas, mode, on_violation, partial(self.budget, is_patient=True))

    def wait_ms(self, namespace: str) -> int:
        """Return how long Redis may wait for replicas or the disk, from the rest of the call. Loads the library first."""
        self._retried(self.check_library, log_key(namespace))
        return max(1, round(1000 * (left_s() or 0.0) * _SHARE_OF_WAITING))

    def counted(self, wish: Durability, namespace: str) -> Durability:
        """Replace a wish for all replicas by their current number; return any other wish unchanged.

        Raises BusRefused, without sending an event, if this user may not read it.
        """
        if not wish.all_replicas:
            return wish
        return wish.of(self._retried(self._count_online, log_key(namespace)))

    def _count_online(self, key: str) -> int:
        info = call_at(self._client, key, "INFO", "replication")
        if info["role"] == "slave":  # a former primary, which has none of its replicas any more
            raise unavailable(f"{place_of(self._client, key)}: it is a replica", "READONLY")
        return count_online(self._replicas, info, monotonic())

    def refuse_unserved(self, namespace: str) -> None:
        """Raise NamespaceNotServed before a strict publisher sends. Asks each time, because a gateway may appear."""
        if not self._strict_namespace or self._asked.get(namespace):
            return
        try:
            served, known = has_been_served(self._client, namespace)
        except BusUnavailable:
            return  # the publish fails, too, and reports the reason
        except BusRefused as error:
            log.warning("publishing to namespace %r without knowing whether a gateway serves it: %s", namespace, error.message)
            served, known = True, []
        if not served:
            raise NamespaceNotServed(namespace, known)
        note_served(self._asked, namespace, is_served=True)

    def warn_unserved(self, namespace: str) -> None:
        """Warn once about a namespace that no gateway has served. Called after an event, when Redis is known to answer."""
        if self._strict_namespace or namespace in self._asked:
            return
        note_served(self._asked, namespace, is_served=False)  # first, so that other threads do not warn too
        try:
            served, known = has_been_served(self._client, namespace)
        except HeadgateError as error:
            log.info("cannot tell whether a gateway serves namespace %r: %s", namespace, error.message)
            return
        if served:
            note_served(self._asked, namespace, is_served=True)
        else:
            log.warning("%s", NamespaceNotServed(namespace, known).message)

    def announce(self, namespace: str, topic: str, message: bytes) -> None:
        """Publish a message on the live channel of a topic. Waits for Redis. Raises as `call_at`."""
        where, has_topic = live_channel(namespace, topic, database_number(self._client))
        text = b"%b\n%b" % (topic.encode(), message) if has_topic else message
        with self.budget(namespace):
            call_at(self._client, log_key(namespace), "PUBLISH", where, text)

    def fate(self, namespace: str, epoch: str, offset: int, event_id: str) -> Fate:
        """Return the fate of a receipt's event. Waits for Redis. Raises as `call_at`, and BusUnavailable from a replica."""
        with self.budget(namespace, is_patient=True):
            self.check_library(log_key(namespace))
            events = EventLog(namespace, self._client)
            head = events.head(epoch)
            head.check_primary()
            line = head.lineage or alone(head.epoch)
            end = line.end_of(epoch, head.offset) if head.epoch else None
            if end is None:
                return Fate.UNKNOWN
            if offset > end:
                return Fate.ROLLED_BACK
            there = events.page(offset - 1, offset)
            if not there:
                return Fate.TRIMMED
            # A Redis reverted with its memory may assign a place twice (docs/guarantees.md, the limits of promise 2).
            is_another = event_id and there[0].event is not None and there[0].event.id != event_id
            return Fate.ROLLED_BACK if is_another else Fate.IN_LOG

    def position(self, namespace: str) -> LogPosition | None:
        """Return the end of the log of a namespace, or None before its first event. Waits for Redis. Raises as `call_at`."""
        with self.budget(namespace, is_patient=True):
            self.check_library(log_key(namespace))
            head = EventLog(namespace, self._client).head()
        return {"epoch": head.epoch, "offset": head.offset} if head.epoch else None

    def members_page(
        self, namespace: str, topic: str, after: str | None = None, limit: int | None = None
    ) -> tuple[int, list[Member], str | None]:
        """Return (number of members, a page of them, start of the next page or None). Waits for Redis. Raises as `call_at`."""
        with self.budget(namespace, is_patient=True):
            return read_page(self._client, namespace, topic, after, limit)

    def inbox_page(
        self, namespace: str, user: str, before: int | None, limit: int, *, archived: bool, had: tuple[str, int] | None
    ) -> InboxPage:
        """Return a part of a user's inbox, not older than `had`. Waits for Redis. Raises as `Inbox.page`."""
        read = inbox_reader(self._client, namespace, user, before, limit, archived=archived)
        with self.budget(namespace, is_patient=True):
            if had is None:
                return read()
            epoch, offset = had
            head = EventLog(namespace, self._client).head(epoch)
            line = head.lineage or alone(head.epoch)
            end = offset if epoch == head.epoch else line.end_of(epoch, head.offset)
            if end is None:
                raise InvalidRequest("epoch: the log does not know it (any more); read the inbox without a position")
            return read_current(read, min(offset, end), line, sleep)

    def revoke(self, namespace: str, *, user: str | None, token_id: str | None, for_s: int) -> int:
        """Revoke a user or a token, as `auth.revocation.revoke`, within the budget of a namespace."""
        with self.budget(namespace, is_patient=True):
            return revoke(self._client, user=user, token_id=token_id, for_s=for_s)

    def close(self) -> None:
        """Close the connections. Idempotent. A later call opens new ones."""
        self._client.close()


def _strict(command: Command) -> Command:
    """Return the strict form of a call of the trusted function."""
    return (command[0], STRICT, *command[2:])


def _is_no_right(reply: Any) -> bool:
    return isinstance(reply, BusRefused) and is_forbidden(reply)


class Batch(NamedTuple):
    """A call and its number of events."""

    command: Command
    events: int

    def replies(self, reply: Any, where: str = "Redis") -> list[Any]:
        """Return (epoch, offset, is_duplicate) for each event, or an error with the name of its server.

        Raises BusRefused if the reply does not fit this call.
        """
        if isinstance(reply, HeadgateError):
            return [reply] * self.events
        try:
            replies = [each for line in reply.split(b"\n") for each in _read_line(line, self.events, where, self.command)]
        except (ValueError, AttributeError):
            replies = []
        if len(replies) != self.events:
            raise refused(f"the function library did not answer for {self.events} events")
        return replies


def _read_line(line: bytes, at_most: int, where: str, command: Command) -> list[Any]:
    if line.startswith(b"-"):
        return [reply_error(line[1:], where, shown_command(command))]
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
