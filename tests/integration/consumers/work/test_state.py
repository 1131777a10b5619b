"""A consumer's shared memory in a real Redis: rates, sums, leases, and that every key ends."""

import time
from collections.abc import Iterator

import pytest

from headgate.consumers.work.state import State
from headgate.consumers.work.store import Store
from headgate.errors import BusUnavailable
from headgate.redis.client import Client, call, open_client

ODD = ["two words", "ü", "", "a" * 500, "a\nb", "={}*", "\ud800"]


def make(client: Client, url: str, consumer: str = "mail") -> State:
    return State(Store(client, url, "notifications", consumer, 65536))


@pytest.fixture
def state(redis_client: Client, redis_url: str) -> Iterator[State]:
    """The state of a consumer; afterwards every key of it must have an end, and be in the namespace's slot."""
    yield make(redis_client, redis_url)
    for key in call(redis_client, "KEYS", "*"):
        assert key.startswith(b"hg:{notifications}:group:mail")
        assert len(key) < 160
        assert call(redis_client, "PTTL", key) != -1, key  # -2: it has ended since


@pytest.fixture
def other(redis_client: Client, redis_url: str) -> State:
    """The same consumer's state in another instance."""
    return make(redis_client, redis_url)


def end(client: Client, names: str, within_s: int) -> None:
    """Let the keys of this end come, which is within these seconds."""
    found = call(client, "KEYS", f"*:state:{names}")
    assert found
    for key in found:
        assert within_s * 1000 / 2 < call(client, "PTTL", key) <= within_s * 1000
        call(client, "PEXPIRE", key, 0)


def move_back(client: Client, names: str, seconds: int) -> None:
    """Let everything that a rate has counted be so much longer ago."""
    for key in call(client, "KEYS", f"*:state:{names}"):
        for member in call(client, "ZRANGE", key, 0, -1):
            call(client, "ZINCRBY", key, -seconds * 1000, member)


def set_back(client: Client, names: str, seconds: int) -> None:
    """Set the wall clock of Redis back, by which these keys end."""
    for key in call(client, "KEYS", f"*:state:{names}"):
        call(client, "PEXPIRE", key, call(client, "PTTL", key) + seconds * 1000)


def test_a_wall_clock_that_is_set_back_lengthens_no_lease(state: State, other: State, redis_client: Client) -> None:
    """Else no instance would judge alerts for an hour, if the holder ended."""
    assert state.lease("l", 60)
    set_back(redis_client, "lease:l", 3600)
    assert other.lease("l", 60)
    assert not state.lease("l", 60)


def test_names_are_kept_apart(state: State) -> None:
    """Also those that cannot stand in a key as they are."""
    assert [state.within_rate(name, 1, 60) for name in ["plain", *ODD]] == [None] * (len(ODD) + 1)


def test_consumers_are_kept_apart(state: State, redis_client: Client, redis_url: str) -> None:
    """The same name of another consumer is another one."""
    assert state.within_rate("w", 1, 60) is None
    assert make(redis_client, redis_url, "mail-2").within_rate("w", 1, 60) is None
    assert make(redis_client, redis_url, "mail-2").get("w") is None


def test_a_rate_has_room_for_its_limit(state: State, other: State) -> None:
    """Counted over all instances; beyond it, when the oldest one's period is over."""
    before_s = time.time()
    assert [each.within_rate("r", 3, 60) for each in (state, other, state)] == [None] * 3

    free_s = other.within_rate("r", 3, 60)

    assert free_s is not None
    assert before_s + 59.9 < free_s < time.time() + 60.1
    assert state.within_rate("another", 3, 60) is None


def test_one_counts_once_for_a_rate(state: State, other: State) -> None:
    """It asks again where the answer was lost, and is within, also when the limit is reached."""
    assert [each.within_rate("r", 1, 60, "one") for each in (state, other, state)] == [None] * 3
    assert state.within_rate("r", 1, 60, "another") is not None


def test_a_limit_that_was_lowered_says_when_there_is_room(state: State, redis_client: Client) -> None:
    """Not when the oldest goes, but when enough have gone."""
    for _ in range(3):
        move_back(redis_client, "rate:r", 10)
        assert state.within_rate("r", 3, 60) is None
    oldest_goes_s, newest_goes_s = state.within_rate("r", 3, 60), state.within_rate("r", 1, 60)

    assert oldest_goes_s is not None
    assert newest_goes_s is not None
    assert newest_goes_s > oldest_goes_s + 15  # 20, but for what the answers of Redis take


def test_sums_are_over_the_wanted_buckets_of_each_name(state: State, other: State) -> None:
    """Two instances add to the same counters."""
    state.add({("a", 1): 1, ("a", 2): 2.5, ("b b", 1): 10}, 60)
    other.add({("a", 2): 2.5, ("a", 3): 100}, 60)

    assert state.sums([("a", range(1, 3)), ("b b", range(9)), ("a", range(3, 4)), ("c", range(1, 9))]) == [6.0, 10.0, 100.0, 0.0]
    assert state.sums([]) == []
    assert state.sums([("a", range(0))]) == [0.0]


def test_a_counter_ends_by_its_own_time(state: State, redis_client: Client) -> None:
    """Another counter of the same bucket number, with a shorter life, does not take it along."""
    state.add({("long", 7): 1}, 600)
    state.add({("short", 7): 1}, 60)
    end(redis_client, "sum:short*", 60)

    assert state.sums([("short", range(7, 8)), ("long", range(7, 8))]) == [0.0, 1.0]
    end(redis_client, "sum:long*", 600)


def test_a_value_is_kept_for_its_time(state: State, other: State, redis_client: Client) -> None:
    """Any bytes; putting it again puts off its end."""
    assert state.get("v") is None
    state.put("v", b"\x00\xff", 600)
    assert other.get("v") == b"\x00\xff"
    state.put("v", b"", 60)
    assert other.get("v") == b""
    end(redis_client, "value:v", 60)
    assert state.get("v") is None


def test_a_lease_is_held_by_one(state: State, other: State, redis_client: Client) -> None:
    """Its holder renews it; the other gets it when it has ended."""
    assert state.lease("l", 600)
    assert not other.lease("l", 600)
    assert state.lease("l", 60)
    end(redis_client, "lease:l", 60)
    assert other.lease("l", 60)
    assert not state.lease("l", 60)


def test_without_redis_every_method_says_so(redis_client: Client) -> None:
    """Not caught, it counts as a `Retry`."""
    client = open_client("redis://127.0.0.1:1", timeout_s=0.2)
    state = make(client, "redis://127.0.0.1:1")
    for attempt in (
        lambda: state.within_rate("r", 1, 1), lambda: state.add({("a", 1): 1}, 1),
        lambda: state.sums([("a", range(1))]), lambda: state.get("v"), lambda: state.put("v", b"", 1),
        lambda: state.lease("l", 1), lambda: state.user_facts("u", "news", "e").is_shown, state.progress,
    ):  # fmt: skip
        with pytest.raises(BusUnavailable):
            attempt()
    client.close()
