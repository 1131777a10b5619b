"""The function for a batch in a real Redis: each event as by `headgate_append`, and one look, write and answer for all."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.errors import BusRefused, HeadgateError, InvalidRequest, InvalidTopic
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import SOURCE, ensure_loaded
from headgate.services.log_writer import BATCH, in_batches
from headgate.services.publisher import Publisher
from tests.support.redis_server import PUBLISHER_RIGHTS, Listen

NAMESPACE = "orders"
KEY, HEAD = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE)
IDS = f"hg:{{{NAMESPACE}}}:id:"
Event = tuple[str, str, str, str]
shared = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b.c", "users.ada.mail", "a..b"]),
        st.sampled_from(["1", '"x"', "1" * 30]),
        st.sampled_from(["", "", "one", "two", "three", "no/id"]),
        st.sampled_from(["", "", "ann", "no/name"]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of an empty Redis with the library, and a log that takes 20 bytes."""
    ensure_loaded(redis_client)
    call(redis_client, "FCALL", "headgate_configure", 1, KEY, 100, 600_000, 20)
    return redis_client


def replies_to(client: Client, events: Sequence[Event], key: str = KEY) -> list[Any]:
    """Append a batch; return (epoch, offset, whether it was known) or the error of each event."""
    (batch,) = in_batches([("FCALL", "headgate_append", 1, key, *event) for event in events])
    return batch.replies(call(client, *batch.command))


def append_batch(client: Client, events: Sequence[Event], key: str = KEY) -> list[Any]:
    """Append a batch; return (offset, whether it was known) or the error of each event."""
    return [reply if isinstance(reply, HeadgateError) else reply[1:] for reply in replies_to(client, events, key)]


def append_each(client: Client, events: Sequence[Event], key: str) -> list[Any]:
    """Append the same events one by one."""
    outcomes: list[Any] = []
    for topic, payload, event_id, by in events:
        more = [event_id, by] if by and event_id else [event_id] if event_id else []
        try:
            _, offset, known = call(client, "FCALL", "headgate_append", 1, key, topic, payload, *more).split()
            outcomes.append((int(offset), int(known)))
        except HeadgateError as error:
            outcomes.append(error)
    return outcomes


def entries(client: Client, key: str = KEY) -> list[tuple[bytes, bytes, bytes]]:
    return [(entry_id, fields[b"topic"], fields[b"data"]) for entry_id, fields in call(client, "XRANGE", key, "-", "+")]


def forget(client: Client) -> None:
    """Make the process forget its writes, like another process."""
    call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)


@shared
@given(st.lists(EVENTS, min_size=1, max_size=3), st.booleans())
def test_a_batch_does_what_its_events_do_one_by_one(client: Client, rounds: list[list[Event]], forgets: bool) -> None:
    """The same receipts, errors, entries, ids and numbers of the head, in a new log, a continued one, or a new epoch."""
    call(client, "FLUSHALL")
    namespaces = ("one", "other")
    keys_ = [keys.log_key(name) for name in namespaces]
    for key in keys_:
        call(client, "FCALL", "headgate_configure", 1, key, 6, 600_000, 20)
    for events in rounds:
        # `by` without an id says nothing, and the function for one event has no place for it.
        events = [(topic, payload, event_id, by if event_id else "") for topic, payload, event_id, by in events]
        if forgets:
            forget(client)

        together = append_batch(client, events, keys_[0])
        apart = append_each(client, events, keys_[1])

        assert [repr(outcome) for outcome in together] == [repr(outcome) for outcome in apart]
        assert entries(client, keys_[0]) == entries(client, keys_[1])
        heads = [call(client, "HMGET", keys.head_key(name), "offset", "max_events", "ids", "nth") for name in namespaces]
        ids = [sorted(call(client, "HGETALL", f"hg:{{{name}}}:id:1")) for name in namespaces]
        assert (heads[0], ids[0]) == (heads[1], ids[1])


def test_listeners_hear_the_events_of_a_batch_in_order(client: Client, listen: Listen) -> None:
    """Each with its place in the log, on the channel of its topic, and on that of its user."""
    call(client, "HSET", keys.head_key(NAMESPACE), "database", 0)
    link = listen(keys.channel(NAMESPACE, "a"), keys.channel(NAMESPACE, "b"), keys.user_channel(NAMESPACE, "ada"))
    heard: list[Any] = []
    append_batch(
        client, [("a", "1", "x", ""), ("b", "2", "", ""), ("a..", "3", "", ""), ("a", "4", "x", ""), ("users.ada.m", "5", "", "")]
    )
    append_batch(client, [("a", "6", "", "")])

    while len(heard) < 4:
        heard += link.read()
    said = [
        (bytes(channel).rpartition(b"}")[2], bytes(message).split(b" ")[2], bytes(message)[-2:]) for _, channel, message in heard
    ]
    assert said == [(b":a", b"1", b"\n1"), (b":b", b"2", b"\n2"), (b"/users.ada", b"3", b"\n5"), (b":a", b"4", b"\n6")]


def test_a_batch_reads_and_writes_the_head_the_time_and_the_ids_once(client: Client) -> None:
    """The commands that events share are one each; every event has one XADD and one PUBLISH."""
    append_batch(client, [("a", "1", "first", ""), ("a", "1", "second", "")])
    call(client, "CONFIG", "RESETSTAT")

    append_batch(client, [("a", "1", f"id-{number}", "") for number in range(50)])

    stats = call(client, "INFO", "commandstats")
    counts = {name.removeprefix("cmdstat_"): said["calls"] for name, said in stats.items()}
    counts.pop("config|resetstat", None)
    assert counts == {"fcall": 1, "time": 1, "hmget": 2, "hset": 2, "xadd": 50, "publish": 50}


def test_a_batch_of_which_every_id_is_known_writes_one_receipt_again(client: Client) -> None:
    """So that a publisher that waits for replicas or the disk after it waits for those events; nothing else changes."""
    events = [("a", "1", f"id-{number}", "") for number in range(3)]
    append_batch(client, events)
    before = (call(client, "HGETALL", HEAD), call(client, "HGETALL", f"{IDS}1"), entries(client))
    call(client, "CONFIG", "RESETSTAT")

    assert append_batch(client, events) == [(1, 1), (2, 1), (3, 1)]

    assert call(client, "INFO", "commandstats")["cmdstat_hset"]["calls"] == 1
    assert (call(client, "HGETALL", HEAD), call(client, "HGETALL", f"{IDS}1"), entries(client)) == before


def test_a_batch_that_begins_an_epoch_goes_on_in_it(client: Client) -> None:
    """Known ids and refused events ahead of the first new one begin none; all after it are of the new one."""
    (old,) = {reply[0] for reply in replies_to(client, [("a", "1", "known", "")])}
    forget(client)
    call(client, "CONFIG", "RESETSTAT")

    known, refused, *new = replies_to(client, [("a", "1", "known", ""), ("a b", "1", "", ""), *[("a", "2", "", "")] * 3])

    assert known == (old, 1, 1)
    assert isinstance(refused, InvalidTopic)
    (epoch,) = {reply[0] for reply in new}
    assert epoch != old
    assert [reply[1:] for reply in new] == [(2, 0), (3, 0), (4, 0)]
    assert call(client, "HGETALL", keys.epochs_key(NAMESPACE)) == {old: b"1 0", epoch: b"2 1"}


def test_what_is_no_batch_is_refused_whole(client: Client) -> None:
    """Another number of arguments, none, or too many events, and nothing is written."""
    for words in ((), ("a", "1", ""), ("a", "1", "", "", "b"), ("a", "1", "", "") * 257):
        with pytest.raises(InvalidRequest):
            call(client, "FCALL", BATCH, 1, KEY, *words)
    assert entries(client) == []
    assert len(append_batch(client, [("a", "1", "", "")] * 100)) == 100


@pytest.mark.parametrize("missing", ["+xadd", "+hset", "+publish", "+hmget"])
def test_a_right_that_is_missing_leaves_no_trace(client: Client, as_user: Callable[..., Client], missing: str) -> None:
    """Neither events nor ids, in a log that goes on and in one that would begin an epoch."""
    append_batch(client, [("a", "1", "first", "")])
    before = (call(client, "HGETALL", HEAD), call(client, "HGETALL", f"{IDS}1"), entries(client))
    limited = as_user(*[right for right in PUBLISHER_RIGHTS if right != missing])

    for _ in range(2):
        try:
            outcomes = append_batch(limited, [("a", "2", "second", ""), ("b", "3", "", "")])
        except BusRefused as error:
            outcomes = [error, error]
        assert all(isinstance(outcome, BusRefused) for outcome in outcomes)
        assert (call(client, "HGETALL", HEAD), call(client, "HGETALL", f"{IDS}1"), entries(client)) == before
        forget(client)

    assert append_batch(client, [("a", "2", "second", "")]) == [(2, 0)]


def test_a_channel_that_is_forbidden_refuses_its_events_alone(client: Client, as_user: Callable[..., Client]) -> None:
    """The rest of the batch lands."""
    limited = as_user(*PUBLISHER_RIGHTS, "resetchannels", f"&{keys.channel(NAMESPACE, 'a')}")

    first, refused, second = append_batch(limited, [("a", "1", "", ""), ("b", "2", "", ""), ("a", "3", "", "")])

    assert (first, second) == ((1, 0), (2, 0))
    assert isinstance(refused, BusRefused)


def test_a_user_who_may_append_each_event_and_no_batch_publishes_one_by_one(
    client: Client, as_user: Callable[..., Client], limited_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The publisher finds out once, and its log names the missing right."""
    rights = [right for right in PUBLISHER_RIGHTS if right != "+fcall"]
    limited = as_user(*rights, "+fcall|headgate_append", "+fcall_ro", "+zcard", "+zrange")
    with Publisher(limited_url, namespace=NAMESPACE) as publisher:
        call(client, "CONFIG", "RESETSTAT")
        for _ in range(2):
            assert len(publisher.publish_many([("a", 1), ("a", 2)])) == 2
        publisher.publish("a", 3)

    limited.close()
    assert len(entries(client)) == 5
    assert call(client, "INFO", "commandstats")["cmdstat_fcall"]["calls"] == 5
    said = [record.getMessage() for record in caplog.records if BATCH in record.getMessage()]
    assert len(said) == 1
    assert f"allow +fcall|{BATCH}" in said[0]


def test_ids_count_from_one_hash_of_ids_to_the_next(client: Client) -> None:
    """A batch looks into the newest and the one before, and begins a new one when it is time."""
    append_batch(client, [("a", "1", "old", "")])
    call(client, "HSET", HEAD, "ids_time", 1)
    forget(client)  # the next event begins an epoch, and reads when ids began
    outcomes = [append_batch(client, [("a", "1", each, "") for each in ids]) for ids in (("x",), ("y", "z"), ("x", "y", "w"))]

    assert outcomes == [[(2, 0)], [(3, 0), (4, 0)], [(2, 1), (3, 1), (5, 0)]]
