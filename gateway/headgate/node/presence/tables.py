"""A table has another process's entries for its members in one topic. No I/O.

In: its messages, and the reads of Redis. Out: its entries, and whether they still count. A room (room.py) has a table of each.

A table is stated if the last read found it in Redis or its process has written since. It is held if Redis had no or an older one,
because Redis may have lost its memory or failed over to a replica without the last writes. A live process writes everything again
within a second or two, and members of a dead process have 5 s to come back elsewhere. So a held table counts for LEASE_S, and
the next read drops it. That time runs only while this process is in touch with Redis.

Messages arrive during a read. They are numbered and put or take single users, so a part that already includes some of them does
no harm. A read is complete when each process's table has reached the write that Redis had at its end, with the same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headgate.node.presence.write_batches import WHOLE
from headgate.redis.presence_entries import LEASE_S, Entry, Written


class Message(msgspec.Struct, array_like=True, frozen=True):
    """A write of another process (write_batches.py)."""

    process: str
    before: int
    number: int
    count: int
    puts: list[tuple[str, int, int, int, str | None]] = []
    takes: list[str] = []


class Table:
    """The entries of one process as of a write, and their number then. `held_since_s` is None for a stated table."""

    __slots__ = ("count", "entries", "held_since_s", "number")

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count
        self.entries: dict[str, Entry] = {}
        self.held_since_s: float | None = None

    def outlives(self, now_s: float, in_touch_since_s: float | None) -> bool:
        """Record that a read lacks it; return whether it has been lacking for LEASE_S, with this process always in touch."""
        if self.held_since_s is None:
            self.held_since_s = now_s
        return in_touch_since_s is not None and now_s - max(self.held_since_s, in_touch_since_s) >= LEASE_S

    def follow(self, message: Message) -> bool:
        """Apply a message; return whether it follows the known ones and leads to the number of members of its process."""
        if message.number <= self.number:
            return True  # the read already included it
        if message.before == WHOLE or message.before != self.number:
            return False
        for user, connections, since_ms, changed_ms, meta in message.puts:
            self.entries[user] = Entry(connections, since_ms, changed_ms, meta)
        for user in message.takes:
            self.entries.pop(user, None)
        self.number, self.count = message.number, message.count
        return self.is_whole

    @property
    def is_whole(self) -> bool:
        return len(self.entries) >= self.count  # more if another program has written to the key


def brought_up(tables: dict[str, Table], waiting: Iterable[Message]) -> bool:
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


def are_whole(tables: Mapping[str, Table], last: Mapping[str, Written]) -> bool:
    """Return whether the tables of a read are as recent as Redis at its end, or more recent."""
    return all(process in last and table.number >= last[process].number and table.is_whole for process, table in tables.items())
