"""Spendings in Redis: what a process tells and is told, and what is left of one that is gone. On a small Redis here."""

from __future__ import annotations

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis.keys import SPENDERS, spendings_key
from headgate.redis.spendings import LEASE_S, Look, leave, look
from headgate.runtime.shared_rates import Spending
from tests.support.small_redis import SmallRedis


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


def test_each_process_learns_what_the_others_have_told(server: SmallRedis) -> None:
    """Without its own, until it is taken back, or its process leaves or dies."""
    client = server.client()
    assert look(client, "one", {"publish:ana": Spending(3, 2)}) == Look(1, {}, known=False)
    assert look(client, "two", {"read:ana": Spending(1, 1)}) == Look(2, {"one": {"publish:ana": Spending(3, 2)}}, known=False)
    assert look(client, "one", {"publish:ana": None}) == Look(2, {"two": {"read:ana": Spending(1, 1)}}, known=True)
    assert look(client, "two", {}) == Look(2, {"one": {}}, known=True)
    leave(client, "one")
    assert look(client, "two", {}) == Look(1, {}, known=True)
    server.now_s += LEASE_S
    assert look(client, "three", {}) == Look(1, {}, known=False)
    assert server.present() == {SPENDERS}


def test_all_may_be_told_anew(server: SmallRedis) -> None:
    """In place of what there was, however many they are."""
    client = server.client()
    look(client, "one", {"publish:old": Spending(1, 1)})
    many = {f"publish:{number}": Spending(number, 1) for number in range(1200)}
    look(client, "one", many, anew=True)
    assert look(client, "two", {}).others == {"one": many}


@pytest.mark.parametrize("value", ["", "1", "-1 1", "1 x", "\xb2 1", "9" * 50 + " 1"])
def test_an_entry_that_is_no_spending_does_not_count(server: SmallRedis, value: str) -> None:
    """Whatever has written it."""
    client = server.client()
    look(client, "one", {})
    server._hset(spendings_key("one"), "publish:ana", value)
    assert look(client, "two", {}).others == {"one": {}}


def test_faults_of_redis_are_raised(server: SmallRedis) -> None:
    """A refusal, or no answer."""
    server.refuses = "HSET"
    with pytest.raises(BusRefused):
        look(server.client(), "one", {"publish:ana": Spending(1, 1)})
    server.up = False
    with pytest.raises(BusUnavailable):
        look(server.client(), "one", {})
