"""Members of topics in Redis: what gateway processes write about theirs, and how anyone reads them (presence.lua writes).

In: writes and beats of a process (headgate/presence). Out: the processes there are, the members that each one has in a topic, and
the events that are to be published. A process whose last beat is older than LEASE_S is dead, and so are its members.

Raises (all functions): BusUnavailable, BusRefused: as `redis.client.call`. Every call may be repeated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from .client import Client, call, call_all, database_number
from .functions import Library
from .keys import presence_database_key, presence_key, presence_members_key, presence_news_key, presence_topic_key
from .presence_entries import LEASE_S, Beat, Member, Members, News, TopicWrite, Written, merge_all, read_entries

PRESENCE_LIBRARY = Library("headgate.redis", "presence.lua", "headgate_presence_version")

# Topics in one call that takes a dead process out, and events read at once.
_TOPICS, _NEWS = 200, 100
# Members that one part of a reading has, or about as many: the loop is held for 2 ms at most by what becomes of them.
PART = 200
# The field of a members' hash with the last write, and the answer to a write that was not done (presence.lua).
_NUMBER, _LOST = "#", -1
# The field of the user who is called as that field is: no user has a control character in the name.
_NUMBER_AS_USER = "\0#"

_decode = msgspec.json.Decoder().decode


def write(client: Client, namespace: str, process: str, writes: Iterable[TopicWrite], *, events: bool) -> int | None:
    """Write changes of a process's members in one call; return how many events wait to be published.

    None: Redis lacks the lease, or a write that one of these builds on. It has done the others. All is to be written anew,
    behind a beat.
    """
    parts: list[str | bytes | int] = []
    for each in writes:
        parts += [each.topic, each.before, each.number, each.members, len(each.puts)]
        for user, value in each.puts:
            parts += [_field(user), value]
        parts += [len(each.takes), *map(_field, each.takes), each.message]
    keys = _keys(client, namespace)
    waiting = int(PRESENCE_LIBRARY.call(client, "FCALL", "headgate_presence_write", *keys, process, int(events), *parts))
    return None if waiting == _LOST else waiting


def beat(client: Client, namespace: str, process: str) -> Beat:
    """Renew a process's lease, and hear of the others."""
    known, news, now_ms, *pairs = PRESENCE_LIBRARY.call(
        client, "FCALL", "headgate_presence_beat", 1, presence_key(namespace), process
    )
    beats = {name.decode(): int(float(at)) for name, at in zip(pairs[::2], pairs[1::2], strict=True)}
    return Beat(bool(known), int(news), int(now_ms), beats)


def forget(client: Client, namespace: str, process: str, last_beat: int | None, *, events: bool) -> None:
    """Take a process out, unless it has beaten since `last_beat` (None: whatever it has done). One call for 200 topics."""
    score, keys = "" if last_beat is None else last_beat, _keys(client, namespace)
    while True:
        left = PRESENCE_LIBRARY.call(client, "FCALL", "headgate_presence_forget", *keys, process, score, int(events), _TOPICS)
        if not int(left):
            return
        process = f"~{process.removeprefix('~')}"


def any_process(client: Client, namespace: str) -> bool:
    """Return whether any process has a lease, or had one and was not taken out. One plain command."""
    return bool(call(client, "ZCARD", presence_key(namespace)))


def read_written(client: Client, namespace: str, topic: str) -> dict[str, Written]:
    """Return the last write of each process in a topic, dead ones included. Two round trips, not in one moment."""
    processes = [name.decode() for name in call(client, "SMEMBERS", presence_topic_key(namespace, topic))]
    if not processes:
        return {}
    replies = call_all(client, [("HGET", presence_members_key(namespace, topic, each), _NUMBER) for each in processes])
    return {process: _written(reply) for process, reply in zip(processes, replies, strict=True) if reply is not None}


def read_parts(client: Client, namespace: str, topic: str, process: str) -> Iterator[dict[str, bytes]]:
    """Yield what a process has written about a topic, user → value, in parts of about PART users. A round trip for each.

    Users who are there all the time are in one of the parts; those who come or go meanwhile may be.
    """
    cursor: Any = 0
    while True:
        cursor, reply = call(client, "HSCAN", presence_members_key(namespace, topic, process), cursor, "COUNT", PART)
        _, members = _members(reply)
        yield members
        if int(cursor) == 0:
            return


def read_topic(client: Client, namespace: str, topic: str) -> dict[str, Members]:
    """Return what each process has written about a topic, dead ones included. Two round trips, not in one moment."""
    processes = [name.decode() for name in call(client, "SMEMBERS", presence_topic_key(namespace, topic))]
    if not processes:
        return {}
    hashes = call_all(client, [("HGETALL", presence_members_key(namespace, topic, each)) for each in processes])
    found: dict[str, Members] = {}
    for process, reply in zip(processes, hashes, strict=True):
        number, members = _members(reply)
        if number is not None:
            found[process] = (_written(number), members)
    return found


def read_live(client: Client, namespace: str, topic: str) -> list[dict[str, bytes]]:
    """Return the members of a topic, user → value, of each process that is not dead by Redis' clock. Three round trips."""
    live = _live(client, namespace)
    return [members for process, (_, members) in read_topic(client, namespace, topic).items() if process in live]


def read_members(client: Client, namespace: str, topic: str) -> list[Member]:
    """Return the members of a topic by name, those of dead processes left out. Three round trips."""
    return merge_all([read_entries(values) for values in read_live(client, namespace, topic)])


def read_page(client: Client, namespace: str, topic: str, after: str | None, limit: int) -> tuple[int, list[Member], str | None]:
    """Return how many members a topic has, `limit` of them behind the user `after` by name, and whom to name for the next part.

    The names of all are read, but of this part only what else is written about them: that is up to a kilobyte for each. Four
    round trips, not in one moment: a user who leaves meanwhile may be counted and not be there. None: this was the last part.
    """
    live = _live(client, namespace)
    processes = [name for raw in call(client, "SMEMBERS", presence_topic_key(namespace, topic)) if (name := raw.decode()) in live]
    keys = [presence_members_key(namespace, topic, each) for each in processes]
    names = [
        {name.decode("utf-8", "replace") for name in found}
        for found in (call_all(client, [("HKEYS", key) for key in keys]) if keys else [])
    ]
    # A process that has written no number is not there.
    there = [(key, {*map(_user, found - {_NUMBER})}) for key, found in zip(keys, names, strict=True) if _NUMBER in found]
    everyone = sorted(set[str]().union(*(found for _, found in there)))
    begin = 0 if after is None else bisect_right(everyone, after)
    part = everyone[begin : begin + limit]
    asked = [(key, [user for user in part if user in found]) for key, found in there]
    asked = [(key, wanted) for key, wanted in asked if wanted]
    replies = call_all(client, [("HMGET", key, *map(_field, wanted)) for key, wanted in asked]) if asked else []
    tables = [
        {user: value for user, value in zip(wanted, reply, strict=True) if value is not None}
        for (_, wanted), reply in zip(asked, replies, strict=True)
    ]
    next_ = part[-1] if part and begin + limit < len(everyone) else None
    return len(everyone), merge_all([read_entries(table) for table in tables]), next_


def read_news(client: Client, namespace: str) -> list[News]:
    """Return events that are to be published, the oldest first; `published` takes them off the list."""
    found = []
    for raw in call(client, "LRANGE", presence_news_key(namespace), 0, _NEWS - 1):
        kind, topic, event_id = _decode(raw)
        found.append(News(kind, topic, event_id, raw))
    return found


def published(client: Client, namespace: str, news: Iterable[News]) -> None:
    """Take events off the list. Of two processes that have published the same, the log has kept one."""
    call_all(client, [("LREM", presence_news_key(namespace), 1, each.raw) for each in news])


def _keys(client: Client, namespace: str) -> tuple[str | int, ...]:
    """Return how many keys a function that tells others is called with, and them: one in database 0, as before version 3."""
    database = database_number(client)
    own = presence_key(namespace)
    return (2, own, presence_database_key(namespace, database)) if database else (1, own)


def _live(client: Client, namespace: str) -> set[str]:
    """Return the processes that are not dead by Redis' clock."""
    scores, time = call_all(client, [("ZRANGE", presence_key(namespace), 0, -1, "WITHSCORES"), ("TIME",)])
    pairs = scores if scores and isinstance(scores[0], list | tuple) else zip(scores[::2], scores[1::2], strict=True)
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    return {name.decode() for name, at in pairs if now_ms - float(at) <= LEASE_S * 1000}


def _members(reply: Any) -> tuple[bytes | None, dict[str, bytes]]:
    """Return the field of the last write, if it is there, and the members of a reply of HGETALL or HSCAN."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    members = {field.decode("utf-8", "replace"): value for field, value in pairs}
    number = members.pop(_NUMBER, None)
    if _NUMBER_AS_USER in members:
        members[_NUMBER] = members.pop(_NUMBER_AS_USER)
    return number, members


def _field(user: str) -> str:
    """Return the field of a user in a members' hash."""
    return _NUMBER_AS_USER if user == _NUMBER else user


def _user(field: str) -> str:
    """Return the user whose field it is."""
    return _NUMBER if field == _NUMBER_AS_USER else field


def _written(value: bytes) -> Written:
    number, _, members = value.partition(b":")
    return Written(int(number), int(members or 0))
