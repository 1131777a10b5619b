"""A consumer's group in Redis, which hands out work and takes the answers, each in one step of groups.lua.

In: a command client from redis/client.py, and the runner's answers (`settle`). Out: pages of work for the runner. Redis hands
out a task again if it is neither settled nor renewed within its lease.

All methods raise BusUnavailable and BusRefused as `redis.client.call`. After BusUnavailable a step may have happened. Every
step may be repeated. At worst work is handed out twice, but it is never lost.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from headgate.consumers.base import Progress
from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidEvent, InvalidRequest
from headgate.redis.client import Client, call, is_full
from headgate.redis.connections import Command
from headgate.redis.functions import Library
from headgate.redis.keys import group_in_log, group_key, head_key, log_key
from headgate.redis.log import read_entry, time_or_zero
from headgate.redis.subscriber_link import SubscriberLink

from .spec import DEFAULT_MAX_DEAD_BYTES
from .task import Task, unpack

GROUP_LIBRARY = Library("headgate.consumers.work", "groups.lua", "headgate_consumers_version")

# Time limit for an answer of Redis, as with `redis.client.open_client`. Longer than any wait.
ANSWER_WITHIN_S = 5.0
# Number and age of unanswered acknowledgements at which the worker waits for the answers.
MAX_UNCONFIRMED, UNCONFIRMED_S = 100, 0.05

Answer = tuple[str | bytes | int, ...]


@dataclass(slots=True)
class LeasedTask:
    """A task leased by a worker.

    `name` is its name in Redis ("" for an entry of the log without a task). `out` counts the deliveries without an answer,
    including this one. Tasks with the same `mark` are handled together ("" for alone). `error` is why it is unreadable.
    `leased_in` is the epoch of the Redis group in which an entry of the log is leased, which may be later than the event's.
    `clock_ms` is the event's time by the log's clock, if the wall clock of Redis was set (0 for `task.time_ms`). `moving` is
    the name of the task that an entry of the log may have become, without an answer of Redis yet. `packed` is the task as
    stored in Redis.
    """

    task: Task
    name: str
    out: int
    mark: str = ""
    error: HeadgateError | None = None
    leased_in: str = ""
    clock_ms: int = 0
    moving: str = ""
    packed: bytes = b""

    @property
    def in_log(self) -> bool:
        """Whether it is still an entry of the log."""
        return not self.name


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The result of one `take`, with the position of the group.

    `unwanted` are the offsets of entries that match no pattern and only need an acknowledgement. The page's entries are leased
    in `epoch` ("" without a log). `due_in_s` is the time until the next deferred task is due (None if none waits), and `now_ms`
    the time by the group's clock, in ms since 1970. In this call, `missed` counts events trimmed before this group got them,
    and `lost` is 1 if another log has replaced the log. With `is_redis_full` there are no new entries, even if the log has
    some.
    """

    epoch: str
    work: list[LeasedTask]
    unwanted: list[int]
    head: int
    position: int
    waiting: int
    due_in_s: float | None
    now_ms: int
    missed: int
    lost: int
    is_redis_full: bool = False


class Store:
    """One consumer's group in one namespace. Owned by one thread. Attributes: `client`, `namespace` and `group`.

    Args:
        client, url: of its Redis. A connection for acknowledging and waiting is opened by `url` on demand.
        namespace, group: its namespace and name.
        max_payload_bytes: larger entries of the log are unreadable.
    """

    def __init__(self, client: Client, url: str, namespace: str, group: str, max_payload_bytes: int) -> None:
        self.client, self.namespace, self.group = client, namespace, group
        self._url = url
        # For acknowledgements and waits. It is opened on demand, and dropped at the first fault.
        self._link: SubscriberLink | None = None
        # Commands sent over it without an answer.
        self._unanswered = 0
        self._unconfirmed: list[Command] = []
        self._unconfirmed_since_s = 0.0
        self._log = log_key(namespace)
        self._max_payload_bytes = max_payload_bytes
        self._token, self._pages = uuid.uuid4().hex, 0

    def open(self, start: str) -> tuple[str, int]:
        """Create the group unless it exists; return its epoch ("" without a log) and position. Replaces an older library.

        Args:
            start: start of a new group, `new`, `oldest`, or `lost` (it existed before, so it reads everything).
        """
        GROUP_LIBRARY.try_to_update(self.client, self._log)
        epoch, position = self.call("group_open", start)
        return epoch.decode(), position

    def take(self, count: int, lease_ms: int, max_waiting: int, wanted: Callable[[str], bool]) -> TaskPage | None:
        """Hand out up to `count` (2 to 1,000) entries and due tasks for `lease_ms`; None if the group is not open.

        If `max_waiting` or more tasks wait, or Redis is full, there are no new entries until answers make room. `wanted`
        returns whether to read a topic. After an error, the next call gets the same work if Redis had handed it out.
        """
        is_redis_full = False
        try:
            reply = self._hand_out("group_take", count, lease_ms, max_waiting)
        except BusRefused as error:
            if not is_full(error):
                raise
            is_redis_full = True
            reply = self._hand_out("group_take_known", count, lease_ms, max_waiting)
        if not reply:
            return None
        raw_epoch, head, position, waiting, next_due_ms, now_ms, missed, lost, entries, tasks = reply
        epoch = raw_epoch.decode()
        work, unwanted = [_leased_task(*task) for task in tasks], []
        for entry_id, deliveries, flat, written_in in entries:
            offset = int(entry_id.partition(b"-")[0])
            fields = dict(zip(flat[::2], flat[1::2], strict=False))
            if wanted(fields.get(b"topic", b"").decode("ascii", "replace")):
                work.append(self._entry(epoch, written_in.decode(), offset, deliveries, fields))
            else:
                unwanted.append(offset)
        due_in_s = None if next_due_ms < 0 else max(0.0, (next_due_ms - now_ms) / 1000)
        self._pages += 1
        return TaskPage(epoch, work, unwanted, head, position, waiting, due_in_s, now_ms, missed, lost, is_redis_full)

    def acknowledge(self, epoch: str, offsets: Sequence[int]) -> bool:
        """Finish entries of the log; return whether `confirm` is due. Never raises or waits.

        Every event needs this answer, so it is the cheapest, one XACK. It is written at once over a separate connection, so it
        arrives even if this process ends right after.
        """
        if not self._unconfirmed:
            self._unconfirmed_since_s = time.monotonic()
        ids = [f"{offset}-0" for offset in offsets]
        command: Command = ("XACK", self._log, group_in_log(self.group, epoch), *ids)
        self._unconfirmed.append(command)
        try:
            if self._link is not None:
                self._link.send(command)
                self._unanswered += 1
        except BusUnavailable:
            self.close()
        owed_s = time.monotonic() - self._unconfirmed_since_s
        return self._link is None or len(self._unconfirmed) >= MAX_UNCONFIRMED or owed_s > UNCONFIRMED_S

    def confirm(self) -> None:
        """Wait until Redis has answered every acknowledgement. Sends them again after an error."""
        if self._unconfirmed:
            self._finish(self._unconfirmed)
            self._unconfirmed = []

    def settle(self, answers: Iterable[Answer]) -> tuple[int, int]:
        """Give answers (`held`, `done`, `defer`, `dead`, `back`, `again`), all in one step.

        Returns the number of waiting tasks, and the number of dead letters displaced by new ones.
        """
        given = list(answers)
        try:
            waiting, dropped = self.call("group_settle", *chain.from_iterable(given))
        except InvalidRequest:  # the library is older than `held`, and this user may not replace it
            waiting, dropped = self.call("group_settle", *chain.from_iterable(each for each in given if each[0] != "held"))
        return waiting, dropped

    def renew(self, names: Sequence[str], lease_ms: int) -> None:
        """Renew the leases of tasks."""
        self.call("group_renew", lease_ms, *names)

    def tick(self, *counts: int) -> int:
        """Report the time from the last call, and its age in ms; return the group's time now (0: the group is not open).

        Leases and due times are right while each process does this every few seconds (redis/time_watch.py has the arguments).
        """
        return int(self.call("group_tick", *counts))

    def wait(self, position: int, timeout_s: float) -> None:
        """Wait until the log has an event after `position`, at most `timeout_s`. Call it after `confirm`."""
        block_ms = max(1, int(timeout_s * 1000))
        self._finish((("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self._log, f"{position}-0"),))

    def close(self) -> None:
        """Close the connection opened here. Idempotent."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def progress(self) -> Progress:
        """Return the progress of the group."""
        return Progress(*GROUP_LIBRARY.call(self.client, "FCALL_RO", "headgate_group_progress", 1, self._log, self.group))

    def lag(self) -> int:
        """Return how many events of the log the group has not taken."""
        head = int(call(self.client, "HGET", head_key(self.namespace), "offset") or 0)
        return max(0, head - read_position(self.client, self.namespace, self.group))

    def call(self, function: str, *arguments: str | bytes | int) -> Any:
        """Call a function of groups.lua that writes, such as `group_take` or `state_put`."""
        return GROUP_LIBRARY.call(self.client, "FCALL", f"headgate_{function}", 1, self._log, self.group, *arguments)

    def _finish(self, commands: Sequence[Command]) -> None:
        """Wait until all these commands are answered. The first of them were sent, unless the connection was dropped since."""
        try:
            if (link := self._link) is None:
                link = self._link = SubscriberLink(self._url, key=self._log)
                link.connect()
                link.settimeout(ANSWER_WITHIN_S)
                self._unanswered = 0
            if unsent := commands[self._unanswered :]:
                link.send(*unsent)
                self._unanswered += len(unsent)
            while self._unanswered > 0:
                self._unanswered -= len(link.read())
        except HeadgateError:  # a late reply must not be read as the next command's
            self.close()
            raise

    def _hand_out(self, function: str, *numbers: int) -> Any:
        try:
            return self.call(function, *numbers, self._token, self._pages)
        except InvalidRequest:  # the library is older than the token, and this user may not replace it
            return self.call(function, *numbers)

    def _entry(self, leased_in: str, epoch: str, offset: int, deliveries: int, fields: dict[bytes, bytes]) -> LeasedTask:
        entry = read_entry(offset, fields, self._max_payload_bytes)
        if entry.event is not None:
            event = entry.event
            task = Task(epoch, offset, event.topic, event.id, event.time_ms, event.data, traceparent=event.traceparent)
        else:  # the readable parts
            topic, data = fields.get(b"topic", b""), fields.get(b"data", b"")
            task = Task(epoch, offset, topic[:255].decode("ascii", "replace"), None, 0, data[: self._max_payload_bytes])
        clock_ms = time_or_zero(fields.get(b"clock", b""))
        return LeasedTask(task, "", deliveries, error=entry.error, leased_in=leased_in, clock_ms=clock_ms)


def read_position(client: Client, namespace: str, group: str) -> int:
    """Return the offset up to which a group has taken the log. Raises as `redis.client.call`."""
    return int(call(client, "HGET", group_key(namespace, group), "position") or 0)


def held(leased: LeasedTask) -> Answer:
    """Make the answers up to the next `held` count only if no other worker has had this work since it was leased."""
    entry = (leased.leased_in, f"{leased.task.offset}-0") if leased.in_log else ("", "")
    sha1 = hashlib.sha1(leased.packed, usedforsecurity=False).hexdigest()
    return "held", *entry, leased.moving or leased.name, leased.out, sha1


def done(leased: LeasedTask) -> Answer:
    """Finish the work, done or unwanted. Consecutive answers are combined."""
    if not leased.in_log:
        return "done", leased.name
    return ("ack", leased.leased_in, f"{leased.task.offset}-0", *(("done", leased.moving) if leased.moving else ()))


def back(leased: LeasedTask) -> Answer:
    """Return work not begun. Any worker may get it at once, and this delivery does not count."""
    if leased.in_log and not leased.moving:
        return "back", leased.leased_in, f"{leased.task.offset}-0", leased.out - 1
    return instead(leased, leased.task, 0, leased.out - 1)


def instead(leased: LeasedTask, task: Task, delay_ms: int, out: int = 0) -> Answer:
    """Store a task, as `defer_for`, in place of the leased one, which may be an entry of the log."""
    return (*(done(leased) if leased.in_log else ()), *defer_for(task, delay_ms, out))


def defer_for(task: Task, delay_ms: int, out: int = 0) -> Answer:
    """Store a task for `delay_ms`, in place of its previous version.

    It is leased, after `out` deliveries, if `out` is above 0.
    """
    return "defer", task.name, f"+{delay_ms}", int(task.together), out, task.pack()


def dead(task: Task, why: str, reason: str, max_dead: int, max_bytes: int = DEFAULT_MAX_DEAD_BYTES) -> Answer:
    """Add a task to the dead letters. Keeps the newest letters, at most `max_dead` and `max_bytes`."""
    return "letter", why, reason, task.name, task.pack(), max_dead, max_bytes


def again(dead_id: str, task: Task) -> Answer:
    """Move a task from the dead letters to the due tasks. Does nothing if it is no longer there."""
    return "again", dead_id, task.name, task.pack()


def _leased_task(name: bytes, out: int, mark: bytes, body: bytes) -> LeasedTask:
    try:
        return LeasedTask(unpack(body), name.decode(), out, mark.decode(), packed=body)
    except msgspec.DecodeError:
        _, epoch, offset, _ = name.decode().split("-")
        task = Task(epoch, int(offset), "", None, 0, body)
        return LeasedTask(task, name.decode(), out, packed=body, error=InvalidEvent("task", "what was kept of it cannot be read"))
