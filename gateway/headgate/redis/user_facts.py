"""What a user has done about an event, and what the user has muted: for consumers and `headgate trace`.

In: a user and an event. Out: facts of other modules, read in one round trip: the state of the item (inbox.lua), the events that
the user's browsers have shown (seen.py), and the muted patterns (inbox.lua). This file stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headgate.events.topic import INBOX, USERS, is_item, matches, user_word

from .client import Client, call_all
from .connections import Command
from .keys import inbox_key, mutes_key, seen_key


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
