"""Members of topics in Redis: writes the members of each gateway process (through presence.lua), and reads them for any
program.

In: writes and beats of a process (headgate/presence). Out: the known processes, the members of each in a topic, and the events
to publish. A process is dead if its last beat is older than LEASE_S. Its members are then gone.

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
from .presence_entries import LEASE_S, Member, TopicWrite, merge_all, read_entries

PRESENCE_LIBRARY = Library("headgate.redis", "presence.lua", "headgate_presence_version")

# Topics in one call that removes a dead process, and events in one read.
_TOPICS, _NEWS = 200, 100
# Approximate members in one part of a read. Handling a part holds the loop for 2 ms at most.
PART = 200
# The field of a members' hash with the last write, and the answer to a refused write (presence.lua).
_NUMBER, _LOST = "#", -1
# The field of the user with that very name. No user's name has a control character.
_NUMBER_AS_USER = "\0#"

_decode = msgspec.json.Decoder(tuple[str, str, str]).decode


def update_library(client: Client, namespace: str) -> None:
    """Replace an older function library, if this user may and Redis has room."""
    PRESENCE_LIBRARY.try_to_update(client, presence_key(namespace))


def write(client: Client, namespace: str, process: str, writes: Iterable[TopicWrite], *, events: bool) -> int | None:
    """Write changes of a process's members in one call. Return the number of events to publish.

    None: Redis lacks the lease, or a write that one of these builds on. It has applied the others. The caller must send a beat
    and then write everything again.
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


def beat(client: Client, namespace: str, process: str) -> tuple[bool, int, int, dict[str, int]]:
    """Renew a process's lease. Return whether Redis still knew it, the number of waiting events, the time, and each last beat."""
    known, news, now_ms, *pairs = PRESENCE_LIBRARY.call(
        client, "FCALL", "headgate_presence_beat", 1, presence_key(namespace), process
    )
    beats = {name.decode(): int(float(at)) for name, at in zip(pairs[::2], pairs[1::2], strict=True)}
    return bool(known), int(news), int(now_ms), beats


def forget(client: Client, namespace: str, process: str, last_beat: int | None, *, events: bool) -> None:
    """Remove a process, unless it has sent a beat since `last_beat` (None: in any case). One call for each 200 topics."""
    score, keys = "" if last_beat is None else last_beat, _keys(client, namespace)
    while int(PRESENCE_LIBRARY.call(client, "FCALL", "headgate_presence_forget", *keys, process, score, int(events), _TOPICS)):
        score = 0


def any_process(client: Client, namespace: str) -> bool:
    """Return whether any process has a lease, or an ended one not yet removed. One plain command."""
    return bool(call(client, "ZCARD", presence_key(namespace)))


def read_written(client: Client, namespace: str, topic: str) -> dict[str, tuple[int, int]]:
    """Return the number of each process's last write in a topic, dead ones included, and of its members since then.

    Two round trips, not one consistent view.
    """
    processes = [name.decode() for name in call(client, "SMEMBERS", presence_topic_key(namespace, topic))]
    if not processes:
        return {}
    replies = call_all(client, [("HGET", presence_members_key(namespace, topic, each), _NUMBER) for each in processes])
    return {process: _written(reply) for process, reply in zip(processes, replies, strict=True) if reply is not None}


def read_parts(client: Client, namespace: str, topic: str, process: str) -> Iterator[dict[str, bytes]]:
    """Yield the values of a process in a topic, user → value, in parts of about PART users. One round trip each.

    Users who are present throughout are in one of the parts. Users who come or go during the read may be.
    """
    cursor: Any = 0
    while True:
        cursor, reply = call(client, "HSCAN", presence_members_key(namespace, topic, process), cursor, "COUNT", PART)
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        members = {field.decode("utf-8", "replace"): value for field, value in pairs}
        yield {_user(field): value for field, value in members.items() if field != _NUMBER}
        if int(cursor) == 0:
            return


def read_page(
    client: Client, namespace: str, topic: str, after: str | None = None, limit: int | None = None
) -> tuple[int, list[Member], str | None]:
    """Return the number of members of a topic, `limit` of them (None: all) in the order of names after the user `after`, and the
    `after` of the next page (None after the last one).

    Members of dead processes, by Redis' clock, do not count. It reads the names of all members, but the values (up to a kilobyte
    each) of this page only. Four round trips, not one consistent view. A user who leaves during the read may be counted but not
    listed.
    """
    live = _live(client, namespace)
    processes = [name for raw in call(client, "SMEMBERS", presence_topic_key(namespace, topic)) if (name := raw.decode()) in live]
    keys = [presence_members_key(namespace, topic, each) for each in processes]
    names = [
        {name.decode("utf-8", "replace") for name in users}
        for users in (call_all(client, [("HKEYS", key) for key in keys]) if keys else [])
    ]
    # A process without a valid number has no members.
    there = [(key, {*map(_user, users - {_NUMBER})}) for key, users in zip(keys, names, strict=True) if _NUMBER in users]
    everyone = sorted(set[str]().union(*(users for _, users in there)))
    begin = 0 if after is None else bisect_right(everyone, after)
    end = len(everyone) if limit is None else begin + limit
    part = everyone[begin:end]
    asked = [(key, [user for user in part if user in users]) for key, users in there]
    asked = [(key, wanted) for key, wanted in asked if wanted]
    replies = call_all(client, [("HMGET", key, *map(_field, wanted)) for key, wanted in asked]) if asked else []
    tables = [
        {user: value for user, value in zip(wanted, reply, strict=True) if value is not None}
        for (_, wanted), reply in zip(asked, replies, strict=True)
    ]
    next_ = part[-1] if part and end < len(everyone) else None
    return len(everyone), merge_all([read_entries(table) for table in tables]), next_


def read_news(client: Client, namespace: str) -> dict[bytes, tuple[str, str, str]]:
    """Return the events to publish, oldest first, each as stored and as (`occupied` or `vacated`, topic, id)."""
    return {raw: _decode(raw) for raw in call(client, "LRANGE", presence_news_key(namespace), 0, _NEWS - 1)}


def published(client: Client, namespace: str, news: Iterable[bytes]) -> None:
    """Take events off the list. If two processes have published the same event, the log has kept one."""
    call_all(client, [("LREM", presence_news_key(namespace), 0, each) for each in news])


def _keys(client: Client, namespace: str) -> tuple[str | int, ...]:
    """Return the number of keys for a function that notifies others, and the keys: one in database 0, as before version 3."""
    database = database_number(client)
    own = presence_key(namespace)
    return (2, own, presence_database_key(namespace, database)) if database else (1, own)


def _live(client: Client, namespace: str) -> set[str]:
    """Return the live processes by Redis' clock."""
    scores, time = call_all(client, [("ZRANGE", presence_key(namespace), 0, -1, "WITHSCORES"), ("TIME",)])
    pairs = scores if scores and isinstance(scores[0], list | tuple) else zip(scores[::2], scores[1::2], strict=True)
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    return {name.decode() for name, at in pairs if now_ms - float(at) <= LEASE_S * 1000}


def _field(user: str) -> str:
    return _NUMBER_AS_USER if user == _NUMBER else user


def _user(field: str) -> str:
    return _NUMBER if field == _NUMBER_AS_USER else field


def _written(value: bytes) -> tuple[int, int]:
    number, _, members = value.partition(b":")
    return int(number), int(members or 0)
