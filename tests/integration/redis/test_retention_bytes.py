"""The retention of a log by bytes, in a real Redis: it holds, costs little, and the newest event always stays."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate.redis import keys
from headgate.redis.client import Client, at, call, open_client
from headgate.redis.functions import SOURCE, ensure_loaded
from headgate.redis.log import DEFAULT_MAX_BYTES, LEAST_MAX_BYTES, EventLog

NAMESPACE = "orders"
KEY, HEAD = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE)
MIB = 2**20
STEP = MIB // 64
ENTRY_BYTES = 128


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of an empty Redis with the library, with a log of 1 MiB and a hundred thousand events."""
    ensure_loaded(redis_client)
    EventLog(NAMESPACE, redis_client, MIB).configure(100_000, 86_400, MIB)
    return redis_client


def publish(client: Client, size: int, count: int = 1) -> None:
    pipeline: Any = at(client, "").pipeline(transaction=False)
    for _ in range(count):
        pipeline.execute_command("FCALL", "headgate_publish", 1, KEY, "a", '"' + "x" * (size - 2) + '"')
    for reply in pipeline.execute():
        assert reply[2] == 0


def weight(client: Client) -> int:
    """Return the bytes of all events in the log, as the limit counts them."""
    return sum(len(fields[b"topic"]) + len(fields[b"data"]) + ENTRY_BYTES for _, fields in call(client, "XRANGE", KEY, "-", "+"))


def reads(client: Client) -> int:
    stats = call(client, "INFO", "commandstats").get("cmdstat_xrange", {"calls": 0})
    return int(stats["calls"])


@pytest.mark.parametrize("size", [2, 200, 5_000, 60_000])
def test_a_log_holds_what_its_bytes_allow_and_no_more(client: Client, size: int) -> None:
    """However many events that is; a trim makes a little room, and at most one event more, as it costs more than an append."""
    each = size + 1 + ENTRY_BYTES
    publish(client, size, MIB // each + 300)

    assert MIB - STEP - each < weight(client) <= MIB
    assert (MIB - STEP) // each <= int(call(client, "XLEN", KEY)) <= MIB // each


def test_a_log_that_is_as_heavy_as_it_may_be_is_trimmed_now_and_then(client: Client) -> None:
    """To trim for each event took two and a half times as long as to append it."""
    each = 200 + 1 + ENTRY_BYTES
    publish(client, 200, MIB // each)
    before = reads(client)
    publish(client, 200, 1000)
    assert reads(client) - before <= 15 * (1000 // (STEP // each) + 1)


def test_a_large_event_pushes_out_as_many_small_ones_as_it_needs(client: Client) -> None:
    """At once, and no more than makes a little room."""
    publish(client, 20, 7_500)
    publish(client, 100_000)

    assert MIB - STEP - (20 + 1 + ENTRY_BYTES) < weight(client) <= MIB


def test_the_newest_event_stays_though_it_is_heavier_than_the_limit(client: Client) -> None:
    """Its receipt has been given."""
    publish(client, 500, 10)
    publish(client, MIB)
    publish(client, MIB)

    assert [offset for offset, _ in call(client, "XRANGE", KEY, "-", "+")] == [b"12-0"]


def test_a_log_within_its_bytes_is_not_read(client: Client) -> None:
    """By count and age it is trimmed without a look at the events, and by bytes with one look now and then."""
    EventLog(NAMESPACE, client, MIB).configure(100, 86_400, MIB)
    publish(client, 200, 200)
    before = reads(client)

    publish(client, 200, 3_000)

    assert int(call(client, "XLEN", KEY)) == 100
    assert reads(client) - before <= 3_000 * 329 // (MIB - 100 * 329) + 2


def test_entries_of_an_older_library_go_first(client: Client) -> None:
    """They were never counted; once the log is heavy by those that were, none of them is left."""
    for offset in range(1, 51):
        call(client, "XADD", KEY, f"{offset}-0", "topic", "a", "id", f"i{offset}", "time", "1", "data", "1")
    call(client, "HSET", HEAD, "offset", 50)
    call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)
    publish(client, 10_000, 150)

    assert weight(client) <= MIB
    assert int(call(client, "XRANGE", KEY, "-", "+", "COUNT", 1)[0][0].partition(b"-")[0]) > 50


def test_a_limit_that_is_lowered_is_worked_off(client: Client) -> None:
    """A thousand events with each publish, so that none takes long."""
    log = EventLog(NAMESPACE, client, MIB)
    log.configure(100_000, 86_400, 16 * MIB)
    publish(client, 500, 10_000)
    log.configure(100_000, 86_400, MIB)
    publish(client, 500, 12)

    assert weight(client) <= MIB


def test_a_gateway_without_a_wish_leaves_the_limit(client: Client) -> None:
    """As one of an older version does."""
    EventLog(NAMESPACE, client, 65536).configure(100, 600)

    assert call(client, "HGET", HEAD, "max_bytes") == b"%d" % MIB


def test_the_policy_of_a_redis_that_evicts_is_known(redis_client: Client) -> None:
    """It is read with the limit of memory."""
    log, policies = EventLog(NAMESPACE, redis_client, 65536), []
    for policy in ("allkeys-lfu", "noeviction"):
        call(redis_client, "CONFIG", "SET", "maxmemory-policy", policy)
        log.share_of_memory(1)
        policies.append(log.eviction_policy)
    assert policies == ["allkeys-lfu", ""]


def test_the_logs_share_half_of_the_memory_that_redis_may_use(redis_client: Client, as_user: Callable[..., Client]) -> None:
    """With no limit, or no right to ask, each has the usual bound."""
    log = EventLog(NAMESPACE, redis_client, 65536)
    maxmemory = int(call(redis_client, "INFO", "memory")["maxmemory"])
    assert [log.share_of_memory(count) for count in (1, 4, 10_000)] == [maxmemory // 2, maxmemory // 8, LEAST_MAX_BYTES]
    try:
        call(redis_client, "CONFIG", "SET", "maxmemory", 0)
        assert log.share_of_memory(3) == DEFAULT_MAX_BYTES
    finally:
        call(redis_client, "CONFIG", "SET", "maxmemory", maxmemory)
    assert EventLog(NAMESPACE, as_user("+@all", "-info"), 65536).share_of_memory(3) == DEFAULT_MAX_BYTES
    with pytest.raises(BusUnavailable):
        EventLog(NAMESPACE, open_client("unix:///nowhere"), 65536).share_of_memory(1)
