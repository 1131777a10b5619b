"""A room is this process's copy of the members of one topic, with its versions. No I/O.

In: changes of this process's own members (`own_changed`), messages of other processes, and the contents of Redis, read in parts
(`begin`, `lacks`, `add`, `loaded`). Out: members by name, and between two versions the users who came, changed or left.

While the room loads, Redis is read and messages wait. While it is live, each message is applied at once. A message that does not
follow its predecessor from the same process, or a broken link, puts everything in doubt. The room then loads again and keeps
its members during that time. `loaded` computes the difference, so a doubt by itself has no effect on pages.

Changed entries of a user are merged into a member at once if few wait, otherwise later by `merge` in batches. The time does not
matter, because merging reads the current entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec

from headgate.redis.presence_entries import Member, Written, merge, read_entries

from .own_members import OwnMembers
from .tables import Message, Table, are_whole, brought_up

MAX_WAITING = 10_000  # messages during a read; more of them start another read
MERGED_AT_ONCE = 200  # users, in about 2 ms, before the loop may run
_FIELDS_BYTES = 24  # of a member in JSON, without name and meta

_decode = msgspec.json.Decoder(Message).decode


class Room:
    """See the module. `own` are the members of this process.

    Attributes:
        is_live: whether the room has everything written, as far as this process knows. Otherwise it is loading.
        version: number of the last difference.
        loads: number of doubts. A read records which one it answers.
        was_live: whether it was live once, with all members merged.
    """

    def __init__(self, process: str, own: OwnMembers) -> None:
        self._process, self._own = process, own
        self.is_live = False
        self._unmerged: dict[str, None] = {}
        self._tables: dict[str, Table] = {}  # of the other processes
        self._coming: dict[str, Table] = {}  # of the read in progress
        self._members: dict[str, Member] = {}
        self._names: list[str] = []
        self._changed: dict[str, None] = {}
        self._waiting: list[Message] = []
        self.version = 0
        self.loads = 1
        self.was_live = False

    def __len__(self) -> int:
        return len(self._members)

    # -- what comes in ------------------------------------------------------------------------------------------------

    def own_changed(self, user: str) -> None:
        """Take the changed entry of a user at this process."""
        self._merge(user)

    def take(self, raw: bytes) -> bool:
        """Apply a message; return whether the room is now in doubt and must load again. An invalid message counts as missing."""
        try:
            message = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.doubt()
            return True
        if message.process == self._process:
            return False
        if not self.is_live:
            self._waiting.append(message)
            if len(self._waiting) > MAX_WAITING:
                self.doubt()
                return True
            return False
        follows = self._apply(message)
        if len(self._unmerged) <= MERGED_AT_ONCE:
            self.merge()
        if not follows:
            self.doubt()
        return not follows

    def dead(self, process: str) -> None:
        """Drop the table of a process without members, or of a dead one. `merge` updates its members."""
        table = self._tables.pop(process, None)
        if table is not None:
            self._unmerged.update(dict.fromkeys(table.entries))

    def doubt(self) -> None:
        """Put everything in doubt. A waiting message without members still counts, as Redis holds nothing more about it."""
        self.is_live = False
        self.loads += 1
        for message in self._waiting:
            if message.count == 0:
                self._apply(message)
        self._waiting.clear()

    # -- a reading ----------------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether it keeps members missing in Redis, and must be read again at the next beat."""
        return any(table.held_since_s is not None for table in self._tables.values())

    def begin(self) -> int:
        """Begin a read; return the number of the doubt that it answers."""
        self._coming = {}
        return self.loads

    def lacks(self, process: str, written: Written) -> bool:
        """Apply Redis' record of a process's last write; return whether its members must be read, too."""
        known = self._tables.get(process)
        if process == self._process or (known is not None and known.number == written.number and known.is_whole):
            return False
        self._coming[process] = Table(*written)
        return True

    def add(self, process: str, values: Mapping[str, bytes]) -> None:
        """Add a part of a process's members."""
        self._coming[process].entries.update(read_entries(values))

    def loaded(self, nth: int, last: Mapping[str, Written], now_s: float, in_touch_since_s: float | None) -> bool:
        """End a read that answers doubt `nth` (from `begin`); return whether the room is live. If not, read again.

        `last` is the last write of each process in Redis at the end of the read. `now_s` is monotonic. `in_touch_since_s` is as
        in `Leases`.
        """
        if nth != self.loads or self.is_live:
            return self.is_live
        last = {process: written for process, written in last.items() if process != self._process}
        if not self._end(last, now_s, in_touch_since_s):
            self.doubt()
            return False
        self.is_live = True
        for message in self._waiting:
            if not self._apply(message):
                self.doubt()
                return False
        self._waiting.clear()
        return True

    def merge(self, most: int = MERGED_AT_ONCE) -> bool:
        """Merge up to `most` changed users; return whether more remain."""
        for user in list(islice(self._unmerged, most)):
            self._merge(user)
        if self._unmerged:
            return True
        if not self.was_live and self.is_live:
            self.was_live = True
            self._changed.clear()  # no page has seen an earlier version
        return False

    @property
    def has_unmerged(self) -> bool:
        """Whether `merge` has work."""
        return bool(self._unmerged)

    # -- what goes out ------------------------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether there is a difference to send."""
        return bool(self._changed)

    def take_changes(self, most_bytes: int) -> tuple[list[Member], list[str]]:
        """Return the next difference, up to about `most_bytes`, as new or changed members, and absent users.

        It increments `version`. Users who came and left in between count as absent, because a page may have read them.
        """
        came: list[Member] = []
        left: list[str] = []
        size = 0
        for user in list(self._changed):
            now = self._members.get(user)
            size += len(user) + (0 if now is None else _FIELDS_BYTES + len(now.meta or ""))
            if size > most_bytes and (came or left):
                break
            del self._changed[user]
            if now is None:
                left.append(user)
            else:
                came.append(now)
        self.version += 1
        return came, left

    def member(self, user: str) -> Member | None:
        """Return a user who is present."""
        return self._members.get(user)

    def after(self, user: str | None) -> Iterable[Member]:
        """Yield the members by name, starting after `user`. Nothing may change during the iteration."""
        for at in range(0 if user is None else bisect_right(self._names, user), len(self._names)):
            yield self._members[self._names[at]]

    # -- private ------------------------------------------------------------------------------------------------------

    def _apply(self, message: Message) -> bool:
        """Apply a message; return whether it follows the last one of its process."""
        table = self._tables.get(message.process)
        if message.count == 0:
            if table is not None and (message.number == 0 or message.number > table.number):  # 0: declared dead
                self.dead(message.process)
            return True
        table = table or Table(0, 0)
        known = table.number
        follows = table.follow(message)
        if table.number != known:
            table.held_since_s = None  # Redis refuses a write that does not follow the previous one
            self._tables[message.process] = table
            self._unmerged.update(dict.fromkeys([*(put[0] for put in message.puts), *message.takes]))
        return follows

    def _end(self, last: Mapping[str, Written], now_s: float, in_touch_since_s: float | None) -> bool:
        """End a read and apply it if it is complete; return whether it is. Messages for unread tables are not applied."""
        coming, self._coming = self._coming, {}
        if not brought_up(coming, self._waiting) or not are_whole(coming, last):
            return False
        for process, table in list(self._tables.items()):
            read, at_end = coming.get(process), last.get(process)
            if read is not None and (read.number > table.number or not table.is_whole):
                continue
            if at_end is not None and at_end.number >= table.number:
                table.held_since_s = None
            elif table.outlives(now_s, in_touch_since_s):
                self.dead(process)
                continue
            coming.pop(process, None)
        for process, table in coming.items():
            before = self._tables.get(process)
            self._tables[process] = table
            self._unmerged.update(dict.fromkeys(table.entries if before is None else {**before.entries, **table.entries}))
        return True

    def _merge(self, user: str) -> None:
        self._unmerged.pop(user, None)
        entries = [table.entries[user] for table in self._tables.values() if user in table.entries]
        if (own := self._own.entry(user)) is not None:
            entries.append(own)
        before, now = self._members.get(user), merge(user, entries)
        if now == before:
            return
        self._changed[user] = None
        if now is None:
            del self._members[user]
            del self._names[bisect_left(self._names, user)]
        else:
            self._members[user] = now
            if before is None:
                insort(self._names, user)
