"""Reads users' inboxes in Redis. Only inbox.lua writes them, in the same step as the append.

In: a user, a part of the inbox. Out: items, newest first, with the unread count and the log position of both. For consumers and
`headgate trace`, also a user's actions on an event and the user's mutes, in one round trip.

The ids of events shown by a user's browsers (`mark_seen`) are in a sorted set for each user, by the time of the report. They
are a hint and not a receipt, because any client that may join as the user may report anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import NamedTuple

import msgspec

from headgate.errors import BusUnavailable
from headgate.events.numbers import check_whole
from headgate.events.topic import INBOX, USERS, is_item, matches, user_word

from .client import Client, call_all
from .connections import Command
from .functions import call_function
from .keys import inbox_key, log_key, mutes_key, seen_key
from .lineage import Lineage

# As in inbox.lua.
MAX_ITEMS, MAX_BYTES, MAX_AGE_S = 1000, 2 * 1024 * 1024, 90 * 86400
MAX_PAGE, MAX_CHANGED, MAX_MUTES = 100, 100, 64
CHANNELS = ("mail", "page", "push")
# The pauses before an outdated page is read again. The client's other requests wait for them.
READ_AGAIN_S = (0.05, 0.1, 0.2)
_UNREAD, _ARCHIVED = b"u", b"a"


class InboxItem(msgspec.Struct, frozen=True):
    """An item.

    `id` is `<kind>/<id of the event>`, `at` the event's offset, `time` its time (ms since 1970), `data` its JSON.
    """

    id: str
    kind: str
    data: msgspec.Raw
    time: int
    at: int
    read: bool
    archived: bool


class InboxPage(msgspec.Struct, frozen=True):
    """A page of an inbox, newest first, as of the event at `offset` in `epoch`.

    `unread` and `total` count the whole inbox. `before` is the argument for the next page, if there is one. `mutes` are the muted
    channels by pattern.
    """

    epoch: str
    offset: int
    unread: int
    total: int
    items: list[InboxItem]
    before: int | None
    mutes: dict[str, list[str]]


def inbox_reader(
    client: Client, namespace: str, user: str, before: int | None = None, limit: int = 20, *, archived: bool = False
) -> Callable[[], InboxPage]:
    """Return a function that reads a page of a user's inbox, at most `limit` items (1 to MAX_PAGE) below the offset `before`.

    A page holds at most 64 KiB, or one item. Each read is one round trip, and raises BusUnavailable and BusRefused as
    `redis.client.call`. Raises InvalidRequest, before any read, for an invalid name, `before` or `limit`.
    """
    check_whole(limit, "limit", 1, MAX_PAGE, "items")
    if before is not None:
        check_whole(before, "before", 0, 2**53 - 1)
    arguments = (user_word(user), "" if before is None else before, limit, "archived" if archived else "")

    def read() -> InboxPage:
        reply = call_function(client, "FCALL_RO", "headgate_inbox", 1, log_key(namespace), *arguments)
        epoch, offset, unread, total, next_, muted, *entries = reply
        items = [_item(*each) for each in zip(entries[::2], entries[1::2], strict=True)]
        mutes = {
            pattern.decode(): channels.decode().split() for pattern, channels in sorted(zip(muted[::2], muted[1::2], strict=True))
        }
        return InboxPage(epoch.decode(), offset, unread, total, items, next_ or None, mutes)

    return read


def read_current(read: Callable[[], InboxPage], least: int, line: Lineage, wait: Callable[[float], object]) -> InboxPage:
    """Return a page with everything up to an offset. Calls `read` again while its page is older.

    During a failover the old primary still answers, as a lagging replica or as a primary without followers. Raises
    BusUnavailable if the pages stay too old, and HeadgateError as `read`.

    Args:
        least: the newest offset that a client may have had before this call.
        line: the feed's line before this call. A page of an epoch that has ended there comes from another server.
    """
    for pause_s in (*READ_AGAIN_S, None):
        page = read()
        if page.offset >= least and page.epoch not in line.ends and page.epoch not in line.lost:
            return page
        if pause_s is not None:
            wait(pause_s)
    raise BusUnavailable("Redis answers with an inbox that is older than the events, because a failover is under way")


# Per user, about 100 KB in Redis at most.
MAX_SEEN = 1000
SEEN_S = 86400


class UserFacts(NamedTuple):
    """One user's actions on one event.

    Attributes:
        is_read: the event is an item of an inbox, and the item is read or archived. One that the bounds of the inbox have removed
            is not, since its user may never have seen it.
        is_shown: one of the user's browsers reported that it has shown the event.
        muted: the channels that the user has muted for the event's topic.
    """

    is_read: bool = False
    is_shown: bool = False
    muted: frozenset[str] = frozenset()


def mark_seen(client: Client, namespace: str, user: str, ids: Sequence[str]) -> None:
    """Record that a browser of this user has shown these events. Waits for Redis, one round trip.

    Kept for SEEN_S after the last report. Beyond MAX_SEEN the newest replace the oldest. Raises as `redis.client.call`. Call
    again: it is idempotent.
    """
    key, now_s = seen_key(namespace, user), int(time())
    scored = [part for event_id in ids for part in (now_s, event_id)]
    call_all(client, [("ZADD", key, *scored), ("ZREMRANGEBYRANK", key, 0, -MAX_SEEN - 1), ("EXPIRE", key, SEEN_S)])


def read_user_facts(client: Client, namespace: str, user: str, topic: str, event_id: str) -> UserFacts:
    """Return a user's actions on an event. Waits for Redis, one round trip.

    Raises InvalidRequest: `user` is not a valid name; BusUnavailable, BusRefused: as `redis.client.call`.
    """
    commands: list[Command] = [
        ("ZSCORE", seen_key(namespace, user), event_id),
        ("HGETALL", mutes_key(namespace, user_word(user))),
    ]
    if is_item(topic):
        _, word, _, kind = topic.split(".", 3)
        commands.append(("HGET", inbox_key(namespace, word), f"{kind}/{event_id}"))
    shown, mutes, *items = call_all(client, commands)
    is_read = bool(items) and items[0] is not None and items[0][:1] != _UNREAD
    return UserFacts(is_read, shown is not None, muted_channels(mutes, topic))


def muted_channels(mutes: Mapping[bytes, bytes], topic: str) -> frozenset[str]:
    """Return the channels on which a topic is muted. `mutes` has channels, separated by blanks, by pattern."""
    plain = plain_topic(topic)
    return frozenset(
        channel
        for pattern, channels in mutes.items()
        if matches(pattern.decode(), plain)
        for channel in channels.decode().split()
    )


def plain_topic(topic: str) -> str:
    """Return the topic as a user mutes it: without a leading `users.<user>.inbox.` or `users.<user>.`.

    So `orders.#` mutes an item `orders.failed`, an event of the user on `orders.failed`, and a public one.
    """
    words = topic.split(".")
    if len(words) < 3 or words[0] != USERS:
        return topic
    return ".".join(words[3 if words[2] == INBOX and len(words) > 3 else 2 :])


def _item(item_id: bytes, value: bytes) -> InboxItem:
    state, offset, time, _, data = value.split(b" ", 4)
    name, is_read, is_archived = item_id.decode(), state != _UNREAD, state == _ARCHIVED
    return InboxItem(name, name.partition("/")[0], msgspec.Raw(data), int(time), int(offset), is_read, is_archived)
