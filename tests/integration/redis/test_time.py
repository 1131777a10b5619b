"""Ages in a namespace's log, in a real Redis with a clock that is set an hour on or back: retention by age, ids, upkeep."""

from collections.abc import Callable, Iterator

import pytest

from headgate.errors import MAX_RETRY_AFTER_S, BusRefused, InvalidEvent, LimitReached
from headgate.node.cluster.log_maintenance import LogMaintenance
from headgate.redis.client import Client, call
from headgate.redis.functions import LOG_LIBRARY, ensure_loaded
from headgate.redis.keys import head_key, log_key
from headgate.redis.log import DEFAULT_MAX_BYTES, EventLog
from headgate.redis.time_watch import TimeWatch
from tests.support.wall_clock import ASKING, BEGIN_MS, HOUR_MS, TOLD, WallClock

NAMESPACE = "orders"
KEY = log_key(NAMESPACE)
MAX_AGE_S = 600
SET = pytest.mark.parametrize("set_ms", [HOUR_MS, -HOUR_MS], ids=["on", "back"])


class Log:
    """A log, the wall clock of its Redis, and the true time, in which one gateway keeps it up."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.wall = WallClock(client)
        self.true_s = 0.0
        self.log = EventLog(NAMESPACE, client, 65536)
        self.log.configure(10_000, MAX_AGE_S)
        self.upkeep = LogMaintenance(NAMESPACE, self.log, TimeWatch(lambda: self.true_s))
        self.upkeep.tick()

    def pass_time(self, seconds: int, every_s: int = 5) -> None:
        """Let true time pass. Redis' wall clock runs with it, and the gateway calls every five seconds."""
        for _ in range(seconds // every_s):
            self.true_s += every_s
            self.wall.advance(1000 * every_s)
            self.upkeep.tick()

    def publish(self, event_id: str | None = None, payload: str = "1") -> tuple[int, bool]:
        """Publish; return the offset, and whether it was there already."""
        more = () if event_id is None else (event_id,)
        _, offset, duplicate = call(self.client, "FCALL", "headgate_publish", 1, KEY, "a.b", payload, *more)
        return offset, bool(duplicate)

    def offsets(self) -> list[int]:
        """Return the offsets of the log."""
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
def test_the_rate_of_events_is_that_of_the_last_seconds_though_the_wall_clock_was_set(log: Log, set_ms: int) -> None:
    """And set back. The times of events, which never go back, are then an hour ahead of the clock, or equal for an hour."""
    for step_ms in (0, set_ms, -set_ms):
        log.wall.advance(step_ms)
        for _ in range(12):
            log.pass_time(5)
            log.publish()

        clock_ms = log.log.clock_ms(log.wall.ms)

        assert log.log.events_per_s(clock_ms) == pytest.approx(0.2, abs=0.1)
        assert clock_ms - log.log.extent().first_ms == pytest.approx(1000 * log.true_s - 5000, abs=10_000)


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
    """As long as no clock is set."""
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


DAY_S = 86400


def keep(log: Log, event_id: str, for_s: int = DAY_S, by: str = "") -> tuple[int, bool]:
    """Publish under a remembered id; return the offset, and whether it was there already."""
    _, offset, duplicate = call(log.client, "FCALL", "headgate_publish", 1, KEY, "a.b", "1", event_id, f"{by} -  {for_s}")
    return offset, bool(duplicate)


def keep_in_batch(log: Log, event_id: str, for_s: int = DAY_S, by: str = "") -> tuple[int, bool]:
    """The same among others of a batch."""
    events = ("a.b", "1", "", ""), ("a.b", "1", event_id, f"{by} -  {for_s}"), ("a.b", "1", event_id, f"{by} -  {for_s}")
    lines = call(log.client, "FCALL", "headgate_append_batch", 1, KEY, *(word for event in events for word in event)).split(b"\n")
    if len(lines) == 2:  # one run of two new events, and one that was known
        return int(lines[0].split()[1]) + 1, False
    return int(lines[1].split()[1]), True


KEEP = pytest.mark.parametrize("keep", [keep, keep_in_batch])


@KEEP
@pytest.mark.parametrize("for_s", [3600, DAY_S])
def test_an_id_counts_for_as_long_as_it_asks(log: Log, keep: Callable[..., tuple[int, bool]], for_s: int) -> None:
    """At any rate, to the millisecond; its topic and user are part of it, and a publish that does not ask counts 300 s."""
    offset, _ = keep(log, "same", for_s)
    keep(log, "plain", for_s)
    log.pass_time(for_s - 5 - (for_s - 5) % 60, 60)
    log.pass_time(55)
    log.wall.advance(4999)
    assert keep(log, "same", for_s) == (offset, True)
    assert not keep(log, "same", for_s, "ana")[1]
    assert not log.publish("plain")[1]
    log.wall.advance(1)
    assert not keep(log, "same", for_s)[1]


@KEEP
def test_ids_that_are_kept_take_two_hashes_of_a_day(log: Log, keep: Callable[..., tuple[int, bool]]) -> None:
    """Whatever day it is, the next one drops those before, and each ends by itself."""
    for _ in range(4):
        keep(log, "same")
        keep(log, "other")
        log.pass_time(DAY_S, 3600)
    keys = call(log.client, "KEYS", "hg:{orders}:id:day*")
    assert len(keys) == 2
    for key in keys:
        assert 0 < call(log.client, "PTTL", key) <= 3000 * DAY_S
        assert int(call(log.client, "HGET", key, "")) == len("a.b:samea.b:other") + 2 * 112


def test_more_ids_than_there_is_room_for_are_refused_and_none_is_forgotten(log: Log) -> None:
    """With the limit and when to try again; events without such an id go on, and so does a known one."""
    log.log.configure(10_000, MAX_AGE_S, 1024 * 1024)
    room = 1024 * 1024 // 4 // (len("a.b:id-0000") + 112)
    for number in range(room):
        keep(log, f"id-{number:04}")
    with pytest.raises(LimitReached) as refused:
        keep(log, "one-more")
    assert refused.value.parts == {"name": "kept_id_bytes", "limit": 1024 * 1024 // 4}
    assert refused.value.retry_after_s == MAX_RETRY_AFTER_S
    assert keep(log, "id-0000")[1]
    offset, _ = log.publish("plain")
    with pytest.raises(LimitReached):
        keep(log, "one-more")
    assert log.publish("next") == (offset + 1, False), "a refused call has written nothing"


@pytest.mark.parametrize("for_s", [0, DAY_S + 1, 10**20])
def test_an_id_cannot_be_kept_for_no_time_or_for_longer_than_a_day(log: Log, for_s: int) -> None:
    """The error names the allowed range, before anything is written."""
    with pytest.raises(InvalidEvent, match="expected 1 to 86400 s, and an id"):
        keep(log, "same", for_s)
    assert log.offsets() == []


def test_an_id_that_is_kept_is_lost_with_the_log_it_was_in(log: Log) -> None:
    """Its receipt is of a lost epoch."""
    keep(log, "same")
    call(log.client, "DEL", KEY, head_key(NAMESPACE), f"hg:{{{NAMESPACE}}}:epochs")
    assert not keep(log, "same")[1]


def limit_ids(log: Log, id_bytes: int, least_ids: int = 1) -> None:
    """Allow a hash of ids so many bytes, once it has those of so many events. The wall clock stays the test's."""
    limit = "return floor(max(LEAST_IDS_BYTES, (IDS_SHARE * head.max_bytes + spare) / 2))"
    assert LOG_LIBRARY.source.count(limit) == 1
    limited = LOG_LIBRARY.source.replace(limit, f"return {id_bytes}").replace(ASKING, TOLD)
    limited = limited.replace("local LEAST_IDS = 65536\n", f"local LEAST_IDS = {least_ids}\n")
    call(log.client, "FUNCTION", "LOAD", "REPLACE", limited)


def test_ids_are_bounded_by_their_bytes(log: Log, redis_client: Client) -> None:
    """At a high rate the newest count, at least as many as a hash holds."""
    limit_ids(log, 10 * (len("a.b:id-10") + 112))
    for number in range(95):
        log.publish(f"id-{number}")

    held = sum(call(redis_client, "HLEN", key) for key in call(redis_client, "KEYS", "hg:{orders}:id:*"))
    assert 10 <= held <= 22
    assert all(log.publish(f"id-{number}")[1] for number in range(85, 95))
    assert not log.publish("id-60")[1]


def test_the_ids_of_the_newest_events_count_however_many_bytes_they_take(log: Log) -> None:
    """The base of a page's outbox, also where the log may have few bytes."""
    limit_ids(log, 1, least_ids=10)
    for number in range(95):
        log.publish(f"id-{number}")

    assert all(log.publish(f"id-{number}")[1] for number in range(85, 95))
    assert not log.publish("id-60")[1]


@pytest.mark.parametrize(("every_s", "counts_s"), [(5, 100), (10, 200), (20, 300)])
def test_the_log_knows_for_how_long_an_id_counts_at_the_present_rate(log: Log, every_s: int, counts_s: int) -> None:
    """And an id counts for as long as it says."""
    limit_ids(log, 20 * (len("a.b:id-10000") + 112))
    assert log.log.extent().id_hold_s == 300
    for number in range(10_000, 10_060):
        log.publish(f"id-{number}")
        log.pass_time(every_s)
        held = range(max(10_000, number - counts_s // every_s + 2), number + 1)  # younger than that
        assert all(log.publish(f"id-{each}")[1] for each in held)

    assert log.log.extent().id_hold_s == pytest.approx(counts_s, abs=every_s)


def test_a_log_that_takes_its_bytes_leaves_ids_fewer(log: Log) -> None:
    """Both together take 11/8 of the bytes that the log may have; ids at least 3/8."""
    most = 64 * 2**20
    log.log.configure(100_000, MAX_AGE_S, most)
    assert log.log.extent().most_id_bytes == most * 11 // 8
    for _ in range(100):
        log.publish(payload='"' + "x" * 65_000 + '"')
    log.pass_time(15)

    assert log.log.extent().most_id_bytes == pytest.approx(most * 11 // 8 - 100 * 65_133, abs=100)


def test_ids_that_no_longer_count_are_dropped_by_upkeep(log: Log) -> None:
    """Those of the hash before, 300 s after the newest began, even without a publish."""
    log.publish("old")
    log.pass_time(600)
    log.publish("new")
    assert len(call(log.client, "KEYS", "hg:{orders}:id:*")) == 2
    log.pass_time(290)
    assert log.publish("new")[1]
    assert len(call(log.client, "KEYS", "hg:{orders}:id:*")) == 2

    log.pass_time(15)

    assert call(log.client, "KEYS", "hg:{orders}:id:*") == [b"hg:{orders}:id:2"]


def test_an_id_counts_for_300_seconds_at_1000_events_a_second_by_default(log: Log) -> None:
    """With a log that takes all its bytes; a usual one leaves ids enough for 3,600 events a second."""
    log.log.configure(10_000, MAX_AGE_S, DEFAULT_MAX_BYTES)
    most, usual_id = log.log.extent().most_id_bytes, len("orders.42.shipped:") + 32 + 112
    assert (most - DEFAULT_MAX_BYTES) // 2 >= 300 * 1_000 * usual_id
    assert most // 2 >= 300 * 3_600 * usual_id


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
    """Though no publish succeeds, all of it goes, ids too, in small steps. Young ones stay."""
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
    """A bisection finds the oldest event that stays."""
    full.wall.advance(1000 * (MAX_AGE_S + 1))
    epoch, told = call(full.client, "HGET", head_key(NAMESPACE), "epoch").decode(), BEGIN_MS
    call(full.client, "CONFIG", "RESETSTAT")

    counts = [full.log.trim(epoch, told, 1000 * (MAX_AGE_S + 1))[2] for _ in range(2)]

    assert counts == [250, 0]
    assert call(full.client, "INFO", "commandstats")["cmdstat_xrange"]["calls"] < 12


def test_redis_with_room_is_not_trimmed_by_upkeep(log: Log) -> None:
    """An idle log keeps its events for a client that comes back late."""
    log.publish()
    log.pass_time(2 * MAX_AGE_S)

    assert log.upkeep.tick() is None
    assert log.offsets() == [1]


def test_upkeep_creates_nothing(redis_client: Client) -> None:
    """Without a log, or while another process of Redis is to begin an epoch, there is no time to report."""
    ensure_loaded(redis_client)
    log = EventLog(NAMESPACE, redis_client, 65536)

    assert (log.tick(), log.trim()) == (("", 0), ("", 0, 0))
    assert call(redis_client, "KEYS", "*") == []


def test_upkeep_needs_few_rights_and_says_which(full: Log, as_user: Callable[..., Client]) -> None:
    """Those that docs/operations/redis-users.md names; without one of them nothing has been written."""
    rights = ["+fcall", "+time", "+hmget", "+hset", "+xrange", "+xtrim", "+unlink"]
    for missing in ("+hset", "+xtrim", "+unlink", None):
        limited = as_user("~test:*", *(right for right in rights if right != missing))
        upkeep = LogMaintenance(NAMESPACE, EventLog(NAMESPACE, limited, 65536), TimeWatch())
        before = call(full.client, "HGETALL", head_key(NAMESPACE))
        if missing is None:
            assert upkeep.tick() == 0
        else:
            with pytest.raises(BusRefused, match=missing[1:].upper()):
                upkeep.tick()
            assert call(full.client, "HGETALL", head_key(NAMESPACE)) == before
