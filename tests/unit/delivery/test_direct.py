"""Direct writes: the C writes the same bytes as Python, and it leaves everything else.

The histories of test_delivery_histories.py and ../bus/test_feed.py live through it too, with half of the events.
"""

import errno
import json
import os
import re
import shutil
import socket
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery import direct, fanout
from headgate.delivery.bus.feed import Front
from headgate.delivery.bus.messages import Messages
from headgate.delivery.direct import DirectWriter, Run, direct_writer
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.state import Phase
from headgate.delivery.tally import QUIET_EVENTS, Tallies
from headgate.events.event import Event, decode_message
from headgate.events.wire.frames import event_frame
from headgate.installation import PURE, build_in_use, native
from headgate.redis.keys import feed_channel, user_channel
from tests.support.direct_events import Wire, WrittenTo, events_in, message_of
from tests.support.model_delivery import World

NAMESPACE, EPOCH = "n", "00000000000000a1"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

built = pytest.mark.skipif(build_in_use() == "python", reason="the direct writes in C are not built here, or not wanted")


def event(offset: int | None = 1, topic: str = "a.b", data: bytes = b"{}", **others: Any) -> Event:
    """Return an event of the epoch."""
    return Event(topic, data, "id-1", 1_700_000_000_000, EPOCH, offset, **others)


class Room:
    """A writer and its matcher, and where the feed stands."""

    def __init__(self, max_payload_bytes: int = 65536, tally_every: int = 0) -> None:
        self.matcher: SubscriptionMatcher[Any] = SubscriptionMatcher()
        self.tallies = Tallies(tally_every)
        self.tallies.left_out(QUIET_EVENTS + 1, 0)  # a busy gateway
        writer = direct_writer(NAMESPACE, self.matcher, max_payload_bytes, self.tallies)
        assert writer is not None
        self.writer: DirectWriter = writer
        self.front = Front(EPOCH, 0, 0, consecutive=True)

    def listen(self, pattern: str, wire: Any = None, *, ready: bool = True, phase: Phase = Phase.LIVE) -> WrittenTo:
        """Add a client that listens to a pattern."""
        client = WrittenTo(wire or Wire(), ready=ready, phase=phase)
        self.matcher.add(pattern, client)
        return client

    def take(self, *replies: Any) -> Run:
        """Offer events, or replies as they are."""
        return self.writer.take(
            [message_of(NAMESPACE, each) if isinstance(each, Event) else each for each in replies], self.front
        )


@pytest.fixture
def room() -> Room:
    return Room()


def test_they_are_built_where_there_is_a_compiler() -> None:
    """Else every test of this file would be left out unseen. An installed wheel is pure, so this looks at checkouts only."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    has_headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    is_checkout = (Path(direct.__file__).parents[1] / "_native.c").exists()
    if is_checkout and shutil.which(compiler) and has_headers and not os.environ.get(PURE):
        assert build_in_use() != "python"


def test_the_numbers_that_the_c_repeats_are_those_of_the_modules() -> None:
    """A bound changed in one place only would let one way take events that the other refuses."""
    sources = list(Path(direct.__file__).parents[1].glob("_native*.[ch]"))
    if not sources:
        pytest.skip("the sources are not in a wheel")
    text = "".join(source.read_text() for source in sources)
    constants = dict(re.findall(r"^    (MAX_\w+) = (\d+)", text, re.MULTILINE))
    from headgate.delivery.bus import feed
    from headgate.events import event as events
    from headgate.events import topic as topics

    for name, value in (
        ("MAX_AUDIENCE", fanout._FEW_CLIENTS),
        ("MAX_EVENTS", feed.MAX_EVENTS),
        ("MAX_LEAP", feed.MAX_LEAP),
        ("MAX_RUN_BYTES", fanout.MAX_SLICE_BYTES),
        ("MAX_HEADER_BYTES", events.MAX_HEADER_BYTES),
        ("MAX_ID_LENGTH", events.MAX_ID_LENGTH),
        ("MAX_DEPTH", events.MAX_DEPTH),
        ("MAX_TOPIC_BYTES", topics.MAX_TOPIC_BYTES),
    ):
        assert int(constants[name]) == value, name


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**14), 10**14) | st.floats(-1e9, 1e9, allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


# Taken events -------------------------------------------------------------------------------------------------------------


@built
@pytest.mark.parametrize("size", [2, 70, 80, 90, 125, 126, 127, 65_400, 65_535, 65_536, 70_000])
def test_a_frame_is_what_python_makes_of_the_event(size: int) -> None:
    """At each form of the length (RFC 6455 section 5.2)."""
    room = Room(max_payload_bytes=100_000)
    client = room.listen("a.*")
    sent = event(data=b'"' + b"x" * (size - 2) + b'"')
    run = room.take(sent)
    assert (run.taken, run.matched, run.routed, run.writes, run.left) == (1, 1, 1, 1, [])
    assert client.connection.wire.data == event_frame(NAMESPACE.encode(), sent).wire
    assert (client.direct, room.front.reached) == (1, 1)


@built
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a.b", "a.c", "users.7.mail", "d"]),
            _json.map(lambda value: json.dumps(value).encode()),
            st.from_regex(r"[A-Za-z0-9_.:~-]{1,128}", fullmatch=True),
            st.integers(1, 10**16 - 1),
        ),
        max_size=8,
    )
)
def test_whatever_it_takes_is_what_python_decodes_and_writes(drawn: list[tuple[str, bytes, str, int]]) -> None:
    """One client that gets all of them has them in order, in one write."""
    room = Room()
    client = room.listen("#")
    events = [
        Event(topic, data, event_id, time_ms, EPOCH, offset) for offset, (topic, data, event_id, time_ms) in enumerate(drawn, 1)
    ]
    run = room.take(*events)
    expected = [decode_message(each.topic, message_of(NAMESPACE, each)[2], 65536, 0) for each in events]
    assert client.connection.wire.data == b"".join(event_frame(NAMESPACE.encode(), each).wire for each in expected[: run.taken])
    assert list(events_in(client.connection.wire.data, NAMESPACE, EPOCH)) == events[: run.taken]
    assert (client.direct, run.writes, room.front.reached) == (run.taken, bool(run.taken), run.taken)
    assert run.times == [] or sum(count for _, count in run.times) == run.taken


@built
def test_the_channels_of_users_and_the_feed_channel_have_the_topic_in_the_message(room: Room) -> None:
    """On a subscription to a name, to a glob, and in a Cluster."""
    client = room.listen("users.7.#")
    mail = event(1, "users.7.mail")
    within = mail.topic.encode() + b"\n" + message_of(NAMESPACE, mail)[2]
    feed = feed_channel(NAMESPACE).encode()
    for reply in (
        [b"message", user_channel(NAMESPACE, "7").encode(), within],
        [b"smessage", feed, within],
        [b"pmessage", b"hg:{n}:*", message_of(NAMESPACE, mail)[1], message_of(NAMESPACE, mail)[2]],
    ):
        room.front.reached = 0
        assert room.take(reply).taken == 1
    assert client.direct == 3


@built
def test_times_and_tallies_are_those_of_what_was_taken() -> None:
    """Of each hundredth event a tally is kept, if one was asked for."""
    room = Room(tally_every=2)
    room.listen("a")
    room.listen("a")
    run = room.take(*(event(offset, "a" if offset != 4 else "b") for offset in range(1, 7)))
    assert (run.times, run.tallied) == ([(1_700_000_000_000, 5)], [(2, 2), (6, 2)])
    assert [*room.tallies.changed()] == []
    assert room.take(event(7, "a")).tallied == []
    assert [*room.tallies.changed()] == []
    assert room.take(event(8, "a"), event(9, "b"), event(11, "a")).tallied == [(8, 2)], "the hole ends the run"
    assert room.take(event(10, "a"), event(11, "a")).tallied == [(10, 2), (11, 2)], "each one in a quiet round"


# Left events --------------------------------------------------------------------------------------------------------------

_PLAIN = event(None)
_TEXT = message_of(NAMESPACE, event())[2]


@built
@pytest.mark.parametrize(
    "reply",
    [
        _PLAIN,
        event(traceparent=PARENT),
        event(by="ana"),
        event(2),
        event(data=b""),
        event(data=b"{"),
        event(data=b'"\\ud800"'),
        event(data=b'"\xff"'),
        event(data=b"[" * 65 + b"]" * 65),
        event(data=b"1" * 65_537),
        event(topic="a..b"),
        event(topic="a.*"),
        event(topic="\N{LATIN SMALL LETTER E WITH ACUTE}"),
        event(topic="x" * 256),
        [b"message", b"hg:{n}:a.b", _TEXT.replace(EPOCH.encode(), b"00000000000000a2")],
        [b"message", b"hg:{n}:a.b", _TEXT.replace(b" 1 ", b" 01 ")],
        [b"message", b"hg:{n}:a.b", _TEXT.replace(b" 1 ", b" +1 ")],
        [b"message", b"hg:{n}:a.b", _TEXT.replace(b" 1 ", b" 1" + b"0" * 16 + b" ")],
        [b"message", b"hg:{n}:a.b", _TEXT.replace(b"id-1", b"i" * 129)],
        [b"message", b"hg:{n}:a.b", _TEXT.replace(b"id-1", b"")],
        [b"message", b"hg:{n}:a.b", _TEXT.replace(b"id-1", b'"')],
        [b"message", b"hg:{n}:a.b", _TEXT[:30]],
        [b"message", b"hg:{n}:a.b", b""],
        [b"message", b"hg:{n}:", _TEXT],
        [b"message", b"hg:{n}", _TEXT],
        [b"message", b"hg:{n}/users.7", _TEXT[:20]],
        [b"message", "hg:{n}:a.b", _TEXT],
        [b"messages", b"hg:{n}:a.b", _TEXT],
        [b"message\0", b"hg:{n}:a.b", _TEXT],
        [b"message", _TEXT],
        [b"subscribe", b"hg:{n}:a.b", 1],
        [b"pong", b"token"],
        (b"message", b"hg:{n}:a.b", _TEXT),
        7,
    ],
)
def test_anything_but_the_usual_case_is_left_with_all_behind_it(room: Room, reply: Any) -> None:
    """The feed decides about it. It may be the usual case for the event after it, which must not overtake."""
    client = room.listen("#")
    run = room.take(reply, event(1), event(2))
    assert (run.taken, run.crowd, run.full, room.front.reached, client.connection.wire.data) == (0, False, False, 0, b"")


_bytes = st.binary(max_size=40) | st.sampled_from(
    [b"message", b"pmessage", b"hg:{n}:a.b", b"hg:{n}/users.7", _TEXT, b"a.b\n" + _TEXT]
)


@built
@given(st.lists(st.lists(_bytes, max_size=5) | st.tuples(st.integers(0, len(_TEXT)), _bytes), max_size=4))
def test_no_bytes_bring_it_down_or_get_past_python(drawn: list[Any]) -> None:
    """Random words, and messages with random bytes: it takes only what Python decodes, or nothing."""
    room = Room()
    client = room.listen("#")
    replies = []
    for each in drawn:
        at, bytes_ = each if isinstance(each, tuple) else (0, b"")
        replies.append([b"message", b"hg:{n}:a.b", _TEXT[:at] + bytes_ + _TEXT[at:]] if isinstance(each, tuple) else each)
    taken = room.take(*replies).taken
    room.front.reached = 0
    expected = b""
    for reply in replies[:taken]:
        decoded = Messages(NAMESPACE, 65536).decode(reply[-2], reply[-1], 0)
        assert isinstance(decoded, Event)
        assert (decoded.epoch, decoded.offset) == (EPOCH, room.front.reached + 1)
        room.front.reached += 1
        expected += event_frame(NAMESPACE.encode(), decoded).wire
    assert client.connection.wire.data == expected


@built
@pytest.mark.parametrize("phase", [Phase.READING, Phase.COLLECTING, Phase.ARRIVING_BEHIND])
def test_a_client_that_catches_up_leaves_no_event_to_the_fan_out(phase: Phase) -> None:
    """The log brings it the events that pass it by, and the others get them at once; but one with a tally goes the long way."""
    room = Room(tally_every=4)
    reader, live = room.listen("#", ready=False, phase=phase), room.listen("a")
    run = room.take(event(1, "a"), event(2, "b"), event(3, "a"), event(4, "a"))
    assert (run.taken, run.matched, run.routed, run.writes, run.left) == (3, 3, 5, 1, [])
    assert (reader.direct, reader.left_to_log, reader.connection.wire.data) == (0, 3, b"")
    assert (live.direct, live.left_to_log) == (2, 0)


@built
def test_a_run_ends_behind_some_sixty_writes_and_before_it_is_more_than_a_slice(room: Room) -> None:
    """The rest is for another call, before which others have a turn."""
    for number in range(70):
        room.listen(f"u{number}")
    run = room.take(*(event(offset, f"u{offset - 1}") for offset in range(1, 71)))
    assert (run.taken, run.full, room.front.reached) == (64, True, 64)
    run = room.take(*(event(offset, f"u{offset - 1}") for offset in range(65, 71)))
    assert (run.taken, run.full) == (6, False)

    large = [event(offset, "u1", b'"' + b"x" * 30_000 + b'"') for offset in range(71, 76)]
    run = room.take(*large)
    assert (run.taken, run.full) == (2, True)


@built
def test_what_a_socket_did_not_take_is_left_with_the_frames(room: Room) -> None:
    """In part, not at all, or broken: the fan-out goes on as it does after its own writes."""
    half = room.listen("a", Wire(room=100))
    blocked = room.listen("a", Wire(room=0))
    broken = room.listen("a", Wire(error=BrokenPipeError(errno.EPIPE, "Broken pipe")))
    whole = room.listen("a")
    events = [event(1, "a"), event(2, "a")]
    run = room.take(*events)
    assert (run.taken, run.routed, run.writes, room.front.reached) == (2, 8, 4, 2)
    found: list[Any] = [(client, sent, type(error)) for client, sent, error, _ in run.left]
    assert found == [(half, 100, type(None)), (blocked, 0, type(None)), (broken, -1, BrokenPipeError)]
    for *_, frames in run.left:
        ours = [event_frame(NAMESPACE.encode(), each) for each in events]
        for name in ("wire", "skip", "topic", "offset", "payload_bytes", "time_ms", "binary", "attachment", "tally"):
            assert [getattr(frame, name) for frame in frames] == [getattr(frame, name) for frame in ours], name
    assert [client.direct for client in (half, blocked, broken, whole)] == [0, 0, 0, 2]


@built
def test_the_systems_own_sockets_are_written_to_without_their_method(room: Room) -> None:
    """All, in part, not at all, reset and closed, as the method of a socket says it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    client = room.listen("a", SimpleNamespace(send=ours.send))
    assert room.take(event(1, "a")).left == []
    assert list(events_in(theirs.recv(65536), NAMESPACE, EPOCH)) == [event(1, "a")]

    large = b'"' + b"x" * 60_000 + b'"'
    offset = 1
    left: list[Any] = []
    while not left:
        offset += 1
        left = room.take(event(offset, "a", large)).left
    [(behind, sent, error, frames)] = left
    assert (behind, error, sent < len(frames[0].wire)) == (client, None, True)
    [(_, sent, _, _)] = room.take(event(offset + 1, "a", large)).left
    assert sent == 0

    theirs.close()
    [(_, _, error, _)] = room.take(event(offset + 2, "a")).left
    assert isinstance(error, ConnectionError)
    ours.close()
    [(_, _, error, _)] = room.take(event(offset + 3, "a")).left
    assert error is not None
    assert error.errno == errno.EBADF


# Faults of ours ----------------------------------------------------------------------------------------------------------


@built
def test_a_fault_before_the_first_write_leaves_the_front_where_it_was(room: Room) -> None:
    """Nothing was handed on, and the log has it all."""
    client = room.listen("a")
    broken = room.listen("b")
    del broken.connection.ready
    with pytest.raises(AttributeError, match="ready"):
        room.take(event(1, "a"), event(2, "b"))
    assert (room.front.reached, client.connection.wire.data) == (0, b"")
    assert room.take(event(1, "a")).taken == 1


@built
def test_a_fault_behind_a_write_moves_the_front_behind_all_that_may_have_been_written(room: Room) -> None:
    """The listener reports these as a gap."""
    client, broken = room.listen("a"), room.listen("b")
    broken.connection.wire.send = lambda data: 1 / 0
    with pytest.raises(ZeroDivisionError):
        room.take(event(1, "a"), event(2, "b"), event(3, "a"))
    assert (room.front.reached, client.connection.wire.data != b"") == (3, True)
    assert room.take(event(4, "a")).taken == 1


@built
@pytest.mark.parametrize(
    "arguments", [(), ([], {}, EPOCH, 0, 0), ((), {}, EPOCH, 0, 0, True), ([], [], EPOCH, 0, 0, True), ([], {}, 7, 0, 0, True),
                  ([], {}, EPOCH, "0", 0, True), ([], {}, EPOCH, 0, 1 << 70, True)]
)  # fmt: skip
def test_arguments_of_other_types_are_refused(room: Room, arguments: tuple[Any, ...]) -> None:
    """Only direct.py calls it, and mypy looks after that; but C must not take anything on trust."""
    with pytest.raises((TypeError, OverflowError)):
        room.writer._writer.take(*arguments)


@built
def test_no_run_leaves_an_object_behind(room: Room) -> None:
    """References are counted by hand in C."""
    import sys

    client = room.listen("a", Wire(room=0))
    replies = [message_of(NAMESPACE, event(offset, "a")) for offset in range(1, 4)]
    held = (client, client.connection, client.connection.wire, replies[0], replies[0][2], EPOCH, None)

    def counts() -> list[int]:
        return [sys.getrefcount(each) for each in held[:-1]]

    room.take(*replies)
    before = counts()
    for _ in range(500):
        room.front.reached = 0
        room.take(*replies)
        room.take([b"message", b"hg:{n}:a..b", _TEXT])
    assert counts() == before


def test_without_the_c_there_is_no_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """And HEADGATE_PURE asks for that."""
    matcher: SubscriptionMatcher[Any] = SubscriptionMatcher()
    monkeypatch.setenv("HEADGATE_PURE", "1")
    assert direct_writer(NAMESPACE, matcher, 65536, Tallies(0)) is None
    monkeypatch.delenv("HEADGATE_PURE")
    monkeypatch.setattr("headgate.installation.find_spec", lambda name: None)
    assert direct_writer(NAMESPACE, matcher, 65536, Tallies(0)) is None


# After a write ------------------------------------------------------------------------------------------------------------


@built
@pytest.mark.parametrize(("room", "breaks"), [(0, True), (0, False), (40, False), (100_000, False)])
def test_the_feed_goes_on_with_clients_of_full_sockets(monkeypatch: pytest.MonkeyPatch, room: int, breaks: bool) -> None:
    """Broken ones count as gone, a cut frame is finished first, and every event is in one place, in the tallies too."""
    monkeypatch.setattr(fanout, "_hand", fanout._hand)  # the world has another one
    world = World(1)
    connection, client = world.witness.connection, world.witness.client
    assert connection is not None
    assert client is not None
    connection.make_room(100_000)
    connection.room, connection.breaks = room, breaks
    world.burst()
    events = len(world.bus.arrived)
    while world.bus.arrived and world._take():
        pass
    world._check_ledger()
    balance = world.before
    assert (connection.closed, client.gone > 0) == (breaks, breaks)
    assert world.taken_directly > 0
    assert (balance.open, balance.gone) == (0, client.gone)
    if room > 1000:
        assert (world.taken_directly, client.direct) == (events, events)


@built
def test_a_writer_that_was_never_made_ready_refuses() -> None:
    """`__new__` alone makes one without a listener to ask."""
    kind = native("Writer")
    writer = kind.__new__(kind)
    with pytest.raises(TypeError):
        writer.take([], {}, EPOCH, 0, 0, True)
