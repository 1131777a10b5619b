"""Rate usage in Redis: what a process tells and is told, and what is left of one that is gone. On a small Redis here."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis.client import Client
from headgate.redis.keys import PROCESSES, rate_usage_key
from headgate.redis.leased import LEASE_S, leave, tell
from headgate.redis.rate_usage import read_others, text_of
from headgate.runtime.shared_rates import Spending
from tests.support.small_redis import SmallRedis


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


def look(
    client: Client, process: str, told: Mapping[str, Spending | None], *, anew: bool = False
) -> tuple[int, dict[str, dict[str, Spending]], bool]:
    """Tell spendings and hear others; return how many processes there are, theirs, and whether the lease was known."""
    fields = {name: None if each is None else text_of(each) for name, each in told.items()}
    others, known = tell(client, process, {rate_usage_key(process): fields}, anew=anew)
    return len(others) + 1, read_others(client, others), known


def test_each_process_learns_what_the_others_have_told(server: SmallRedis) -> None:
    """Without its own, until it is taken back, or its process leaves or dies."""
    client = server.client()
    assert look(client, "one", {"publish:ana": Spending(3, 2)}) == (1, {}, False)
    assert look(client, "two", {"read:ana": Spending(1, 1)}) == (2, {"one": {"publish:ana": Spending(3, 2)}}, False)
    assert look(client, "one", {"publish:ana": None}) == (2, {"two": {"read:ana": Spending(1, 1)}}, True)
    assert look(client, "two", {}) == (2, {"one": {}}, True)
    leave(client, "one", [rate_usage_key("one")])
    assert look(client, "two", {}) == (1, {}, True)
    server.now_s += LEASE_S
    assert look(client, "three", {}) == (1, {}, False)
    assert server.present() == {PROCESSES}


def test_all_may_be_told_anew(server: SmallRedis) -> None:
    """In place of what there was, however many they are."""
    client = server.client()
    look(client, "one", {"publish:old": Spending(1, 1)})
    many = {f"publish:{number}": Spending(number, 1) for number in range(1200)}
    look(client, "one", many, anew=True)
    assert look(client, "two", {})[1] == {"one": many}


@pytest.mark.parametrize("value", ["", "1", "-1 1", "1 x", "\xb2 1", "9" * 50 + " 1"])
def test_an_entry_that_is_no_spending_does_not_count(server: SmallRedis, value: str) -> None:
    """Whatever has written it."""
    client = server.client()
    look(client, "one", {})
    server._hset(rate_usage_key("one"), "publish:ana", value)
    assert look(client, "two", {})[1] == {"one": {}}


def test_faults_of_redis_are_raised(server: SmallRedis) -> None:
    """A refusal, or no answer."""
    server.refuses = "HSET"
    with pytest.raises(BusRefused):
        look(server.client(), "one", {"publish:ana": Spending(1, 1)})
    server.up = False
    with pytest.raises(BusUnavailable):
        look(server.client(), "one", {})
