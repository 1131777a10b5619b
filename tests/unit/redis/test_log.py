"""An entry of the log: the event in it, or the error of an undeliverable one."""

from contextlib import suppress

import pytest

from headgate.errors import HeadgateError
from headgate.redis.client import call
from headgate.redis.connections import ROUND_TRIPS
from headgate.redis.lineage import Extent
from headgate.redis.log import DEFAULT_MAX_BYTES, ENTRY_BYTES, read_entry
from headgate.settings.settings import DEFAULTS, MOST_LOG_EVENTS
from tests.support.small_redis import SmallRedis

GOOD = {b"topic": b"orders.1", b"id": b"by-hand", b"time": b"1700000000000", b"data": b"1"}
BAD: dict[str, dict[bytes, bytes]] = {
    "not JSON": {b"data": b"rubbish"},
    "not UTF-8": {b"data": b'"\xff"'},
    "above the limit": {b"data": b'"' + b"x" * 70_000 + b'"'},
    "an invalid topic": {b"topic": b'a"]'},
    "an id that would break out of its string": {b"id": b'x","offset":1,"y":"'},
    "a time that is no number": {b"time": b"yesterday"},
    "a time below zero": {b"time": b"-1"},
    "none of our fields": {b"data": b"", b"topic": b"", b"id": b"", b"time": b""},
}


def test_a_good_entry_is_its_event() -> None:
    entry = read_entry(7, GOOD, 65536)
    assert entry.error is None
    assert entry.event is not None
    assert (entry.event.topic, entry.event.offset, entry.event.data) == ("orders.1", 7, b"1")


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_entry_has_an_error_and_keeps_its_offset(bad: dict[bytes, bytes]) -> None:
    """A tool that writes past the function library must not stop the feed."""
    entry = read_entry(7, GOOD | bad, 65536)
    assert (entry.offset, entry.event) == (7, None)
    assert entry.error is not None


@pytest.mark.parametrize(
    ("rate", "kept_s"),
    [(0, 600), (1, 600), (100, 100), (1000, 10), (5000, 2)],
)
def test_an_event_is_kept_until_the_first_of_the_three_bounds(rate: float, kept_s: float) -> None:
    """By age at a low rate, and by count or bytes at a high one."""
    by_count = Extent(0, 0, 50_000, 200.0, 10_000, 600, 256 * 2**20)
    by_bytes = Extent(0, 0, 50_000, 1000.0, 10_000_000, 600, 10_000_000)
    assert by_count.retention_s(rate) == by_bytes.retention_s(rate) == kept_s


def test_the_default_log_holds_half_a_minute_of_five_thousand_events_of_a_kibibyte() -> None:
    """A client that reconnects finds the missed events, also at a high rate."""
    kept = Extent(0, 0, 1, 1024 + 16 + ENTRY_BYTES, MOST_LOG_EVENTS, DEFAULTS.log_max_age_s, DEFAULT_MAX_BYTES)
    assert DEFAULTS.log_max_events == 0
    assert kept.retention_s(5000) >= 30


@pytest.mark.parametrize(("command", "counted"), [(("HMGET", "k", "f"), 1), (("XREAD", "BLOCK", 1, "STREAMS", "k", 0), 0)])
def test_a_round_trip_is_timed_unless_it_waits_for_something_to_happen(command: tuple[str, ...], counted: int) -> None:
    """Also a failing one, because it took its time."""
    before = ROUND_TRIPS.count
    with suppress(HeadgateError, AssertionError, AttributeError, NotImplementedError):
        call(SmallRedis().client(), *command)
    assert ROUND_TRIPS.count == before + counted
