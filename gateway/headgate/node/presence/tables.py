"""Tables: what each other process has written about its members in one topic. No I/O.

In: messages of other processes (`apply`), and reads of Redis in parts (`begin`, `add`, `end`). Out: the entries of a user, and
the users that may have changed.

A table is STATED if the last read found it in Redis or its process has written since. It is HELD if Redis had no or an older one,
because Redis may have lost its memory or failed over to a replica without the last writes. A live process writes everything again
within a second or two, and members of a process that has just died have their 5 s to come back elsewhere. So a HELD table
counts for LEASE_S, and the next read drops it. That time runs only while this process is in touch with Redis. Reads more than
IN_TOUCH_S apart prove nothing about the time between them.

Messages arrive during a read. They are numbered and put or take single users, so a part that already includes some of them does
no harm. A read is complete when each process's table has reached the write that Redis had at its end, with the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import msgspec

from headgate.node.presence.write_batches import ANEW
from headgate.redis.presence_entries import LEASE_S, Entry, Written, read_entries
from headgate.runtime.machine import Machine

from .leases import BEAT_S

# Redis is read at each beat while a table is held.
IN_TOUCH_S = 2 * BEAT_S


class Standing(Enum):
    """The validity of a table."""

    STATED = "stated"
    HELD = "held"
    DROPPED = "dropped"


class Step(Enum):
    """What happens to a table: its process has written; a read finds it, lacks it, or has lacked it for LEASE_S."""

    WRITTEN = "written"
    LACKED = "lacked"
    OUTLIVED = "outlived"


_MACHINE = Machine(
    "table of members",
    {
        (Standing.STATED, Step.WRITTEN): Standing.STATED,
        (Standing.STATED, Step.LACKED): Standing.HELD,
        (Standing.HELD, Step.WRITTEN): Standing.STATED,
        (Standing.HELD, Step.LACKED): Standing.HELD,
        (Standing.HELD, Step.OUTLIVED): Standing.DROPPED,
    },
)


class Message(msgspec.Struct, array_like=True, frozen=True):
    """A write of another process (write_batches.py)."""

    process: str
    before: int
    number: int
    count: int
    puts: list[tuple[str, int, int, int, str | None]] = []
    takes: list[str] = []


class _Table:
    """The entries of one process as of a write, and their number then."""

    __slots__ = ("count", "entries", "held_since_s", "number", "standing")

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count
        self.entries: dict[str, Entry] = {}
        self.standing = Standing.STATED
        self.held_since_s = 0.0

    def step(self, step: Step) -> None:
        self.standing = _MACHINE[self.standing, step]

    def follow(self, message: Message) -> bool:
        """Apply a message; return whether it follows on what is known, and comes to as many members as its process has."""
        if message.number <= self.number:
            return True  # the read already included it
        if message.before == ANEW or message.before != self.number:
            return False
        for user, connections, since_ms, changed_ms, meta in message.puts:
            self.entries[user] = Entry(connections, since_ms, changed_ms, meta)
        for user in message.takes:
            self.entries.pop(user, None)
        self.number, self.count = message.number, message.count
        return self.is_whole

    @property
    def is_whole(self) -> bool:
        return len(self.entries) >= self.count  # more: another program has written to the key


class Tables:
    """See the module.

    Args:
        changed: called with users whose entries may have changed.
    """

    def __init__(self, changed: Callable[[Iterable[str]], object]) -> None:
        self._changed = changed
        self._tables: dict[str, _Table] = {}
        self._coming: dict[str, _Table] = {}  # of the read in progress
        self._read_s: float | None = None

    @property
    def holds(self) -> bool:
        """Whether some table is HELD, so that Redis must be read again at the next beat."""
        return any(table.standing is Standing.HELD for table in self._tables.values())

    def entries(self, user: str) -> list[Entry]:
        """Return the entries of a user at all processes."""
        return [table.entries[user] for table in self._tables.values() if user in table.entries]

    def apply(self, message: Message) -> bool:
        """Apply a message; return whether it follows the last one of its process."""
        table = self._tables.get(message.process)
        if message.count == 0:
            if table is not None and (
                message.number == 0 or message.number > table.number
            ):  # 0: another process declares it dead
                self.drop(message.process)
            return True
        table = table or _Table(0, 0)
        known = table.number
        follows = table.follow(message)
        if table.number != known:
            table.step(Step.WRITTEN)  # Redis refuses a write that does not follow the previous one
            self._tables[message.process] = table
            self._changed([*(put[0] for put in message.puts), *message.takes])
        return follows

    def drop(self, process: str) -> None:
        """Drop the table of a process without members, or of a dead one."""
        table = self._tables.pop(process, None)
        if table is not None:
            self._changed(table.entries)

    def missed(self) -> None:
        """Record that Redis was unreachable since the last read, perhaps for others too."""
        self._read_s = None

    # -- a reading ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a read."""
        self._coming = {}

    def lacks(self, process: str, written: Written) -> bool:
        """Apply Redis' record of a process's last write; return whether its members must be read too."""
        known = self._tables.get(process)
        if known is not None and known.number == written.number and known.is_whole:
            return False
        self._coming[process] = _Table(*written)
        return True

    def add(self, process: str, values: Mapping[str, bytes]) -> None:
        """Add a part of a process's members."""
        self._coming[process].entries.update(read_entries(values))

    def end(self, last: Mapping[str, Written], waiting: Iterable[Message], now_s: float) -> bool:
        """End a read and apply it if it is complete; return whether it is.

        Args:
            last: the last write of each process in Redis now.
            waiting: messages that came during the read, in order. Those for tables that were not read are not applied.
            now_s: monotonic.
        """
        coming, self._coming = self._coming, {}
        if not _brought_up(coming, waiting) or not _are_whole(coming, last):
            return False
        in_touch = self._read_s is not None and now_s - self._read_s <= IN_TOUCH_S
        self._read_s = now_s
        for process, table in list(self._tables.items()):
            read, at_end = coming.get(process), last.get(process)
            if read is not None and (read.number > table.number or not table.is_whole):
                continue
            if at_end is not None and at_end.number >= table.number:
                table.step(Step.WRITTEN)
            elif self._outlives(table, in_touch, now_s):
                self.drop(process)
                continue
            coming.pop(process, None)
        for process, table in coming.items():
            before = self._tables.get(process)
            self._tables[process] = table
            self._changed(table.entries if before is None else {**before.entries, **table.entries})
        return True

    def _outlives(self, table: _Table, in_touch: bool, now_s: float) -> bool:
        if table.standing is not Standing.HELD or not in_touch:
            table.step(Step.LACKED)
            table.held_since_s = now_s
        elif now_s - table.held_since_s >= LEASE_S:
            table.step(Step.OUTLIVED)
            return True
        return False


def _brought_up(tables: dict[str, _Table], waiting: Iterable[Message]) -> bool:
    """Apply messages to the tables of a read; return whether they follow. Only the last one must reach its count."""
    for message in waiting:
        table = tables.get(message.process)
        if table is None or 0 < message.number <= table.number:
            continue
        if message.count == 0:
            del tables[message.process]
            continue
        table.follow(message)
        if table.number != message.number:
            return False
    return True


def _are_whole(tables: Mapping[str, _Table], last: Mapping[str, Written]) -> bool:
    """Return whether the tables of a read are as recent as Redis at its end, or more recent."""
    return all(process in last and table.number >= last[process].number and table.is_whole for process, table in tables.items())
