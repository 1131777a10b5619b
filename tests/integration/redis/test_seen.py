"""The events that a user's browsers have shown, in a real Redis: of that user and namespace only, and bounded."""

from headgate.redis.client import Client, call
from headgate.redis.inbox import MAX_SEEN, SEEN_S, mark_seen, read_user_facts
from headgate.redis.keys import seen_key

KEY = seen_key("notifications", "ana")


def test_an_event_was_seen_by_the_user_who_said_so_and_by_no_other(redis_client: Client) -> None:
    """Nor in another namespace."""
    mark_seen(redis_client, "notifications", "ana", ["order:1", "order:2", "order:1"])
    assert [
        read_user_facts(redis_client, "notifications", "ana", "news", f"order:{number}").is_shown for number in (1, 2, 3)
    ] == [True, True, False]
    assert not read_user_facts(redis_client, "notifications", "ben", "news", "order:1").is_shown
    assert not read_user_facts(redis_client, "other", "ana", "news", "order:1").is_shown


def test_only_the_newest_of_a_user_are_kept_for_a_day(redis_client: Client) -> None:
    """A browser that says it without end fills nothing."""
    for page in range(MAX_SEEN // 100 + 1):
        mark_seen(redis_client, "notifications", "ana", [f"{page}-{number:02}" for number in range(100)])
        if page == 0:
            # A second passes between two pages, as far as the scores show.
            call(redis_client, "ZUNIONSTORE", KEY, 1, KEY, "WEIGHTS", "0.5")
    assert call(redis_client, "ZCARD", KEY) == MAX_SEEN
    assert not read_user_facts(redis_client, "notifications", "ana", "news", "0-50").is_shown
    assert read_user_facts(redis_client, "notifications", "ana", "news", f"{MAX_SEEN // 100}-99").is_shown
    assert 0 < call(redis_client, "TTL", KEY) <= SEEN_S
