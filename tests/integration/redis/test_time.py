"""Ages in a namespace's log, in a real Redis whose wall clock is set an hour on or back: retention by age, ids, and upkeep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.errors import BusRefused
from headgate.node.upkeep import LogUpkeep
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import SOURCE, ensure_loaded
from headgate.redis.keys import head_key, log_key
from headgate.redis.log import EventLog
from headgate.redis.time_watch import TimeWatch
from tests.support.wall_clock import BEGIN_MS, HOUR_MS, WallClock

NAMESPACE = "orders"
KEY = log_key(NAMESPACE)
MAX_AGE_S = 600
SET = pytest.mark.parametrize("set_ms", [HOUR_MS, -HOUR_MS], ids=["on", "back"])


class Log:
    """A log, the wall clock of its Redis, and the true time, in which one gateway keeps it up."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.wall = WallClock(client)
        self._true_s = 0.0
        self.log = EventLog(NAMESPACE, client, 65536)
        self.log.configure(10_000, MAX_AGE_S)
        self.upkeep = LogUpkeep(NAMESPACE, self.log, TimeWatch(lambda: self._true_s))
        self.upkeep.tick()

    def pass_time(self, seconds: int) -> None:
        """Let true time pass: Redis' wall clock runs with it, and the gateway calls every five seconds."""
        for _ in range(seconds // 5):
            self._true_s += 5
            self.wall.advance(5000)
            self.upkeep.tick()

    def publish(self, event_id: str | None = None, payload: str = "1") -> tuple[int, bool]:
        """Publish; return the offset, and whether it was there already."""
        more = () if event_id is None else (event_id,)
        _, offset, duplicate = call(self.client, "FCALL", "headgate_publish", 1, KEY, "a.b", payload, *more)
        return offset, bool(duplicate)

    def offsets(self) -> list[int]:
        """Return what the log holds."""
        return [int(entry_id.partition(b"-")[0]) for entry_id, _ in call(self.client, "XRANGE", KEY, "-", "+")]


@pytest.fixture
def log(redis_client: Client) -> Log:
    """An empty log."""
    return Log(redis_client)


@SET
def test_the_log_keeps_what_is_young_though_the_wall_clock_is_set(log: Log, set_ms: int) -> None:
    """Nothing goes before its age, and everything with it."""
    log.publish()
    log.pass_time(300)
    log.wall.advance(set_ms)
    for _ in range(20):
        log.publish()
    assert log.offsets() == list(range(1, 22))

    log.pass_time(330)
    log.publish()
    assert log.offsets() == list(range(2, 23))
    log.pass_time(300)
    for _ in range(10):
        log.publish()
    assert log.offsets() == list(range(22, 33))


@SET
def test_an_id_counts_for_300_seconds_though_the_wall_clock_is_set(log: Log, set_ms: int) -> None:
    """And no longer, within the tolerance of ten seconds."""
    offset, _ = log.publish("same")
    log.pass_time(150)
    log.wall.advance(set_ms)
    assert log.publish("same") == (offset, True)
    log.pass_time(135)
    assert log.publish("same") == (offset, True)

    log.pass_time(30)

    assert log.publish("same") == (offset + 1, False)


@SET
def test_an_id_counts_across_a_failover_to_another_wall_clock(log: Log, set_ms: int) -> None:
    """Another process goes on with the time that was saved, and the gateway knows the rest."""
    offset, _ = log.publish("same")
    log.pass_time(150)
    log.wall.restart()
    log.wall.advance(set_ms)
    log.log.configure(10_000, MAX_AGE_S)
    assert log.publish("same") == (offset, True)
    log.pass_time(130)
    assert log.publish("same") == (offset, True)

    log.pass_time(40)

    assert log.publish("same") == (offset + 1, False)


def test_an_id_counts_for_exactly_300_seconds(log: Log) -> None:
    """As long as nobody sets a clock."""
    offset, _ = log.publish("same")
    log.pass_time(295)
    log.wall.advance(4999)
    assert log.publish("same") == (offset, True)
    log.wall.advance(1)
    assert log.publish("same") == (offset + 1, False)


def test_ids_take_no_more_than_two_hashes(log: Log) -> None:
    """At any time, those of long ago are dropped, by publishes and by upkeep."""
    for turn in range(8):
        log.publish(f"id-{turn}")
        log.pass_time(205)
        assert len(call(log.client, "KEYS", "hg:{orders}:id:*")) <= 2

    assert all(call(log.client, "PTTL", key) > 0 for key in call(log.client, "KEYS", "hg:{orders}:id:*"))


def test_ids_are_bounded_by_count(log: Log, redis_client: Client) -> None:
    """At a high rate the newest count, at least as many as a hash holds."""
    small = SOURCE.replace("local LEAST_IDS, LOG_BYTES_PER_ID = 65536, 4096", "local LEAST_IDS, LOG_BYTES_PER_ID = 10, 1e15")
    assert small != SOURCE
    call(redis_client, "FUNCTION", "LOAD", "REPLACE", small)
    for number in range(95):
        log.publish(f"id-{number}")

    held = sum(call(redis_client, "HLEN", key) for key in call(redis_client, "KEYS", "hg:{orders}:id:*"))
    assert 10 <= held <= 20
    assert all(log.publish(f"id-{number}")[1] for number in range(85, 95))
    assert not log.publish("id-60")[1]


@SET
def test_times_that_users_see_are_the_wall_clocks(log: Log, set_ms: int) -> None:
    """But never go back within a log."""
    log.publish()
    log.wall.advance(set_ms)
    log.publish()

    times = [int(fields[b"time"]) for _, fields in call(log.client, "XRANGE", KEY, "-", "+")]
    assert times[1] - times[0] == max(0, set_ms)


def test_an_event_takes_no_more_room_while_nobody_sets_the_clock(log: Log) -> None:
    """Its time says its age."""
    log.publish()
    log.pass_time(3600)
    log.publish()

    [(_, fields)] = call(log.client, "XREVRANGE", KEY, "+", "-", "COUNT", 1)
    assert b"clock" not in fields
    assert call(log.client, "HGET", head_key(NAMESPACE), "shift") == b"0"


# A full Redis ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full(log: Log) -> Iterator[Log]:
    """The log in a Redis that refuses every publish, until the test is over."""
    log.publish("an-id")
    for _ in range(249):
        log.publish()
    call(log.client, "CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(BusRefused, match="out of memory"):
        log.publish()
    yield log
    call(log.client, "CONFIG", "SET", "maxmemory", "1gb")


def test_a_full_redis_loses_what_is_too_old(full: Log) -> None:
    """Though nobody can publish: all of it, ids too, in small steps. What is young stays."""
    full.pass_time(300)
    assert len(full.offsets()) == 250
    assert call(full.client, "KEYS", "hg:{orders}:id:*")

    full.pass_time(305)
    assert full.offsets() == []
    full.pass_time(600)

    assert call(full.client, "KEYS", "hg:{orders}:id:*") == []
    call(full.client, "CONFIG", "SET", "maxmemory", "1gb")
    assert full.publish() == (251, False)
    assert full.offsets() == [251]


def test_a_full_redis_loses_what_is_too_much(full: Log) -> None:
    """A gateway can begin, with a lower retention, and its upkeep makes room at once."""
    full.log.configure(100, MAX_AGE_S, 2**20)

    assert full.upkeep.tick() == 150

    assert full.offsets() == list(range(151, 251))
    assert full.upkeep.tick() == 0


def test_a_trim_reads_little_at_a_time(full: Log) -> None:
    """Others' turn comes after a hundred events."""
    full.wall.advance(1000 * (MAX_AGE_S + 1))
    epoch, told = call(full.client, "HGET", head_key(NAMESPACE), "epoch").decode(), BEGIN_MS

    counts = [full.log.trim(epoch, told, 1000 * (MAX_AGE_S + 1))[2] for _ in range(4)]

    assert counts == [100, 100, 50, 0]


def test_redis_with_room_is_not_trimmed_by_upkeep(log: Log) -> None:
    """An idle log keeps what it has for whoever comes back late."""
    log.publish()
    log.pass_time(2 * MAX_AGE_S)

    assert log.upkeep.tick() is None
    assert log.offsets() == [1]


def test_upkeep_creates_nothing(redis_client: Client) -> None:
    """Without a log, or while another process of Redis is to begin an epoch, there is no time to be told."""
    ensure_loaded(redis_client)
    log = EventLog(NAMESPACE, redis_client, 65536)

    assert (log.tick(), log.trim()) == (("", 0), ("", 0, 0))
    assert call(redis_client, "KEYS", "*") == []


def test_upkeep_needs_few_rights_and_says_which(full: Log, redis_server: EmbeddedRedis) -> None:
    """Those that docs/operations.md names; without one of them nothing has been written."""
    rights = ["+fcall", "+time", "+hmget", "+hset", "+xrange", "+xtrim", "+unlink"]
    for missing in ("+hset", "+xtrim", "+unlink", None):
        allowed = [right for right in rights if right != missing]
        call(full.client, "ACL", "SETUSER", "limited", "reset", "on", ">pass", f"~hg:{{{NAMESPACE}}}:*", "~test:*", *allowed)
        limited = open_client(f"unix://limited:pass@{redis_server.url.removeprefix('unix://')}")
        upkeep = LogUpkeep(NAMESPACE, EventLog(NAMESPACE, limited, 65536), TimeWatch())
        before = call(full.client, "HGETALL", head_key(NAMESPACE))
        if missing is None:
            assert upkeep.tick() == 0
        else:
            with pytest.raises(BusRefused, match=missing[1:].upper()):
                upkeep.tick()
            assert call(full.client, "HGETALL", head_key(NAMESPACE)) == before
        limited.close()
