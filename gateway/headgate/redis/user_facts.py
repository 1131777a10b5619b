"""What a user has done about an event, and what the user has muted: for consumers and `headgate trace`.

In: from a client, by the gateway, the ids of events that it has shown (`mark_seen`); a user and an event. Out: whether the event
was shown, the state of its item and the muted patterns (both by inbox.lua), read in one round trip.

In Redis: a sorted set for each user with the newest MAX_SEEN shown ids by the time of their report. It is a hint, not a receipt,
because any client that may join as the user may report anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time
from typing import NamedTuple

from headgate.events.topic import INBOX, USERS, is_item, matches, user_word

from .client import Client, call_all
from .connections import Command
from .keys import inbox_key, mutes_key, seen_key

# Per user, about 100 KB in Redis at most.
MAX_SEEN = 1000
SEEN_S = 86400


class UserFacts(NamedTuple):
    """What one user has done about one event.

    Attributes:
        is_read: the event is an item of an inbox, and the item is read, archived or gone.
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
    """Return what a user has done about an event. Waits for Redis, one round trip.

    Raises:
        InvalidRequest: `user` is not a valid name.
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    commands: list[Command] = [
        ("ZSCORE", seen_key(namespace, user), event_id),
        ("HGETALL", mutes_key(namespace, user_word(user))),
    ]
    if is_item(topic):
        _, word, _, kind = topic.split(".", 3)
        commands.append(("HGET", inbox_key(namespace, word), f"{kind}/{event_id}"))
    shown, mutes, *items = call_all(client, commands)
    is_read = bool(items) and (items[0] is None or items[0][:1] != b"u")
    return UserFacts(is_read, shown is not None, muted_channels(mutes, topic))


def muted_channels(mutes: Mapping[bytes, bytes], topic: str) -> frozenset[str]:
    """Return the channels on which a topic is muted. `mutes`: channels, separated by blanks, by pattern."""
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
