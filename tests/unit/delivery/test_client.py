"""A client that cannot keep up: bounded, in order, and notified exactly of what it did not get."""

import json
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.delivery.state import Phase
from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import CURSOR, GapReason, Overflow, notice_packet
from tests.support.session_clock import turn
from tests.support.wired_client import NAMESPACE, WiredClient, event, publish

KIB = 1024
FRAMES, BYTES = 8, 64 * KIB
# One notice per reason may come on top of full lanes, and it has to keep its place among events.
NOTICES = len(GapReason)

MakeClient = Callable[..., WiredClient]


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    """Make clients that end with the test: `make_client({"#": Overflow.DROP})`."""
    made: list[WiredClient] = []

    def make(subscriptions: dict[str, Overflow], queue_frames: int = FRAMES, queue_bytes: int = BYTES) -> WiredClient:
        made.append(WiredClient(subscriptions, queue_frames=queue_frames, queue_bytes=queue_bytes))
        return made[-1]

    yield make
    for wired in made:
        wired.close()


def fill(wired: WiredClient, topic: str = "a", size: int = 2 * KIB, beyond: int = 0) -> int:
    """Publish until the queue is full, and `beyond` events more; return the last offset. The browser reads nothing."""
    offset = 0
    while not wired.client.discarded and not wired.client.conflated and wired.client.state.phase is Phase.LIVE:
        offset += 1
        publish(wired.matcher, [event(offset, topic, size)])
        assert offset < 1000
    for _ in range(beyond):
        offset += 1
        publish(wired.matcher, [event(offset, topic, size)])
    return offset


# Flowing -----------------------------------------------------------------------------------------------------------------


def test_a_warning_at_three_quarters_precedes_any_loss(make_client: MakeClient) -> None:
    """Once, with how much waits, and nothing discarded yet."""
    wired = make_client({"#": Overflow.DROP})
    last = fill(wired)
    wired.drain()

    warning, on, off = wired.notices("backpressure")
    assert (warning["state"], warning["discarded"]) == ("warning", 0)
    assert 0.75 * FRAMES <= warning["queued"] < FRAMES
    assert (on["state"], on["queued"]) == ("on", FRAMES)
    assert (off["state"], off["discarded"]) == ("off", 1)
    assert wired.offsets == list(range(1, last))


def test_pressure_ends_only_at_a_quarter_so_that_notices_do_not_flutter(make_client: MakeClient) -> None:
    """Hysteresis: room for one frame more is no relief."""
    wired = make_client({"#": Overflow.DROP}, queue_frames=64, queue_bytes=256 * KIB)
    fill(wired, size=3 * KIB)
    while wired.connection.queue.level > 0.25:
        assert wired.client.state.full
        wired.read(3 * KIB)

    wired.drain()
    assert [notice["state"] for notice in wired.notices("backpressure")] == ["warning", "on", "off"]


# drop --------------------------------------------------------------------------------------------------------------------


def test_dropped_events_are_told_in_one_gap_ahead_of_the_next_event(make_client: MakeClient) -> None:
    """How many, which offsets, how many bytes, why, for which patterns, and that they can still be had."""
    wired = make_client({"a.*": Overflow.DROP, "*.1": Overflow.DROP, "b": Overflow.DROP})
    last = fill(wired, "a.1", beyond=9)
    wired.drain()
    publish(wired.matcher, [event(last + 1, "a.1")])
    wired.drain()

    (gap,) = wired.notices("gap")
    first = last - 9
    assert gap == {
        "patterns": ["a.*", "*.1"],
        "from": first,
        "to": last,
        "count": 10,
        "bytes": sum(len(event(offset, "a.1", 2 * KIB).data) for offset in range(first, last + 1)),
        "reason": "overflow",
        "recoverable": True,
    }
    assert wired.offsets == [*range(1, first), last + 1]
    assert wired.received.index(["gap", gap]) < wired.received.index(["event", *wired.events[-1]])


def test_an_ephemeral_event_takes_no_room_from_the_log_and_leaves_no_gap(make_client: MakeClient) -> None:
    """From three quarters of a queue on the client goes without it, it is counted, and the client stays live."""
    wired = make_client({"#": Overflow.CATCH_UP})
    pointer = Event("a", json.dumps("x" * 2 * KIB).encode(), "p1", 1)
    while not wired.client.discarded:
        publish(wired.matcher, [pointer])
    publish(wired.matcher, [event(1), pointer, event(2)])
    wired.drain()

    assert (wired.client.discarded, wired.notices("gap"), wired.client.left_to_log) == (2, [], 0)
    assert [offset for offset in wired.offsets if offset] == [1, 2]
    assert [notice["state"] for notice in wired.notices("backpressure")] == ["warning", "off"]


def test_an_event_larger_than_the_whole_queue_passes_through_an_empty_one(make_client: MakeClient) -> None:
    """The payload limit has bounded it; a client must not be pressed by one event for ever."""
    wired = make_client({"#": Overflow.DROP}, queue_bytes=4 * KIB)
    publish(wired.matcher, [event(1, size=100 * KIB)])
    wired.drain()

    assert wired.offsets == [1]
    assert wired.notices("gap") == []


# latest ------------------------------------------------------------------------------------------------------------------


def test_latest_keeps_the_newest_of_each_topic_and_counts_the_others(make_client: MakeClient) -> None:
    """A dashboard wants the current value, not the history."""
    wired = make_client({"#": Overflow.LATEST})
    offset = 0
    for _ in range(50):
        for topic in ("a", "b", "c"):
            offset += 1
            publish(wired.matcher, [event(offset, topic, 2 * KIB)])
    wired.drain()

    newest = {topic: data[0] for topic, data, _ in wired.events}
    assert newest == {"a": 148, "b": 149, "c": 150}
    assert wired.offsets == sorted(wired.offsets, key=lambda offset: offset or 0)
    assert wired.client.conflated == 150 - len(wired.events)
    assert wired.notices("backpressure")[-1]["conflated"] == wired.client.conflated, "and it is told how many"
    assert wired.notices("gap") == []


def test_latest_of_more_topics_than_there_is_room_for_is_told_as_a_gap(make_client: MakeClient) -> None:
    """Bounded also when every event has a separate topic."""
    wired = make_client({"#": Overflow.LATEST})
    for offset in range(1, 101):
        publish(wired.matcher, [event(offset, f"topic.{offset}", 2 * KIB)])
    wired.drain()

    assert wired.client.discarded > 0
    assert sum(gap["count"] for gap in wired.notices("gap")) == wired.client.discarded
    assert wired.client.discarded + len(wired.events) == 100


# catch_up ----------------------------------------------------------------------------------------------------------------


def test_catch_up_makes_the_client_a_reader_from_the_first_event_that_found_no_room(make_client: MakeClient) -> None:
    """Queued frames still go out; live events pass it by from then on; the reader is asked when there is room."""
    wired = make_client({"#": Overflow.CATCH_UP})
    last = fill(wired, beyond=20)
    client = wired.client
    assert (client.state.phase, client.position) == (Phase.READING, last - 21)
    assert wired.reader.added == []
    wired.drain()

    assert wired.offsets == list(range(1, last - 20))
    assert set(wired.reader.added) == {client}
    assert wired.notices("gap") == [], "nothing is missing: it comes from the log"


# Missing -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    subscriptions=st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join),
        st.sampled_from(list(Overflow)),
        min_size=1,
        max_size=8,
    ),
    topic=st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3).map(".".join),
)
def test_the_strongest_policy_decides_for_any_subscriptions(subscriptions: dict[str, Overflow], topic: str) -> None:
    """Beside the plain definition of matching. Only subscriptions that match the event have a say."""
    policies = {policy for pattern, policy in subscriptions.items() if matches(pattern, topic)}
    assume(policies)
    wired = WiredClient(subscriptions, queue_frames=FRAMES, queue_bytes=BYTES)
    try:
        fill(wired, topic)
        client = wired.client
        assert (client.state.phase is Phase.READING) is (Overflow.CATCH_UP in policies)
        if client.state.phase is not Phase.READING:
            assert bool(client.conflated) is (Overflow.LATEST in policies)
            assert bool(client.discarded) is (Overflow.LATEST not in policies)
    finally:
        wired.close()


def test_the_newest_values_below_a_trimmed_range_come_ahead_of_the_word_of_it(make_client: MakeClient) -> None:
    """Its end moves the browser's position, so that they would count as seen; newer values come after it."""
    wired = make_client({"#": Overflow.LATEST})
    last = fill(wired, "a", beyond=3)
    wired.client.miss(last + 1, last + 5, GapReason.TRIMMED)
    publish(wired.matcher, [event(last + 6, "b")])
    wired.drain()
    told = [rest[0]["to"] if name == "gap" else rest[2]["offset"] for name, *rest in wired.received if name in ("gap", "event")]
    assert told[-3:] == [last, last + 5, last + 6]


def test_however_much_is_missing_what_waits_for_a_stopped_client_stays_bounded(make_client: MakeClient) -> None:
    """A log full of bad entries must not fill the memory with notices; their sum is reported."""
    wired = make_client({"#": Overflow.DROP})
    fill(wired, beyond=1)
    for offset in range(1000, 3000):
        wired.client.miss(offset, offset, GapReason.QUARANTINED)
    assert wired.connection.queue.frames <= FRAMES + NOTICES
    wired.drain()

    gaps = [gap for gap in wired.notices("gap") if gap["reason"] == "quarantined"]
    assert sum(gap["count"] for gap in gaps) == 2000
    assert (gaps[0]["from"], gaps[-1]["to"]) == (1000, 2999)


@pytest.mark.parametrize("policy", [Overflow.DROP, Overflow.LATEST])
def test_a_lost_log_is_told_to_a_client_whose_queue_is_full_between_the_old_log_and_the_new(
    make_client: MakeClient, policy: Overflow
) -> None:
    """Offsets start again, so an old one after the cursor, or a cursor without room, would hide every new event."""
    wired = make_client({"#": policy})
    cursor = message_frame(notice_packet(NAMESPACE, CURSOR, {"epoch": "f" * 16, "offset": 0}))
    last = fill(wired, beyond=5)
    wired.client.lose_log()
    wired.client.notify_log_lost(cursor)
    publish(wired.matcher, [event(1, "b"), event(2, "b")])
    wired.drain()
    publish(wired.matcher, [event(3, "b")])
    wired.drain()

    names = [name for name, *_ in wired.received]
    place = names.index("cursor")
    assert wired.received[place - 1][1]["reason"] == "log_lost"
    old = [rest[2]["offset"] for name, *rest in wired.received[:place] if name == "event"]
    new = [rest[2]["offset"] for name, *rest in wired.received[place:] if name == "event"]
    assert old == sorted(old)
    assert new[-1] == 3
    assert max(new) == 3
    if policy is Overflow.LATEST:
        assert old[-1] == last
    else:
        gaps = [gap for gap in wired.notices("gap") if gap["reason"] == "overflow"]
        assert [(gap["from"], gap["to"]) for gap in gaps] == [(last - 5, last), (1, 2)]


def test_a_closed_client_is_owed_nothing(make_client: MakeClient) -> None:
    """A pass under way during its end meets it without harm."""
    wired = make_client({"#": Overflow.DROP})
    fill(wired)
    wired.connection.end("gone", abort=True)
    before = wired.client.offered
    publish(wired.matcher, [event(1000)])
    wired.client.miss(1001, 1001, GapReason.TRIMMED)
    turn()

    assert wired.client.offered == before
    assert wired.connection.queue.frames == 0


@pytest.mark.parametrize("policy", [Overflow.DROP, Overflow.LATEST])
def test_many_subscriptions_cost_one_that_is_behind_one_walk_for_each_event(make_client: MakeClient, policy: Overflow) -> None:
    """Not a comparison with each of 128: that took more than a thousand calls of functions."""
    patterns = [f"a.{number}.#" for number in range(32)] + [f"a.b.{number}" for number in range(95)] + ["a.b.c"]
    wired = make_client(dict.fromkeys(patterns, policy))
    offset = fill(wired, "a.b.c")
    calls = 0

    def count(frame: FrameType, event_: str, argument: object) -> None:
        nonlocal calls
        calls += event_ == "call"

    sys.setprofile(count)
    try:
        publish(wired.matcher, [event(offset + 1, "a.b.c")])
    finally:
        sys.setprofile(None)
    assert calls <= 150


def test_notices_to_a_client_that_is_behind_follow_its_subscriptions(make_client: MakeClient) -> None:
    """Those that it gains and loses while its queue is full."""
    wired = make_client({"a.#": Overflow.DROP, "*.b": Overflow.DROP})
    offset = fill(wired, "a.b")
    assert wired.client.unsubscribe("a.#")
    wired.matcher.remove("a.#", wired.client)
    publish(wired.matcher, [event(offset + 1, "a.b")])
    wired.client.subscribe("a.*", Overflow.LATEST)
    wired.matcher.add("a.*", wired.client)
    publish(wired.matcher, [event(offset + 2, "a.b")])
    wired.drain()
    (gap,) = wired.notices("gap")
    assert (gap["to"], sorted(gap["patterns"])) == (offset + 1, ["*.b", "a.#"])
    assert wired.offsets[-1] == offset + 2
