"""Loads in Redis: reported, read, gone with their process, and an operator's wish. On the small Redis of the tests."""

import pytest

from headgate.errors import InvalidRequest
from headgate.redis import loads
from headgate.redis.keys import LOADS
from headgate.redis.loads import LEASE_S, LEFT_S, REQUEST_S, Load
from tests.support.registered import write_row
from tests.support.small_redis import SmallRedis


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


@pytest.mark.parametrize("step_s", [-7200, 3600])
def test_a_row_of_another_time_is_gone(server: SmallRedis, step_s: int) -> None:
    """A jump of the server's clock ends every lease, as a row from the future would live for too long."""
    write_row(server.client(), "dead", Load(7, 900, "shop"))
    server.now_s += step_s
    assert write_row(server.client(), "one", Load(1, 900, "shop")).gone == ["dead"]


def test_a_word_that_was_given_to_another_server_is_kept_for_a_while(server: SmallRedis) -> None:
    """After a failover it is the new primary's only word of a gateway that has not followed; it is no load."""
    for name, its_server in (("moved", "old"), ("lost", "old"), ("dead", "new"), ("unknown", "")):
        write_row(server.client(), name, Load(7, 900, "shop", server=its_server))
    here = Load(1, 900, "shop", server="new")
    write_row(server.client(), "moved", here)
    server.now_s += LEASE_S
    rows = write_row(server.client(), "moved", here)
    assert (set(rows.loads), set(rows.left), rows.gone) == ({"moved"}, {"lost"}, ["dead", "unknown"])
    assert set(loads.read(server.client(), "new").left) == {"lost"}
    assert loads.read(server.client()).left == {}
    server.now_s += LEFT_S
    assert write_row(server.client(), "moved", here).left == {}


def test_what_cannot_be_read_is_to_be_taken_out(server: SmallRedis) -> None:
    """It is no load, and keeps no reader from finding the others."""
    server.execute_command("HSET", LOADS, "odd", "{", "other", '["x"]')
    rows = write_row(server.client(), "one", Load(1, 900, "shop"))
    assert (set(rows.loads), rows.gone) == ({"one"}, ["odd", "other"])


def test_a_wish_is_heard_until_it_is_old(server: SmallRedis) -> None:
    """The later one wins."""
    for per_s in (5, 20):
        loads.request(server.client(), per_s)
    assert write_row(server.client(), "one", Load(1, 900, "shop")).request == (1000, 20)
    for _ in range(REQUEST_S // 10):
        server.now_s += 10
        found = write_row(server.client(), "one", Load(1, 900, "shop"))
    assert found.request is None


@pytest.mark.parametrize("per_s", [0, -1, 1001, float("nan")])
def test_a_rate_that_cannot_be_is_refused(server: SmallRedis, per_s: float) -> None:
    with pytest.raises(InvalidRequest, match="per second"):
        loads.request(server.client(), per_s)
    assert server.asked == []


def test_words_of_an_older_gateway_are_read(server: SmallRedis) -> None:
    """It reports neither its name nor its clock."""
    server.execute_command("HSET", LOADS, "old", '[7,900,"shop",1000]')
    assert loads.read(server.client()).loads == {"old": Load(7, 900, "shop", 1000)}
