"""The usual event in the function library: fewer commands, and the same effect as the careful way."""

from collections.abc import Callable

import pytest

from headgate.errors import BusRefused, NotSerializable
from headgate.redis import keys
from headgate.redis.client import Client, call, call_many
from headgate.redis.connections import Command
from headgate.redis.functions import ensure_loaded
from tests.support.redis_server import OLDER_RIGHTS, PUBLISHER_RIGHTS, copy_keys, put_back
from tests.support.wall_clock import BEGIN_MS, WallClock

NAMESPACE = "orders"
KEY, HEAD = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE)
# `by` without anything in it gives the same event, by the careful way.
CAREFULLY = " "


def prepare(client: Client) -> None:
    """Load the library, and say which database it is, as every publisher and gateway does."""
    ensure_loaded(client)
    call(client, "HSET", HEAD, "database", 0)


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of a Redis in which this process has begun a log, with one event."""
    prepare(redis_client)
    append(redis_client, "first")
    return redis_client


def append(client: Client, event_id: str, *more: str, payload: str = "1", topic: str = "a") -> tuple[str, int, int]:
    epoch, offset, duplicate = call(client, "FCALL", "headgate_append", 1, KEY, topic, payload, event_id, *more).split()
    return epoch.decode(), int(offset), int(duplicate)


def offsets(client: Client) -> list[int]:
    return [int(entry_id.partition(b"-")[0]) for entry_id, _ in call(client, "XRANGE", KEY, "-", "+")]


def moves(client: Client) -> int:
    """Return how often the head was moved, forth or back, since the statistics were reset, as only a usual event does so."""
    return int(call(client, "INFO", "commandstats").get("cmdstat_hincrby", {}).get("calls", 0))


def refusals(client: Client) -> list[int]:
    """Return how often each kind of command was refused for want of a right."""
    return [int(dict(zip(entry[::2], entry[1::2], strict=True))[b"count"]) for entry in call(client, "ACL", "LOG")]


def test_both_ways_write_the_same(client: Client) -> None:
    """Entry, receipt, head and answer, but for the head's time; and each knows the other's ids."""
    append(client, "topic-is-known", topic="users.ada.mail")
    call(client, "CONFIG", "RESETSTAT")
    usual = append(client, "one", payload='{"x":1}', topic="users.ada.mail")
    assert moves(client) == 1
    careful = append(client, "two", CAREFULLY, payload='{"x":1}', topic="users.ada.mail")
    assert moves(client) == 1

    assert (usual[1:], careful) == ((3, 0), (usual[0], 4, 0))
    (_, one), (_, two) = call(client, "XRANGE", KEY, "3", "4")
    assert {**one, b"id": b"", b"time": b"", b"sum": b""} == {**two, b"id": b"", b"time": b"", b"sum": b""}
    assert int(two[b"sum"]) - int(one[b"sum"]) == len("users.ada.mail") + len('{"x":1}') + 128
    assert call(client, "HMGET", HEAD, "epoch", "offset") == [usual[0].encode(), b"4"]
    assert append(client, "one", CAREFULLY, topic="users.ada.mail") == (usual[0], 3, 1)
    assert append(client, "two", topic="users.ada.mail") == (usual[0], 4, 1)
    assert call(client, "HGET", HEAD, "offset") == b"4"


def test_the_strict_entry_takes_the_usual_way_as_well(client: Client) -> None:
    """After its look at the payload; and a refused one has moved nothing."""
    call(client, "CONFIG", "RESETSTAT")

    assert call(client, "FCALL", "headgate_publish", 1, KEY, "a", "{}", "one")[1:] == [2, 0]
    with pytest.raises(NotSerializable):
        call(client, "FCALL", "headgate_publish", 1, KEY, "a", "{", "two")
    assert moves(client) == 1
    assert call(client, "HGET", HEAD, "offset") == b"2"


def test_data_of_an_earlier_moment_is_noticed_by_the_next_event(client: Client) -> None:
    """An offset that this process has given is never given again in the same epoch."""
    copied = copy_keys(client)
    first, *_ = append(client, "lost")
    put_back(client, copied)

    epoch, offset, _ = append(client, "new")

    assert (epoch != first, offset) == (True, 2)
    assert offsets(client) == [1, 2]
    assert call(client, "HMGET", HEAD, "epoch", "offset") == [epoch.encode(), b"2"]


def test_another_epoch_at_the_same_offset_is_noticed(client: Client) -> None:
    """Data that another process has written may have come to the same offset by chance."""
    first, *_ = append(client, "two")
    call(client, "HSET", HEAD, "epoch", "0123456789abcdef")

    epoch, offset, _ = append(client, "new")

    assert epoch not in (first, "0123456789abcdef")
    assert offset == 3


def test_an_event_that_cannot_be_appended_leaves_the_head_and_no_id(client: Client) -> None:
    """The head was moved and the id remembered by then."""
    call(client, "RENAME", KEY, "aside")
    call(client, "SET", KEY, "no stream")
    before = copy_keys(client)
    call(client, "CONFIG", "RESETSTAT")

    with pytest.raises(BusRefused):
        append(client, "an-id")

    assert moves(client) == 2
    assert copy_keys(client) == before
    call(client, "RENAME", "aside", KEY)
    assert append(client, "an-id")[1:] == (2, 0)


@pytest.mark.parametrize("topic", ["a", "users.ada.mail"])
def test_a_channel_that_is_not_allowed_leaves_no_trace(client: Client, as_user: Callable[..., Client], topic: str) -> None:
    """It is asked for before anything is written; of a user's event, both channels."""
    append(client, "known-topic", topic=topic)
    before = copy_keys(client)
    limited = as_user(*PUBLISHER_RIGHTS, "resetchannels", f"&{keys.channel(NAMESPACE, 'users.ada.mail')}")

    with pytest.raises(BusRefused):
        append(limited, "an-id", topic=topic)

    assert copy_keys(client) == before


def test_rights_of_an_older_library_are_enough(client: Client, as_user: Callable[..., Client]) -> None:
    """A user without HGET or HINCRBY goes the careful way, and Redis does not log a refusal for each event."""
    call(client, "ACL", "LOG", "RESET")
    for others in ([], ["+hget"], ["+hincrby"]):
        limited = as_user(*OLDER_RIGHTS, *others)
        for number in range(5):
            assert append(limited, f"n{''.join(others)[1:]}{number}")[2] == 0
            assert append(client, f"m{''.join(others)[1:]}{number}")[2] == 0

    assert offsets(client) == list(range(1, 32))
    assert sum(refusals(client)) <= 3


@pytest.mark.parametrize(("max_events", "most"), [(999, 999), (1000, 1015)])
def test_a_log_of_many_events_is_trimmed_in_steps(client: Client, max_events: int, most: int) -> None:
    """It always holds as many as it may keep, and a few more if these are many."""
    call(client, "FCALL", "headgate_configure", 1, KEY, max_events, 600_000, 65536)
    commands: list[Command] = []
    for number in range(max_events + 50):
        commands += [("FCALL", "headgate_append", 1, KEY, "a", "1", f"n{number}"), ("XLEN", KEY)]
    lengths = call_many(client, commands)[1::2][max_events:]

    assert min(lengths) == max_events
    assert max(lengths) == most


def test_bytes_are_kept_within_their_limit_to_the_event(client: Client) -> None:
    """An event beyond it is left to the careful way, which reads the oldest ones."""
    call(client, "FCALL", "headgate_configure", 1, KEY, 10_000, 600_000, 2**17, 2**20)
    each = 100_000 + len("a") + 128

    for number in range(30):
        append(client, f"n{number}", payload='"' + "x" * 99_998 + '"')
        assert len(offsets(client)) * each <= 2**20 + each - 2

    assert len(offsets(client)) == 2**20 // each


def test_time_does_not_go_back_in_another_process(redis_client: Client) -> None:
    """The head has an older time than the newest event; its entry has it, and another process reads it there."""
    prepare(redis_client)
    clock = WallClock(redis_client)
    append(redis_client, "first")
    clock.advance(4_000)
    append(redis_client, "second")
    assert call(redis_client, "HGET", HEAD, "time") == b"%d" % BEGIN_MS
    assert call(redis_client, "FCALL_RO", "headgate_head", 1, KEY)[3] == BEGIN_MS + 4_000

    clock.advance(-3_000)
    clock.restart()
    assert call(redis_client, "FCALL_RO", "headgate_head", 1, KEY)[3] == BEGIN_MS + 4_000
    append(redis_client, "third")

    times = [int(fields[b"time"]) for _, fields in call(redis_client, "XRANGE", KEY, "-", "+")]
    assert times == [BEGIN_MS, BEGIN_MS + 4_000, BEGIN_MS + 4_000]


def test_an_id_of_the_hash_before_counts_for_300_s(redis_client: Client) -> None:
    """A hash of ids takes new ones for 600 s; the one before is read for the 300 s in which its ids can count."""
    prepare(redis_client)
    clock = WallClock(redis_client)
    append(redis_client, "zero")
    clock.advance(5_000)
    for _ in range(66):
        clock.advance(9_000)
        append(redis_client, f"at-{clock.ms}")
    last = append(redis_client, "last")
    for _ in range(33):
        clock.advance(9_000)
        append(redis_client, f"at-{clock.ms}")
        assert append(redis_client, "last") == (*last[:2], 1)
    clock.advance(4_000)
    assert append(redis_client, "last")[2] == 0
    assert len(call(redis_client, "KEYS", f"hg:{{{NAMESPACE}}}:id:*")) == 2


def test_events_that_are_too_old_go(redis_client: Client) -> None:
    """Usual events of an old enough log are none any more, and each lets the older ones go."""
    prepare(redis_client)
    clock = WallClock(redis_client)
    call(redis_client, "FCALL", "headgate_configure", 1, KEY, 10_000, 20_000, 65536)
    for number in range(1, 21):
        append(redis_client, f"n{number}")
        assert offsets(redis_client) == list(range(max(1, number - 5), number + 1))
        clock.advance(4_000)


def test_what_only_memory_has_is_saved_every_ten_seconds(redis_client: Client) -> None:
    """However many usual events there are."""
    prepare(redis_client)
    clock = WallClock(redis_client)
    append(redis_client, "first")
    for number in range(20):
        clock.advance(3_000)
        append(redis_client, f"n{number}")
        saved_ms, sum_ = map(int, call(redis_client, "HMGET", HEAD, "clock", "sum"))
        assert clock.ms - saved_ms < 10_000
        assert sum_ >= (number - 2) * 130


def test_an_event_is_no_older_than_the_time_of_the_log(redis_client: Client) -> None:
    """Where the head says a later time than the clock."""
    prepare(redis_client)
    clock = WallClock(redis_client)
    append(redis_client, "first")
    call(redis_client, "HSET", HEAD, "time", clock.ms + 5_000)
    call(redis_client, "FCALL_RO", "headgate_head", 1, KEY)

    append(redis_client, "second")

    assert int(call(redis_client, "XRANGE", KEY, "2", "2")[0][1][b"time"]) == clock.ms + 5_000
