"""Loads in Redis: told, read, gone with their process, and an operator's wish. On the small Redis of the tests."""

from __future__ import annotations

import pytest

from headgate.errors import BusRefused, InvalidRequest
from headgate.redis import loads
from headgate.redis.keys import LOADS
from headgate.redis.loads import LEASE_S, LEFT_S, REQUEST_S, Load, Request
from tests.support.small_redis import SmallRedis


@pytest.fixture
def server() -> SmallRedis:
    """An empty one."""
    return SmallRedis()


def told(sessions: int, since_s: int, at_s: int) -> Load:
    """Return a load as it is read back: the clock of the small Redis is the machine's."""
    return Load(sessions, since_s, "shop", at_s, skew_ms=0)


def test_each_process_finds_the_loads_of_all(server: SmallRedis) -> None:
    """With the time of each word."""
    loads.look(server.client(), "one", Load(7, 900, "shop"), lambda: server.now_s)
    server.now_s += 3
    found = loads.look(server.client(), "two", Load(5, 990, "shop"), lambda: server.now_s)
    assert found.now_s == 1003
    assert found.loads == {"one": told(7, 900, 1000), "two": told(5, 990, 1003)}
    assert found.request is None
    assert loads.read(server.client()).loads == found.loads


def test_a_process_that_is_silent_or_has_left_is_gone(server: SmallRedis) -> None:
    """The next one that looks takes its field out."""
    for name in ("dead", "left"):
        loads.look(server.client(), name, Load(7, 900, "shop"))
    loads.leave(server.client(), "left")
    for _ in range(2):
        server.now_s += LEASE_S // 2 + 1
        found = loads.look(server.client(), "one", Load(1, 900, "shop"))
    assert set(found.loads) == {"one"}
    assert server.execute_command("HGETALL", LOADS).keys() == {b"one"}


def test_a_word_that_was_given_to_another_server_is_kept_for_a_while(server: SmallRedis) -> None:
    """After a failover it is all that the new primary knows of a gateway that has not followed; it is no load."""
    for name, its_server in (("moved", "old"), ("lost", "old"), ("dead", "new"), ("unknown", "")):
        loads.look(server.client(), name, Load(7, 900, "shop", server=its_server))
    here = Load(1, 900, "shop", server="new")
    loads.look(server.client(), "moved", here)
    server.now_s += LEASE_S
    found = loads.look(server.client(), "moved", here)
    assert (set(found.loads), set(found.left)) == ({"moved"}, {"lost"})
    assert set(loads.read(server.client(), "new").left) == {"lost"}
    assert loads.read(server.client()).left == {}
    server.now_s += LEFT_S
    assert loads.look(server.client(), "moved", here).left == {}
    assert server.execute_command("HGETALL", LOADS).keys() == {b"moved"}


def test_what_cannot_be_read_is_taken_out(server: SmallRedis) -> None:
    """It is no load, and keeps nobody from finding the others."""
    server.execute_command("HSET", LOADS, "odd", "{", "other", '["x"]')
    assert set(loads.look(server.client(), "one", Load(1, 900, "shop")).loads) == {"one"}
    assert server.execute_command("HGETALL", LOADS).keys() == {b"one"}


def test_a_wish_is_heard_until_it_is_old(server: SmallRedis) -> None:
    """The later one wins."""
    for per_s in (5, 20):
        loads.request(server.client(), per_s)
    assert loads.look(server.client(), "one", Load(1, 900, "shop")).request == Request(1000, 20)
    for _ in range(REQUEST_S // 10):
        server.now_s += 10
        found = loads.look(server.client(), "one", Load(1, 900, "shop"))
    assert found.request is None


@pytest.mark.parametrize("per_s", [0, -1, 1001, float("nan")])
def test_a_rate_that_cannot_be_is_refused(server: SmallRedis, per_s: float) -> None:
    """Before Redis is asked."""
    with pytest.raises(InvalidRequest, match="per second"):
        loads.request(server.client(), per_s)
    assert server.asked == []


def test_a_refusal_is_told(server: SmallRedis) -> None:
    """As of any command."""
    server.refuses = "HGETALL"
    with pytest.raises(BusRefused):
        loads.look(server.client(), "one", Load(1, 900, "shop"))


def test_a_process_tells_by_how_much_its_clock_is_ahead(server: SmallRedis) -> None:
    """Measured in the middle of the round trip to Redis, and read by `headgate doctor`."""
    times = iter([1003.0, 1004.0])
    found = loads.look(
        server.client(), "one", Load(1, 900, "shop", name="web-1/7", version="1", max_files=9), lambda: next(times)
    )
    assert found.loads["one"] == Load(1, 900, "shop", 1000, "web-1/7", "1", 9, 3500)
    assert loads.read(server.client()).loads == found.loads


def test_words_of_an_older_gateway_are_read(server: SmallRedis) -> None:
    """It tells neither its name nor its clock."""
    server.execute_command("HSET", LOADS, "old", '[7,900,"shop",1000]')
    assert loads.read(server.client()).loads == {"old": Load(7, 900, "shop", 1000)}
