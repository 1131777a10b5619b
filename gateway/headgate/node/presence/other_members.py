"""The members of one topic at the other processes, as this process knows them. No I/O.

In: messages of the topic's channel (own_members.py), reads of Redis in parts (`begin`, `lacks`, `add`, `loaded`), and the deaths
of processes. Out: each user's entries, and the users with changed entries.

Each process has a table of its entries. While these are live, each message is applied at once. A message that does not follow its
predecessor from the same process, or a broken link, puts everything in doubt. Redis is then read again, messages wait, and the
known members stay. Messages are numbered and put or take single users, so a part that already includes some of them does no
harm. A read is complete when each table has reached the write that Redis had at its end, with the same size.

A table that Redis lacks, or has an older one of, is held, because Redis may have lost its memory or failed over to a replica
without the last writes. A live process writes everything again within a second or two, and members of a dead process have 5 s to
come back elsewhere. So a held table counts for LEASE_S, and the next read drops it. That time runs only while this process is in
touch with Redis. The next message of its process ends it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headgate.redis.presence_entries import LEASE_S, Entry, read_entries

from .own_members import WHOLE

MAX_WAITING = 10_000  # messages during a read; more of them start another read


class Message(msgspec.Struct, array_like=True, frozen=True):
    """A write of another process."""

    process: str
    before: int
    number: int
    count: int
    puts: list[tuple[str, int, int, int, str | None]] = []
    takes: list[str] = []


_decode = msgspec.json.Decoder(Message).decode


class _Table:
    """The entries of one process as of a write, and their number then. `held_since_s` is None unless it is held."""

    __slots__ = ("count", "entries", "held_since_s", "number")

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count
        self.entries: dict[str, Entry] = {}
        self.held_since_s: float | None = None

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


class OtherMembers:
    """See the module. `process` is this one.

    Attributes:
        is_live: whether these are all members, as far as this process knows. Otherwise they are in doubt.
        doubts: number of doubts. A read records which one it answers.
        changed: the users with changed entries. The owner removes them.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self.is_live = False
        self.doubts = 1
        self.changed: dict[str, None] = {}
        self._tables: dict[str, _Table] = {}
        self._coming: dict[str, _Table] = {}  # of the read in progress
        self._waiting: list[Message] = []

    def entries(self, user: str) -> list[Entry]:
        """Return the entries of a user."""
        return [table.entries[user] for table in self._tables.values() if user in table.entries]

    def take(self, raw: bytes) -> bool:
        """Apply a message, or let it wait for the read; return whether Redis must be read again.

        An invalid message counts as missing.
        """
        try:
            message = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.doubt()
            return True
        if message.process == self._process:
            return False
        if self.is_live:
            follows = self._apply(message)
        else:
            self._waiting.append(message)
            follows = len(self._waiting) <= MAX_WAITING
        if not follows:
            self.doubt()
        return not follows

    def dead(self, process: str) -> None:
        """Drop the table of a process without members, or of a dead one."""
        table = self._tables.pop(process, None)
        if table is not None:
            self._note(table)

    def doubt(self) -> None:
        """Put everything in doubt. A waiting message without members still counts, as Redis holds nothing more about it."""
        self.is_live = False
        self.doubts += 1
        for message in self._waiting:
            if message.count == 0:
                self._apply(message)
        self._waiting.clear()

    # -- a read -------------------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether a table is held, so that Redis must be read again at the next beat."""
        return any(table.held_since_s is not None for table in self._tables.values())

    def begin(self) -> int:
        """Begin a read; return the number of the doubt that it answers."""
        self._coming = {}
        return self.doubts

    def lacks(self, process: str, number: int, count: int) -> bool:
        """Apply the number of a process's last write in Redis, and of its members since; return whether to read those, too."""
        known = self._tables.get(process)
        if process == self._process or (known is not None and known.number == number and known.is_whole):
            return False
        self._coming[process] = _Table(number, count)
        return True

    def add(self, process: str, values: Mapping[str, bytes]) -> None:
        """Add a part of a process's members."""
        self._coming[process].entries.update(read_entries(values))

    def loaded(self, nth: int, last: Mapping[str, int], now_s: float, in_touch_since_s: float | None) -> bool:
        """End a read that answers doubt `nth` (from `begin`); return whether these are live. If not, read again.

        `last` is the number of each process's last write in Redis at the end of the read. `now_s` is monotonic.
        `in_touch_since_s` is as in `Leases`.
        """
        if nth != self.doubts or self.is_live:
            return self.is_live
        coming, self._coming = self._coming, {}
        if not _brought_up(coming, self._waiting) or not _are_whole(coming, last):
            self.doubt()
            return False
        self._replace(coming, last, now_s, in_touch_since_s)
        self.is_live = True
        for message in self._waiting:
            if not self._apply(message):
                self.doubt()
                return False
        self._waiting.clear()
        return True

    # -- private ------------------------------------------------------------------------------------------------------

    def _replace(self, coming: dict[str, _Table], last: Mapping[str, int], now_s: float, in_touch_since_s: float | None) -> None:
        """Replace the tables of which a read has newer ones, and hold or drop those that Redis lacks."""
        for process, table in list(self._tables.items()):
            read, at_end = coming.get(process), last.get(process)
            if read is not None and (read.number > table.number or not table.is_whole):
                continue
            coming.pop(process, None)
            if at_end is not None and at_end >= table.number:
                table.held_since_s = None
                continue
            if table.held_since_s is None:
                table.held_since_s = now_s
            if in_touch_since_s is not None and now_s - max(table.held_since_s, in_touch_since_s) >= LEASE_S:
                self.dead(process)
                if read is not None:
                    coming[process] = read
        for process, table in coming.items():
            self.dead(process)
            self._tables[process] = table
            self._note(table)

    def _apply(self, message: Message) -> bool:
        """Apply a message; return whether it follows the last one of its process."""
        table = self._tables.get(message.process)
        if message.count == 0:
            if table is not None and (message.number == 0 or message.number > table.number):  # 0: declared dead
                self.dead(message.process)
            return True
        table = table or _Table(0, 0)
        known = table.number
        follows = table.follow(message)
        if table.number != known:
            table.held_since_s = None  # Redis refuses a write that does not follow the previous one
            self._tables[message.process] = table
            self.changed.update(dict.fromkeys([*(put[0] for put in message.puts), *message.takes]))
        return follows

    def _note(self, table: _Table) -> None:
        self.changed.update(dict.fromkeys(table.entries))


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


def _are_whole(tables: Mapping[str, _Table], last: Mapping[str, int]) -> bool:
    """Return whether the tables of a read are as recent as Redis at its end, or more recent."""
    return all(process in last and table.number >= last[process] and table.is_whole for process, table in tables.items())
