"""What is written about presence, and what Redis answers: types without I/O, for presence.py and for headgate.presence.

A member is a user. An entry, what one process says about a user, is JSON in Redis and between processes:
`[connections, since, changed, meta]`, where `meta` is JSON text or null. All entries of a user come to one member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headgate.errors import InvalidRequest

# A process beats each second. It is gone when it has not for so long: one beat and 5 s for its clients to come back, and a bit.
LEASE_S = 6.5


class TopicWrite(NamedTuple):
    """What changes in one topic: `puts` are users with their values, `takes` users who are gone, `members` how many are left.

    `before` is the number of the write that this one builds on. Without one (0 or less) these are all members that the process
    has there. `message` goes to those who listen to the topic.
    """

    topic: str
    before: int
    number: int
    members: int
    puts: Sequence[tuple[str, bytes]]
    takes: Sequence[str]
    message: bytes


class Written(NamedTuple):
    """A process's last write in a topic: its number, and how many members the process has there since."""

    number: int
    members: int


class Beat(NamedTuple):
    """The answer to a beat: whether Redis still knew this process, how many events wait, the time, each process's last beat."""

    known: bool
    news: int
    now_ms: int
    beats: dict[str, int]


class News(NamedTuple):
    """An event that is to be published: `occupied` or `vacated`, its topic, its id."""

    kind: str
    topic: str
    id: str
    raw: bytes


# Of one process in one topic: its last write, and user → value.
Members = tuple[Written, dict[str, bytes]]


class Entry(NamedTuple):
    """What one process says about a user: connections, since when (ms since 1970), when `meta` was given, and that, as JSON."""

    connections: int
    since_ms: int
    changed_ms: int
    meta: str | None


class Member(NamedTuple):
    """A user in a topic, whichever process its connections are at."""

    user: str
    connections: int
    since_ms: int
    meta: str | None


_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode


def encode_entry(entry: Entry) -> bytes:
    """Return an entry as it is written."""
    return _encode(entry)


def read_entry(value: bytes) -> Entry:
    """Return what was written.

    Raises:
        InvalidRequest: it is no entry: another program has written there.
    """
    try:
        return _decode_entry(value)
    except msgspec.MsgspecError as error:
        raise InvalidRequest("no entry of presence") from error


def read_entries(values: Mapping[str, bytes]) -> dict[str, Entry]:
    """Return what a process has written about each user; what is no entry is another program's, and nobody."""
    found: dict[str, Entry] = {}
    for user, value in values.items():
        try:
            found[user] = read_entry(value)
        except InvalidRequest:
            continue
    return found


def merge(user: str, entries: Iterable[Entry]) -> Member | None:
    """Return the member that the entries of all processes come to: the earliest `since`, the newest `meta`. None without any."""
    found = list(entries)
    if not found:
        return None
    newest = max(found, key=lambda entry: (entry.changed_ms, entry.meta or ""))
    return Member(user, sum(entry.connections for entry in found), min(entry.since_ms for entry in found), newest.meta)


def merge_all(tables: Iterable[dict[str, Entry]]) -> list[Member]:
    """Return the members that the tables of all processes come to, by name."""
    by_user: dict[str, list[Entry]] = {}
    for table in tables:
        for user, entry in table.items():
            by_user.setdefault(user, []).append(entry)
    members = [merge(user, entries) for user, entries in sorted(by_user.items())]
    return [member for member in members if member is not None]
