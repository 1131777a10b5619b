"""Events by their id, in a real Redis."""

import pytest

from headgate.redis import event_ids
from headgate.redis.client import Client
from headgate.redis.event_ids import IdSearch, recent_offsets
from headgate.services.publisher import Publisher, id_owner


def test_events_of_an_id_are_found_newest_first(redis_url: str, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across the parts of a search, each once; at the end it has looked at every event."""
    monkeypatch.setattr(event_ids, "PART_EVENTS", 20)
    with Publisher(redis_url) as publisher:
        publisher.publish_many([(f"orders.{number}", 1, f"id-{number % 45}") for number in range(90)])
    search = IdSearch(redis_client, "notifications", "id-3")
    assert (list(search.offsets(1000)), search.looked, search.at_end) == ([49, 4], 90, True)


def test_a_search_ends_after_so_many_events_or_bytes_or_when_it_is_late(redis_url: str, redis_client: Client) -> None:
    """It looks at a part more at most, and says that the log goes on."""
    with Publisher(redis_url) as publisher:
        publisher.publish_many([("orders", "x" * 10_000) for _ in range(300)])
    few, small, late = (IdSearch(redis_client, "notifications", "none") for _ in range(3))
    assert (list(few.offsets(40)), few.looked, few.at_end) == ([], 40, False)
    assert (list(small.offsets(1000, 100_000)), small.at_end) == ([], False)
    assert small.looked <= 120
    assert (list(late.offsets(1000, late=lambda: True)), late.at_end) == ([], False)


def test_there_is_nothing_in_a_log_that_is_not_there(redis_client: Client) -> None:
    """And no error."""
    search = IdSearch(redis_client, "nothing", "id")
    assert (list(search.offsets(1000)), search.looked, search.at_end) == ([], 0, True)


def test_the_index_has_the_recent_ids_of_a_topic(redis_url: str, redis_client: Client) -> None:
    """Of services, and of one user; no other user's, and no other topic's. It says where, and the log whether it is there."""
    with Publisher(redis_url) as publisher:
        first = publisher.publish("orders.1", 1, id="same").offset
        anas = publisher.publish("orders.1", 2, id="same", by="ana").offset
        publisher.publish("orders.1", 3, id="same", by="ben")
        other = publisher.publish("orders.2", 4, id="same").offset

    def found(topic: str, by: str = "nobody") -> list[int]:
        return recent_offsets(redis_client, "notifications", topic, "same", id_owner(by))

    assert found("orders.1") == [first]
    assert found("orders.1", "ana") == [anas, first]
    assert found("orders.2", "ana") == [other]
    assert found("orders.3") == []
    assert recent_offsets(redis_client, "elsewhere", "orders.1", "same", id_owner("ana")) == []
