"""An entry of the log: the event in it, or the error of one that cannot be delivered."""

from __future__ import annotations

from contextlib import suppress

import pytest

from headgate.errors import HeadgateError
from headgate.redis.client import ROUND_TRIPS, call
from headgate.redis.keys import head_key
from headgate.redis.log import EventLog, read_entry
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
    """With the offset of its place in the log."""
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


def test_the_extent_of_a_log_is_what_its_head_says() -> None:
    """Bytes, when the oldest came, and for how long ids count; nothing of a log that is not there."""
    server = SmallRedis()
    log = EventLog("n", server.client(), 1024)
    assert log.extent() == (0, 0, 300, 0)
    call(server.client(), "HSET", head_key("n"), "sum", "5000", "first_sum", "1000", "first_time", "1234")
    call(server.client(), "HSET", head_key("n"), "ids_most", "5000000", "ids_hold", "84500")
    assert log.extent() == (4000, 1234, 84.5, 10_000_000)


@pytest.mark.parametrize(("command", "counted"), [(("HMGET", "k", "f"), 1), (("XREAD", "BLOCK", 1), 0)])
def test_a_round_trip_is_timed_unless_it_waits_for_something_to_happen(command: tuple[str, ...], counted: int) -> None:
    """Also one that fails: it took its time."""
    before = ROUND_TRIPS.count
    with suppress(HeadgateError, AssertionError, AttributeError, NotImplementedError):
        call(SmallRedis().client(), *command)
    assert ROUND_TRIPS.count == before + counted
