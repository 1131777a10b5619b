"""The function library in a real Redis: what it accepts, appends, publishes, trims and refuses."""

import string
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.errors import (
    BusRefused,
    HeadgateError,
    InvalidEvent,
    InvalidRequest,
    InvalidTopic,
    NotSerializable,
    PayloadTooLarge,
    UnknownNamespace,
)
from headgate.events import event as event_module
from headgate.events.topic import check_topic
from headgate.redis import functions as function_library
from headgate.redis import keys
from headgate.redis.client import Client, call, open_client
from tests.support.redis_server import OLDER_RIGHTS, Listen, full_memory
from tests.support.wall_clock import WallClock

NAMESPACE = "orders"
KEY = keys.log_key(NAMESPACE)
HEAD = keys.head_key(NAMESPACE)
# The functions for one event. The second does not look at its payload.
ENTRIES = ("headgate_publish", "headgate_append")
# The fixture is shared by the examples of one property on purpose, as each example looks at its own answer only.
shared = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of an empty Redis with the library."""
    function_library.ensure_loaded(redis_client)
    return redis_client


@pytest.fixture
def clock(client: Client) -> WallClock:
    """The wall clock of that Redis."""
    return WallClock(client)


@pytest.fixture(params=ENTRIES)
def entry(request: pytest.FixtureRequest) -> str:
    """Each of the two functions for one event."""
    return str(request.param)


def publish(
    client: Client, topic: str | bytes = "a.b", payload: str | bytes = "1", *more: str, entry: str = "headgate_publish"
) -> tuple[str, int, int]:
    reply = call(client, "FCALL", entry, 1, KEY, topic, payload, *more)
    epoch, offset, duplicate = reply.split() if isinstance(reply, bytes) else reply
    return epoch.decode(), int(offset), int(duplicate)


def configure(client: Client, max_events: int = 10000, max_age_ms: int = 600000, max_payload_bytes: int = 65536) -> Any:
    return call(client, "FCALL", "headgate_configure", 1, KEY, max_events, max_age_ms, max_payload_bytes)


def head(client: Client) -> Any:
    return call(client, "FCALL_RO", "headgate_head", 1, KEY)


def offsets(client: Client) -> list[int]:
    return [int(entry_id.partition(b"-")[0]) for entry_id, _ in call(client, "XRANGE", KEY, "-", "+")]


# Appending ---------------------------------------------------------------------------------------------------------------


def test_keys_and_fields_are_those_of_the_key_table(client: Client) -> None:
    """The library builds the same names as redis/keys.py."""
    epoch, offset, _ = publish(client, "a.b", '{"x":1}', "first")

    expected = {KEY.encode(), HEAD.encode(), keys.epochs_key(NAMESPACE).encode(), b"hg:{orders}:id:1"}
    assert set(call(client, "KEYS", "*")) == expected
    [(entry_id, fields)] = call(client, "XRANGE", KEY, "-", "+")
    assert entry_id == b"%d-0" % offset
    assert (fields[b"topic"], fields[b"id"], fields[b"data"]) == (b"a.b", b"first", b'{"x":1}')
    assert call(client, "HMGET", HEAD, "epoch", "offset") == [epoch.encode(), b"1"]


def test_an_event_without_id_is_named_by_its_position(client: Client) -> None:
    """Without an id the event's id is epoch-offset, and nothing is remembered."""
    epoch, offset, _ = publish(client)

    [(_, fields)] = call(client, "XRANGE", KEY, "-", "+")
    assert fields[b"id"].decode() == f"{epoch}-{offset}"
    assert not call(client, "KEYS", f"hg:{{{NAMESPACE}}}:id:*")


@pytest.mark.parametrize(
    ("topic", "by"),
    [
        ("chat.mallory", ()),
        ("chat.mallory", ("mallory",)),
        ("orders.42.shipped", ("mallory",)),
        ("orders.42.shipped.x", ()),
        ("orders.42", ("shipped",)),
    ],
)
def test_an_id_that_somebody_else_took_first_swallows_nothing(client: Client, topic: str, by: tuple[str, ...]) -> None:
    """Neither on another topic, nor on the same one on behalf of a user."""
    publish(client, topic, "1", "order-42-shipped", *by)

    event = publish(client, "orders.42.shipped", "2", "order-42-shipped")

    assert event[1:] == (2, 0)
    assert publish(client, topic, "1", "order-42-shipped", *by)[1:] == (1, 1)
    assert publish(client, "orders.42.shipped", "2", "order-42-shipped")[1:] == (2, 1)


@pytest.mark.parametrize("by", ["", "a" * 65, "a/b", "a:b", "é"])
def test_a_publisher_of_another_form_is_refused(client: Client, entry: str, by: str) -> None:
    """A slash or a colon could make one key of two publishers'."""
    with pytest.raises(HeadgateError) as caught:
        publish(client, "a.b", "1", "same", by, entry=entry)

    assert (caught.value.code, caught.value.parts["field"]) == ("invalid_event", "by")
    assert offsets(client) == []


# Epochs --------------------------------------------------------------------------------------------------------------------


def test_a_head_that_is_behind_its_stream_starts_a_new_epoch(client: Client) -> None:
    """A head from an older copy of the data must not hand out offsets a second time."""
    first_epoch, _, _ = publish(client)
    for _ in range(4):
        publish(client)
    call(client, "HSET", HEAD, "offset", 2)

    epoch, offset, _ = publish(client)

    assert epoch != first_epoch
    assert (offset, offsets(client)) == (1, [1])
    assert call(client, "XRANGE", KEY, "-", "+")[0][1][b"id"].decode() == f"{epoch}-1"


@pytest.mark.parametrize("damage", [("offset", "many"), ("offset", "-5"), ("epoch", "short"), ("offset", "9" * 30)])
def test_a_damaged_head_starts_a_new_epoch(client: Client, damage: tuple[str, str]) -> None:
    """An invalid head is not believed."""
    first_epoch, _, _ = publish(client)
    call(client, "HSET", HEAD, *damage)

    epoch, offset, _ = publish(client)

    assert epoch != first_epoch
    assert offset == 1


# Retention -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age_ms", "kept"), [(8_000, [1, 2, 3, 4]), (8_001, [4])])
def test_the_log_is_trimmed_by_age(client: Client, clock: WallClock, age_ms: int, kept: list[int]) -> None:
    """Events older than the age limit go when newer ones come; exactly the age limit is not too old."""
    configure(client, max_age_ms=8_000)
    for _ in range(3):
        publish(client)
    clock.advance(age_ms)

    publish(client)

    assert offsets(client) == kept


def test_a_long_log_is_trimmed_by_age_now_and_then(client: Client, clock: WallClock) -> None:
    """To read the oldest event for each new one took half as long again as to append it. It never holds too old an event."""

    def reads() -> int:
        found: int = call(client, "INFO", "commandstats")["cmdstat_xrange"]["calls"]
        return found

    configure(client, max_events=100_000, max_age_ms=320_000)
    for _ in range(40):
        for _ in range(80):
            publish(client)
        clock.advance(8_000)
    held, before = offsets(client), reads()
    for _ in range(40):
        clock.advance(100)
        publish(client)
    kept = offsets(client)
    assert held == list(range(1, 3201))
    assert kept == list(range(81, 3241))
    assert reads() - before <= 40


def test_a_long_idle_log_is_worked_off_in_small_steps(client: Client, clock: WallClock) -> None:
    """One publish after a pause does not pay for the whole old log, but for a thousand events."""
    configure(client, max_age_ms=8_000)
    for _ in range(1200):
        publish(client)
    clock.advance(8_001)

    publish(client)
    after_one = offsets(client)
    publish(client)

    assert after_one == list(range(1001, 1202))
    assert offsets(client) == [1201, 1202]


def test_a_lowered_retention_is_reached_in_bounded_steps(client: Client) -> None:
    """Going from 1,000 events to 10 takes several publishes, and ends exactly."""
    for _ in range(1000):
        publish(client)
    configure(client, max_events=10)

    publish(client)
    after_one = len(offsets(client))
    for _ in range(19):
        publish(client)

    assert after_one > 800
    assert offsets(client) == list(range(1011, 1021))


def test_configure_gives_a_new_namespace_its_epoch_and_keeps_an_old_one(client: Client) -> None:
    """A gateway that starts always gets an epoch, and its start disturbs no log."""
    epoch, offset, first, time_ms, *_ = configure(client)
    assert (len(epoch), offset, first) == (16, 0, 1)
    assert publish(client)[:2] == (epoch.decode(), 1)

    assert configure(client, max_events=5)[:3] == [epoch, 1, 1]
    assert head(client)[3] >= time_ms


@pytest.mark.parametrize(
    "arguments",
    [
        *((0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1048577), (10_000_001, 1, 1), ("ten", 1, 1)),
        *((1, 1, 1, max_bytes) for max_bytes in (0, 2**20 - 1, 10**15)),
    ],
)
def test_configure_refuses_limits_out_of_bounds(client: Client, arguments: tuple[Any, ...]) -> None:
    """An unbounded log cannot be configured."""
    with pytest.raises(InvalidRequest, match="max_bytes from 1048576"):
        call(client, "FCALL", "headgate_configure", 1, KEY, *arguments)
    assert not call(client, "KEYS", "*")


def test_head_creates_nothing(client: Client) -> None:
    """Looking at an absent log leaves no trace and says so."""
    assert head(client)[:5] == [b"", 0, 1, 0, function_library.VERSION]
    assert not call(client, "KEYS", "*")


# Refusals ------------------------------------------------------------------------------------------------------------------


def accepts(check: Callable[[str], object], text: str) -> bool:
    try:
        check(text)
    except (InvalidTopic, InvalidEvent):
        return False
    return True


@shared
@given(
    st.text(alphabet=string.ascii_letters + "09_-..*# é\n/{}:", max_size=30)
    | st.text(alphabet="aZ0_-...#", max_size=12).map("users.".__add__)
)
@example("users.a." + "x" * 247)
@example("users.a." + "x" * 248)
@example("a.b.c.d.e.f.g.h")
@example("a.b.c.d.e.f.g.h.i")
@example("x" * 255)
@example("x" * 256)
@example("a\nhg1 0123456789abcdef 9 1 x\n1")
def test_topics_are_accepted_exactly_when_topic_accepts_them(client: Client, entry: str, topic: str) -> None:
    """Two implementations, one grammar, the second time as the first, as a topic comes before the message on some channels."""
    for _ in range(2):
        assert accepts(lambda text: publish(client, text, entry=entry), topic) == accepts(check_topic, topic)


@shared
@given(st.text(alphabet="aZ09_.:~- é\n/", max_size=10))
@example("x" * 128)
@example("x" * 129)
def test_ids_are_accepted_exactly_when_event_accepts_them(client: Client, entry: str, event_id: str) -> None:
    """An id stands in the header of the message."""
    expected = accepts(event_module.check_event_id, event_id)
    assert accepts(lambda text: publish(client, "a", "1", text, entry=entry), event_id) == expected


BAD_JSON = [
    b"", b"nope", b"{", b'{"a":1,}', b"[1] x", b"NaN", b"[Infinity]", b"-Infinity", b"01", b"0x10", b'"\xff"',
    b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b'"a\nb"', b'"\x01"', b'"\\ud800"', b'"a\x00b"',
    b"[" * 65 + b"]" * 65,
]  # fmt: skip


@pytest.mark.parametrize("payload", BAD_JSON, ids=ascii)
def test_payloads_that_are_not_json_are_refused(client: Client, payload: bytes) -> None:
    """The gateway would have to set it aside, with a gap for every client."""
    with pytest.raises(NotSerializable):
        event_module.check_json(payload)
    with pytest.raises(NotSerializable):
        publish(client, "a", payload)
    assert offsets(client) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@shared
@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_every_json_text_is_accepted_and_kept_as_it_is(client: Client, value: Any, indent: int | str | None) -> None:
    """No valid event is turned away, and its bytes are not touched."""
    import json

    payload = json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass")

    _, offset, _ = publish(client, "a", payload)

    assert call(client, "XRANGE", KEY, f"{offset}-0", f"{offset}-0")[0][1][b"data"] == payload


@pytest.mark.parametrize(("limit", "size"), [(100, 100), (65536, 65536), (1048576, 1048576)])
def test_the_payload_limit_is_exact(client: Client, entry: str, limit: int, size: int) -> None:
    """At the limit accepted, one byte above refused with size, limit and where; bytes of UTF-8 count."""
    configure(client, max_payload_bytes=limit)
    payload = '"é' + "x" * (size - 4) + '"'
    publish(client, "a", payload, entry=entry)

    with pytest.raises(PayloadTooLarge) as caught:
        publish(client, "a", payload[:-1] + 'x"', entry=entry)

    assert caught.value.parts == {"size": size + 1, "limit": limit, "where": "bus"}
    assert offsets(client) == [1]


@pytest.mark.parametrize("key", ["log", "hg:{}:log", "hg:{orders}:head", "hg:{a b}:log", "hg:{" + "n" * 65 + "}:log"])
def test_other_keys_are_refused(client: Client, entry: str, key: str) -> None:
    """The library writes nowhere but in a namespace."""
    with pytest.raises(UnknownNamespace):
        call(client, "FCALL", entry, 1, key, "a", "1")
    assert not call(client, "KEYS", "*")


@pytest.mark.parametrize("words", [("a",), ("a", "1", "id", "by", "more")])
def test_a_wrong_number_of_arguments_is_refused(client: Client, entry: str, words: tuple[str, ...]) -> None:
    """A publisher in another language gets a clear error too."""
    with pytest.raises(InvalidRequest, match="topic, payload"):
        call(client, "FCALL", entry, 1, KEY, *words)
    assert offsets(client) == []


def test_without_memory_nothing_is_appended_and_nothing_published(client: Client, listen: Listen) -> None:
    """maxmemory: the publisher gets an error, no subscriber sees an event that is not in the log."""
    call(client, "HSET", keys.head_key(NAMESPACE), "database", 0)
    publish(client)
    link = listen(keys.channel(NAMESPACE, "a.b"))
    with full_memory(client), pytest.raises(BusRefused, match="out of memory"):
        publish(client)
    # The answer to a PING comes after whatever was published before it.
    link.send(("PING", "fence"))

    assert link.read() == [[b"pong", b"fence"]]
    assert head(client)[1] == 1


ALLOWED = " ".join(OLDER_RIGHTS[1:])
FULL = f"~hg:* &hg:* -@all {ALLOWED}"


def without(rules: str, rights: str) -> str:
    """Return the rules of a user without these rights."""
    return " ".join(rule for rule in rules.split() if rule not in rights.split())


LESS = [
    *(f"~hg:* -@all {ALLOWED}", f"&hg:* ~{KEY} -@all {ALLOWED}", f"&hg:* ~{KEY} %R~{HEAD} -@all {ALLOWED}"),
    *(without(FULL, right) for right in ("+xadd", "+hset", "+publish")),
    *(without(f"{FULL} +hget +hincrby", rights) for rights in ("+xadd", "+hset +hincrby", "+publish")),
]


@pytest.mark.parametrize(
    ("entry", "rules"),
    [(entry, rules) for entry in ENTRIES for rules in LESS]
    + [("headgate_publish", without(FULL, right)) for right in ("+xinfo", "+xrange", "+unlink")],
)
def test_a_missing_right_refuses_before_the_first_write(
    client: Client, as_user: Callable[..., Client], entry: str, rules: str
) -> None:
    """Half a step would lose an event, hand out an offset twice, or leave an id that makes the next one a repetition."""
    limited = as_user("resetkeys", "resetchannels", *rules.split())
    call(client, "HSET", HEAD, "database", 0)
    epoch, _, _ = publish(client)
    before = call(client, "HGETALL", HEAD)

    with pytest.raises(BusRefused):
        publish(limited, "a", "1", "an-id", entry=entry)

    assert (call(client, "HGETALL", HEAD), offsets(client)) == (before, [1])
    assert publish(client, "a", "1", "an-id") == (epoch, 2, 0)


def test_hostile_text_in_an_error_is_short_and_printable(client: Client) -> None:
    """A refused topic cannot put a megabyte or an escape sequence into a log."""
    with pytest.raises(HeadgateError) as caught:
        publish(client, b"\x1b[2J\xff" + b"x" * 200)

    assert len(caught.value.message) < 300
    assert caught.value.message.isprintable()


# Loading -------------------------------------------------------------------------------------------------------------------


def test_an_older_library_is_replaced_and_a_newer_one_is_not(redis_client: Client) -> None:
    """Two versions that share a Redis settle on the newer one."""

    def load(version: int) -> None:
        source = function_library.SOURCE.replace(f"VERSION = {function_library.VERSION}\n", f"VERSION = {version}\n")
        call(redis_client, "FUNCTION", "LOAD", "REPLACE", source)

    load(0)
    assert function_library.ensure_loaded(redis_client) == function_library.VERSION
    load(function_library.VERSION + 1)
    assert function_library.ensure_loaded(redis_client) == function_library.VERSION + 1
    assert function_library.loaded_version(redis_client) == function_library.VERSION + 1


def test_processes_that_start_together_load_the_library_once(redis_client: Client, redis_url: str) -> None:
    """A reloaded library says that it is another server, and every gateway would connect again."""
    for _ in range(20):
        call(redis_client, "FUNCTION", "FLUSH")
        together = Barrier(8)

        def load_and_look(client: Client, together: Barrier = together) -> bytes:
            with closing(client):
                call(client, "PING")
                together.wait()
                function_library.ensure_loaded(client)
                token: bytes = head(client)[6]
                return token

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(load_and_look, [open_client(redis_url) for _ in range(8)]))) == 1


def test_a_user_who_may_not_load_is_told_how_to_go_on(as_user: Callable[..., Client]) -> None:
    """The error names the right and the command."""
    with pytest.raises(BusRefused, match=r"\+function\|load.*headgate check --load"):
        function_library.ensure_loaded(as_user(*FULL.split(), "+fcall_ro"))


OTHER = "#!lua name=other\nredis.register_function('other_decode', function(_, args) return #cjson.decode(args[1]) end)"


def test_the_library_does_not_change_json_for_others(client: Client) -> None:
    """Its strict JSON is a separate instance, and another library's cjson keeps the server's defaults."""
    publish(client)
    call(client, "FUNCTION", "LOAD", "REPLACE", OTHER)

    assert call(client, "FCALL", "other_decode", 0, "[" * 100 + "]" * 100) == 1


def test_a_log_has_channels_once_somebody_has_said_its_database(client: Client) -> None:
    """One that an append has begun has none. An older gateway names none, listens on those of 0, and moves no log."""
    publish(client)
    assert call(client, "HGET", HEAD, "database") == b"-"

    def configure(*more: str | int) -> bytes:
        found: bytes = call(client, "FCALL", "headgate_configure", 1, KEY, 1000, 60000, 65536, *more)[8]
        return found

    assert [configure(), configure("", "", 3), configure(), configure("", "", 0)] == [b"0", b"3", b"3", b"0"]
    for wrong in ("x", "-1", "1.5", ""):
        with pytest.raises(HeadgateError, match="a database, and users"):
            configure("", "", wrong)
    with pytest.raises(HeadgateError, match="sharded"):
        configure("", "shard", 0)


# Small writes in a full Redis ----------------------------------------------------------------------------------------------

SET_AND_END = [("HSET", "hg:x", "a", 1), ("EXPIRE", "hg:x", 60), ("HGETALL", "hg:x")]


def test_a_full_redis_takes_a_small_write_and_the_end_of_its_key(client: Client) -> None:
    """The other replies are those of the first attempt."""
    with full_memory(client):
        assert function_library.write_all(client, SET_AND_END) == [1, 0, {}]
        assert function_library.write_all(client, [("ZADD", "hg:y", 1, "a"), ("RPUSH", "hg:z", "a", "b")]) == [1, 2]
    assert call(client, "HGETALL", "hg:x") == {b"a": b"1"}
    assert call(client, "TTL", "hg:x") > 0


@pytest.mark.parametrize(
    "words", [(1, "hg:x", "SET", "1"), (1, "hg:x"), (0, "HSET", "a", "1"), (2, "hg:x", "hg:y", "HSET", "a", "1")]
)
def test_the_function_for_small_writes_takes_no_other_command(client: Client, words: tuple[str | int, ...]) -> None:
    """Nor another number of keys."""
    with pytest.raises(InvalidRequest, match="one key, and HSET, RPUSH or ZADD"):
        call(client, "FCALL", "headgate_write", *words)
    assert call(client, "KEYS", "*") == []


def test_a_full_redis_with_an_older_library_refuses_for_want_of_memory(client: Client) -> None:
    """It cannot load a newer one, and says why; once there is room, the write loads it."""
    older = function_library.SOURCE.replace("register('headgate_write'", "register('headgate_other'")
    older = older.replace(f"VERSION = {function_library.VERSION}\n", f"VERSION = {function_library.VERSION - 1}\n")
    call(client, "FUNCTION", "LOAD", "REPLACE", older)
    with full_memory(client), pytest.raises(BusRefused, match="out of memory"):
        function_library.write_all(client, SET_AND_END)
    assert function_library.write_all(client, SET_AND_END) == [1, 1, {b"a": b"1"}]


def test_a_user_who_may_not_call_the_function_hears_of_the_memory(client: Client, as_user: Callable[..., Client]) -> None:
    """It is what keeps that user from writing."""
    limited = as_user("-@all", "+hset", "+expire", "+hgetall")
    with full_memory(client), pytest.raises(BusRefused, match="out of memory"):
        function_library.write_all(limited, SET_AND_END)
