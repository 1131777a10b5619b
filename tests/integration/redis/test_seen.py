"""The events that a user's browsers have shown, in a real Redis: of that user and namespace only, and bounded."""

from __future__ import annotations

from headgate.redis.client import Client, call
from headgate.redis.keys import seen_key
from headgate.redis.seen import MAX_SEEN, SEEN_S, mark_seen, was_seen

KEY = seen_key("notifications", "ana")


def test_an_event_was_seen_by_the_user_who_said_so_and_by_no_other(redis_client: Client) -> None:
    """Nor in another namespace."""
    mark_seen(redis_client, "notifications", "ana", ["order:1", "order:2", "order:1"])
    assert [was_seen(redis_client, "notifications", "ana", f"order:{number}") for number in (1, 2, 3)] == [True, True, False]
    assert not was_seen(redis_client, "notifications", "ben", "order:1")
    assert not was_seen(redis_client, "other", "ana", "order:1")


def test_only_the_newest_of_a_user_are_kept_for_a_day(redis_client: Client) -> None:
    """A browser that says it without end fills nothing."""
    for page in range(MAX_SEEN // 100 + 1):
        mark_seen(redis_client, "notifications", "ana", [f"{page}-{number:02}" for number in range(100)])
        if page == 0:
            # A second passes between two pages, as far as the scores tell.
            call(redis_client, "ZUNIONSTORE", KEY, 1, KEY, "WEIGHTS", "0.5")
    assert call(redis_client, "ZCARD", KEY) == MAX_SEEN
    assert not was_seen(redis_client, "notifications", "ana", "0-50")
    assert was_seen(redis_client, "notifications", "ana", f"{MAX_SEEN // 100}-99")
    assert 0 < call(redis_client, "TTL", KEY) <= SEEN_S
