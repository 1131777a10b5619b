"""Pending writes to Redis about this process's own members, and their numbers. No I/O.

In: topics with changed users, and the outcome of each write. Out: writes for presence.lua, each with the message that other
processes read, `[process, before, number, count, puts, takes]`. `before` is the number of the preceding write (0 for none, -1
if everything is written again, so that others must read it), and `count` is the resulting number of members.

A failed write may have been applied, and a refused one shows that Redis has lost its predecessor. In both cases the topic is
written again as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from headgate.redis.presence_entries import Entry, TopicWrite, encode_entry

from .own_members import OwnMembers

# Most changes per write, of one topic and in total.
MAX_CHANGES, MAX_IN_ALL = 1000, 2000
NOTHING_BEFORE, WHOLE = 0, -1

_encode = msgspec.json.Encoder().encode


class WriteBatches:
    """See the module.

    Args:
        process: returns the id of this process.
        own: returns the members of this process in a topic.
    """

    def __init__(self, process: Callable[[], str], own: Callable[[str], OwnMembers]) -> None:
        self._process, self._own = process, own
        self._number = 0
        self._written: dict[str, tuple[int, dict[str, Entry]]] = {}  # topic → number of the last write, and the entries in Redis
        self._changed: dict[str, dict[str, None]] = {}
        self._whole: dict[str, None] = {}

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""
        return bool(self._changed or self._whole)

    def changed(self, topic: str, users: Iterable[str]) -> None:
        """Record users with possibly changed entries."""
        self._changed.setdefault(topic, {}).update(dict.fromkeys(users))

    def write_all(self) -> None:
        """Write everything again, because Redis may have lost it."""
        self._whole.update(dict.fromkeys([*self._written, *self._changed]))

    def next_write(self) -> list[TopicWrite]:
        """Return the writes to send now; report a failure with `failed`. Empty if nothing has changed in the end."""
        writes: list[TopicWrite] = []
        room = MAX_IN_ALL
        for topic in [*self._whole]:
            own = self._own(topic)
            users = own.users()
            if writes and len(users) > room:
                return writes
            del self._whole[topic]
            self._changed.pop(topic, None)
            puts = {user: entry for user in users if (entry := own.entry(user)) is not None}
            if puts or topic in self._written:
                room -= len(puts)
                writes.append(self._write(topic, puts, [], whole=True))
        for topic, users_changed in [*self._changed.items()]:
            if room <= 0:
                break
            some = list(users_changed)[: min(room, MAX_CHANGES)]
            for user in some:
                del users_changed[user]
            if not users_changed:
                del self._changed[topic]
            had = self._written[topic][1] if topic in self._written else {}
            own = self._own(topic)
            now = {user: own.entry(user) for user in some}
            puts = {user: entry for user, entry in now.items() if entry is not None and had.get(user) != entry}
            takes = [user for user, entry in now.items() if entry is None and user in had]
            if puts or takes:
                room -= len(puts) + len(takes)
                writes.append(self._write(topic, puts, takes, whole=False))
        return writes

    def failed(self, writes: Iterable[TopicWrite]) -> None:
        """Record failed writes, and those with an unknown outcome."""
        for each in writes:
            self._whole[each.topic] = None
            self._written.setdefault(each.topic, (each.number, {}))  # Redis may still have the entries to remove

    def _write(self, topic: str, puts: dict[str, Entry], takes: list[str], *, whole: bool) -> TopicWrite:
        before, had = self._written.get(topic, (NOTHING_BEFORE, {}))
        before = WHOLE if whole else before
        has = {} if whole else had
        has.update(puts)
        for user in takes:
            del has[user]
        self._number += 1
        if has:
            self._written[topic] = (self._number, has)
        else:
            self._written.pop(topic, None)
        shown = [] if whole else [[user, *entry] for user, entry in puts.items()]
        message = _encode([self._process(), before, self._number, len(has), shown, takes])
        values = [(user, encode_entry(entry)) for user, entry in puts.items()]
        return TopicWrite(topic, before, self._number, len(has), values, takes, message)
