"""A room: this process's copy of who is in one topic, and its versions. No I/O.

In: what this process's own members come to (`own_changed`); messages of other processes; what Redis has, read in parts (`begin`,
`lacks`, `add`, `loaded`). Out: members by name; between two versions, the users who have come, changed or left.

While it is loading, Redis is read, and messages wait; while it is live, each message is applied as it comes. A message that
does not follow the one before it from the same process, or a link that broke, puts everything in doubt: it loads again, while the
members that were known stay. `loaded` then tells the difference, so a doubt by itself changes nothing that a page can see.

A user whose entries have changed is merged into a member: at once where these are few, else by `merge`, so many at a time. It
does not matter when: a merge looks at what the entries are then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec

from headgate.redis.presence_entries import Entry, Member, Written, merge

from .tables import Message, Tables

# Messages that wait while Redis is read. Beyond that it is read once more.
MAX_WAITING = 10_000
# Users who are merged without a turn for others: 2 ms.
MERGED_AT_ONCE = 200
# Of a member in JSON, beside name and meta.
_FIELDS_BYTES = 24

_decode = msgspec.json.Decoder(Message).decode


class Room:
    """See the module.

    Attributes:
        is_live: whether it has everything that was written, as far as this process has been told; else it is being loaded.
        version: counts the differences that were told.
        loads: how often everything was put in doubt; a reading says which of these it answers.
        was_live: whether it has been live once, with all members merged.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self.is_live = False
        self._own: dict[str, Entry] = {}
        self._unmerged: dict[str, None] = {}
        self._others = Tables(lambda users: self._unmerged.update(dict.fromkeys(users)))
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

    def own_changed(self, user: str, entry: Entry | None) -> None:
        """A user has this entry at this process, or none any more."""
        if entry is None:
            self._own.pop(user, None)
        else:
            self._own[user] = entry
        self._merge(user)

    def take(self, raw: bytes) -> bool:
        """Take a message; return whether the room is in doubt now and must be loaded again. One that is none counts as a hole."""
        try:
            message = _decode(raw)
        except msgspec.MsgspecError:
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
        follows = self._others.apply(message)
        if len(self._unmerged) <= MERGED_AT_ONCE:
            self.merge()
        if not follows:
            self.doubt()
        return not follows

    def dead(self, process: str) -> None:
        """A process is dead. What becomes of its members, `merge` tells."""
        self._others.drop(process)

    def doubt(self) -> None:
        """Something may have been missed. A process's word that nobody is left counts: Redis has nothing more to say of it."""
        self.is_live = False
        self.loads += 1
        for message in self._waiting:
            if message.count == 0:
                self._others.apply(message)
        self._waiting.clear()

    def missed(self) -> None:
        """The link broke: something may have been missed, and Redis may have been out of reach for others too."""
        self._others.missed()
        self.doubt()

    # -- a reading ----------------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether it keeps members that Redis did not have: then it is to be read again at the next beat."""
        return self._others.holds

    def begin(self) -> int:
        """A reading begins; return which doubt it answers."""
        self._others.begin()
        return self.loads

    def lacks(self, process: str, written: Written) -> bool:
        """Take what Redis says of a process's last write; return whether its members are to be read too."""
        return process != self._process and self._others.lacks(process, written)

    def add(self, process: str, values: Mapping[str, bytes]) -> None:
        """Take a part of a process's members."""
        self._others.add(process, values)

    def loaded(self, nth: int, last: Mapping[str, Written], now_s: float) -> bool:
        """A reading that answers the doubt `nth` is at its end; return whether the room is live now. If not, read again.

        Args:
            nth: as `begin` returned it.
            last: the last write of each process, as Redis has it at the end.
            now_s: monotonic.
        """
        if nth != self.loads or self.is_live:
            return self.is_live
        last = {process: written for process, written in last.items() if process != self._process}
        if not self._others.end(last, self._waiting, now_s):
            self.doubt()
            return False
        self.is_live = True
        for message in self._waiting:
            if not self._others.apply(message):
                self.doubt()
                return False
        self._waiting.clear()
        return True

    def merge(self, most: int = MERGED_AT_ONCE) -> bool:
        """Merge so many users whose entries have changed; return whether there are more."""
        for user in list(islice(self._unmerged, most)):
            self._merge(user)
        if self._unmerged:
            return True
        if not self.was_live and self.is_live:
            self.was_live = True
            self._changed.clear()  # nobody has had another version
        return False

    @property
    def has_unmerged(self) -> bool:
        """Whether `merge` has something to do."""
        return bool(self._unmerged)

    # -- what goes out ------------------------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether there is a difference to tell."""
        return bool(self._changed)

    def take_changes(self, most_bytes: int) -> tuple[list[Member], list[str]]:
        """Return the next difference, of about so many bytes: members that came or changed, and users that are not there.

        `version` counts it. Users who came and left meanwhile are among those who are not there: a page may have read them.
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
        """Return a user, if there."""
        return self._members.get(user)

    def after(self, user: str | None) -> Iterable[Member]:
        """Yield the members by name, from behind `user` on. Nothing may change meanwhile."""
        for at in range(0 if user is None else bisect_right(self._names, user), len(self._names)):
            yield self._members[self._names[at]]

    # -- private ------------------------------------------------------------------------------------------------------

    def _merge(self, user: str) -> None:
        self._unmerged.pop(user, None)
        entries = self._others.entries(user)
        if user in self._own:
            entries.append(self._own[user])
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
