"""The values of presence in Redis and the answers of Redis: types for presence.py and node/presence. No I/O.

A member is a user. An entry is one process's record of a user, as JSON in Redis and between processes: `[connections, since,
changed, meta]`, where `meta` is JSON text or null. All entries of a user merge into one member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

# A process beats each second. It is dead without a beat for this long: one beat, 5 s for its clients to reconnect, and a
# margin.
LEASE_S = 6.5


class TopicWrite(NamedTuple):
    """The changes in one topic: `puts` are users with their values, `takes` the users who left, `members` the number that
    remains.

    `before` is the number of the write that this one builds on. Without one (0 or less), these are all members of the process
    in the topic. `message` goes to the listeners of the topic.
    """

    topic: str
    before: int
    number: int
    members: int
    puts: Sequence[tuple[str, bytes]]
    takes: Sequence[str]
    message: bytes


class Entry(NamedTuple):
    """One process's record of a user, with connections, their start (ms since 1970), the time of `meta`, and `meta` as JSON."""

    connections: int
    since_ms: int
    changed_ms: int
    meta: str | None


class Member(NamedTuple):
    """A user in a topic, over the connections at all processes."""

    user: str
    connections: int
    since_ms: int
    meta: str | None


# Encodes an entry for Redis.
encode_entry = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode


def read_entries(values: Mapping[str, bytes]) -> dict[str, Entry]:
    """Decode the entries of a process by user. Skips values of other programs."""
    entries: dict[str, Entry] = {}
    for user, value in values.items():
        try:
            entries[user] = _decode_entry(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return entries


def merge(user: str, entries: Iterable[Entry]) -> Member | None:
    """Merge a user's entries of all processes into a member: earliest `since`, newest `meta`. None without entries."""
    known = list(entries)
    if not known:
        return None
    newest = max(known, key=lambda entry: (entry.changed_ms, entry.meta or ""))
    return Member(user, sum(entry.connections for entry in known), min(entry.since_ms for entry in known), newest.meta)


def merge_all(tables: Iterable[dict[str, Entry]]) -> list[Member]:
    """Merge the tables of all processes into members by name."""
    by_user: dict[str, list[Entry]] = {}
    for table in tables:
        for user, entry in table.items():
            by_user.setdefault(user, []).append(entry)
    members = [merge(user, entries) for user, entries in sorted(by_user.items())]
    return [member for member in members if member is not None]
