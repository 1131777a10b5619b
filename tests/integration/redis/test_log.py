"""Reading a log on a real Redis: pages, holes, undeliverable entries, and searches for where to begin."""

from collections.abc import Callable

import pytest

from headgate.delivery.replay_start import LogTopics, find_starts
from headgate.events.wire.requests import Since
from headgate.redis.client import Client, call
from headgate.redis.functions import SOURCE, VERSION
from headgate.redis.lineage import Extent
from headgate.redis.log import DEFAULT_MAX_BYTES, ENTRY_BYTES, RATE_WINDOW_S, EventLog
from headgate.services.publisher import Publisher

LOG, HEAD = "hg:{notifications}:log", "hg:{notifications}:head"


@pytest.fixture
def log(redis_client: Client) -> EventLog:
    """The log, with its retention configured."""
    log = EventLog("notifications", redis_client, 1000)
    log.configure(100, 600)
    return log


def offsets(log: EventLog, after: int, upto: int | None, limit: int = 100) -> list[int]:
    """Return the offsets of a page."""
    return [entry.offset for entry in log.page(after, upto, limit)]


def start(log: EventLog, since: Since, pattern: str = "#") -> int:
    """Return the offset after which a past begins."""
    topics, head = LogTopics(), log.head()
    (found,) = find_starts([(pattern, since)], head.first, head.offset, lambda n: topics.read(n, head.offset, log), lambda: None)
    return found


def timed(client: Client, offset: int, time: str, topic: str = "a") -> None:
    """Append an entry by hand, at a time of our choosing, as a restored or foreign log may hold."""
    call(client, "XADD", LOG, f"{offset}-0", "topic", topic, "id", f"e{offset}", "time", time, "data", "1")
    call(client, "HSET", HEAD, "offset", offset)


def test_an_entry_that_is_gone_is_not_in_the_page(log: EventLog, publisher: Publisher, redis_client: Client) -> None:
    """Trimmed at the beginning, deleted in the middle."""
    publisher.publish_many([("a", number) for number in range(10)])
    call(redis_client, "XTRIM", LOG, "MINID", 4)
    call(redis_client, "XDEL", LOG, "7-0")
    assert offsets(log, 0, None) == [4, 5, 6, 8, 9, 10]
    assert log.head().first == 4


def test_an_extent_says_what_a_log_holds_and_for_how_long(log: EventLog, publisher: Publisher, redis_client: Client) -> None:
    """Counted as the byte limit counts, by payload, topic and 128 for each; nothing of an absent log."""
    assert EventLog("nothing", redis_client, 1000).extent() == Extent(0, 0, 0, 0.0, 0, 0, 0)
    publisher.publish("a", "x" * 98)
    assert log.extent().event_bytes == 100 + 1 + ENTRY_BYTES
    publisher.publish_many([("a", "x" * 8)] * 9)
    extent = log.extent()
    assert (extent.offset, extent.event_bytes) == (10, 10 + 1 + ENTRY_BYTES)
    assert (extent.max_events, extent.max_age_s, extent.max_bytes) == (100, 600, DEFAULT_MAX_BYTES)
    assert extent.first_ms > 0
    assert (extent.retention_s(50), extent.retention_s(0)) == (2, 600)


def test_the_rate_is_that_of_the_last_seconds_or_of_as_much_as_the_log_holds(log: EventLog, redis_client: Client) -> None:
    """By the times of the events; an older one counts no more."""
    of = EventLog("notifications", redis_client)
    assert of.events_per_s(100_000) == 0
    for offset in range(1, 22):
        timed(redis_client, offset, str(50_000 + 2000 * offset))
    assert of.events_per_s(92_000) == 6 / RATE_WINDOW_S
    assert of.events_per_s(200_000) == 0
    call(redis_client, "XTRIM", LOG, "MINID", "19")
    assert of.events_per_s(92_000) == 3 / 4


def test_a_log_that_is_not_there_is_empty(redis_client: Client, publisher: Publisher, log: EventLog) -> None:
    """No error, because it holds nothing."""
    call(redis_client, "DEL", LOG, HEAD)
    assert log.page(0, None) == []
    assert (log.head().epoch, log.head().offset) == ("", 0)


def test_a_time_is_found_between_the_events_before_and_since(log: EventLog, redis_client: Client) -> None:
    """The offset after which the events since that time lie."""
    for offset, time in enumerate([100, 100, 250, 250, 251, 900], 1):
        timed(redis_client, offset, str(time))
    found = {time: start(log, Since(time_ms=time)) for time in (0, 100, 101, 250, 251, 252, 900, 901)}
    assert found == {0: 0, 100: 0, 101: 2, 250: 2, 251: 4, 252: 5, 900: 5, 901: 6}


def test_the_last_events_of_a_pattern_are_found_from_the_end(log: EventLog, publisher: Publisher) -> None:
    """Those of other topics between them are not counted."""
    publisher.publish_many([(f"orders.{number % 5}", number) for number in range(50)])
    assert start(log, Since(last=1), "#") == 49
    assert start(log, Since(last=3), "orders.1") == 36  # 37, 42 and 47 are orders.1
    assert start(log, Since(last=1000), "orders.1") == 1
    assert start(log, Since(last=5), "bills.#") == 50  # nothing is to be reported


def test_an_older_library_that_must_stay_serves_database_0(redis_client: Client, as_user: Callable[..., Client]) -> None:
    """One before version 13 refuses the number of a database, and publishes on the channels of 0."""
    older = SOURCE.replace(f"local VERSION = {VERSION}", "local VERSION = 12").replace("#args <= 6", "#args <= 5")
    older = older.replace("is_replica(), head.database }", "is_replica() }")
    call(redis_client, "FUNCTION", "LOAD", older)
    log = EventLog("notifications", as_user("+@all", "-function"), 65536)
    head = log.configure(1000, 60, 1024 * 1024)
    assert (head.library, head.database, head.offset) == (12, 0, 0)
