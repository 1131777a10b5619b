"""The link, without a socket: what each end says and hears, in random orders and pieces, and what breaks it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.relay.frames import MAX_PAYLOAD_BYTES, Frame, Kind, LinkViolation, Reader
from headgate.relay.link import (
    MAX_STREAMS,
    PING_EVERY_S,
    SILENT_S,
    TRANSITIONS,
    WINDOW_BYTES,
    Data,
    Ended,
    Event,
    Link,
    Opened,
    Reset,
    Room,
    State,
    Step,
    Taken,
)

ANA = ("192.0.2.7", 4711)


class Ends:
    """Two links, and what is on its way between them; each end is 0 (which has dialed) or 1."""

    def __init__(self) -> None:
        self.links = Link(0.0, dials=True), Link(0.0, dials=False)
        self.on_its_way: list[bytearray] = [bytearray(), bytearray()]
        self.events: tuple[list[Event], list[Event]] = ([], [])

    def carry(self, end: int, most: int = 10**9) -> list[Event]:
        """Let bytes arrive at an end; return what has happened there."""
        way, link = self.on_its_way[1 - end], self.links[1 - end]
        way += link.outgoing
        link.outgoing.clear()
        piece = bytes(way[:most])
        del way[:most]
        found = list(self.links[end].receive(piece, 0.0))
        self.events[end].extend(found)
        return found

    def opened(self) -> int:
        """Open a stream, and have it taken."""
        stream = self.links[0].open(ANA)
        assert stream is not None
        assert self.carry(1) == [Opened(stream, ANA)]
        self.links[1].take(stream)
        assert self.carry(0) == [Taken(stream)]
        return stream


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_bytes_go_both_ways_and_both_ends_end(ends: Ends) -> None:
    """The first ones before the stream is taken. Then nobody knows the stream any more."""
    dialer, listener = ends.links
    stream = dialer.open(ANA)
    assert stream is not None
    dialer.send(stream, b"request")
    assert ends.carry(1) == [Opened(stream, ANA), Data(stream, b"request")]
    listener.take(stream)
    listener.send(stream, b"answer")
    listener.end(stream)
    assert ends.carry(0) == [Taken(stream), Data(stream, b"answer"), Ended(stream)]
    dialer.end(stream)
    assert ends.carry(1) == [Ended(stream)]
    assert [len(dialer), len(listener)] == [0, 0]


def test_an_end_may_have_no_more_on_its_way_than_a_window(ends: Ends) -> None:
    """There is room again as the other end passes bytes on."""
    dialer, listener = ends.links
    stream = ends.opened()
    dialer.send(stream, bytes(WINDOW_BYTES))
    assert dialer.room(stream) == 0
    with pytest.raises(ValueError, match="room for 0"):
        dialer.send(stream, b"x")
    assert sum(len(event.data) for event in ends.carry(1) if isinstance(event, Data)) == WINDOW_BYTES
    listener.passed_on(stream, WINDOW_BYTES)
    assert ends.carry(0) == [Room(stream)]
    assert dialer.room(stream) == WINDOW_BYTES


def test_a_stream_that_is_reset_is_forgotten_whatever_is_on_its_way(ends: Ends) -> None:
    """By either end, before and after it was taken; late frames are no violation."""
    for end in (0, 1):
        for taken in (True, False):
            stream = ends.opened() if taken else ends.links[0].open(None)
            assert stream is not None
            ends.carry(1)
            ends.links[1 - end].send(stream, b"late")
            ends.links[end].reset(stream)
            assert ends.carry(1 - end) == [Reset(stream)]
            assert not [event for event in ends.carry(end) if not isinstance(event, Data)]
            assert [len(link) for link in ends.links] == [0, 0]


def test_there_are_only_so_many_streams(ends: Ends) -> None:
    """The next one finds room when one is over."""
    dialer, _ = ends.links
    streams = [dialer.open(ANA) for _ in range(MAX_STREAMS)]
    assert dialer.open(ANA) is None
    ends.carry(1)
    dialer.reset(streams[5] or 0)
    assert dialer.open(ANA) is not None
    ends.carry(1)
    assert len(ends.links[1]) == MAX_STREAMS


def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    """An answer is enough to stay."""
    dialer, listener = Link(0.0, dials=True), Link(0.0, dials=False)
    dialer.tick(PING_EVERY_S - 0.1)
    assert not dialer.outgoing
    dialer.tick(PING_EVERY_S)
    assert list(listener.receive(bytes(dialer.outgoing), PING_EVERY_S)) == []
    assert list(dialer.receive(bytes(listener.outgoing), SILENT_S)) == []
    dialer.tick(2 * SILENT_S - 0.1)
    with pytest.raises(LinkViolation, match="silent"):
        dialer.tick(2 * SILENT_S)


def said(*frames: Frame) -> bytes:
    return b"".join(frame.to_bytes() for frame in frames)


OPEN = Frame(Kind.OPEN, 1, b'["192.0.2.7",4711]')


@pytest.mark.parametrize(
    ("dials", "bytes_", "wrong"),
    [
        (False, b"\xff" + bytes(8), "not a frame"),
        (False, b"\x03" + bytes(4) + (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big"), "not a frame"),
        (False, said(Frame(Kind.DATA, 1)), "never opened"),
        (True, said(Frame(Kind.RESET, 2)), "never opened"),
        (False, said(Frame(Kind.END, 0)), "never opened"),
        (True, said(Frame(Kind.OPEN, 2, b"null")), "opened out of turn"),
        (False, said(OPEN, OPEN), "opened out of turn"),
        (False, said(Frame(Kind.OPEN, 7, b"null")), "opened out of turn"),
        (False, said(Frame(Kind.OPEN, 1, b'{"host":"x"}')), "not an address"),
        (False, said(Frame(Kind.OPEN, 1, b"\xff")), "not an address"),
        (False, said(OPEN, Frame(Kind.TAKEN, 1)), "taken out of turn"),
        (True, said(Frame(Kind.TAKEN, 1), Frame(Kind.TAKEN, 1)), "taken out of turn"),
        (True, said(Frame(Kind.DATA, 1, b"x")), "bytes out of turn"),
        (True, said(Frame(Kind.TAKEN, 1), Frame(Kind.END, 1), Frame(Kind.DATA, 1, b"x")), "bytes out of turn"),
        (True, said(Frame(Kind.END, 1)), "ended out of turn"),
        (True, said(Frame(Kind.TAKEN, 1), Frame(Kind.END, 1), Frame(Kind.END, 1)), "ended out of turn"),
        (True, said(Frame(Kind.TAKEN, 1), Frame(Kind.CREDIT, 1, b"\0\0\0\1")), "more room"),
        (True, said(Frame(Kind.TAKEN, 1), Frame(Kind.CREDIT, 1, b"\0")), "more room"),
        (True, said(Frame(Kind.TAKEN, 1), *[Frame(Kind.DATA, 1, bytes(MAX_PAYLOAD_BYTES))] * 5), "more bytes"),
    ],
)
def test_a_peer_that_breaks_a_rule_ends_the_link(dials: bool, bytes_: bytes, wrong: str) -> None:
    """Each rule, for the end that has dialed (and opened one stream) or the other."""
    link = Link(0.0, dials=dials)
    if dials:
        link.open(None)
    with pytest.raises(LinkViolation, match=wrong):
        list(link.receive(bytes_, 0.0))


def test_an_illegal_step_raises(ends: Ends) -> None:
    """OVER has no way out, and a stream that was taken is not taken again."""
    assert not [state for state, _ in TRANSITIONS if state is State.OVER]
    stream = ends.opened()
    with pytest.raises(KeyError):
        ends.links[1].take(stream)
    assert {step for state, step in TRANSITIONS if state is State.OPENING} == {Step.TAKE, Step.RESET}


@settings(deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_are_violations_or_nothing(data: bytes, dials: bool) -> None:
    """Never another error."""
    link = Link(0.0, dials=dials)
    with suppress(LinkViolation):
        list(link.receive(data, 0.0))


@settings(deadline=None)
@given(st.lists(st.integers(1, 200), max_size=30), st.integers(1, 50))
def test_frames_are_the_same_in_any_pieces(sizes: list[int], at_once: int) -> None:
    """And no more than one is kept."""
    frames = [Frame(Kind.DATA, stream, bytes(size)) for stream, size in enumerate(sizes)]
    whole, reader, found = said(*frames), Reader(), list[Frame]()
    for at in range(0, len(whole), at_once):
        found += reader.feed(whole[at : at + at_once])
    assert found == frames


@pytest.mark.parametrize("seed", range(25))
def test_random_histories_lose_and_double_nothing(seed: int) -> None:
    """Each stream brings a beginning of what was sent, all of it where nobody has reset it, and everything ends."""
    chance = random.Random(seed)
    ends = Ends()
    sent: dict[tuple[int, int], bytes] = {}
    heard: dict[tuple[int, int], bytes] = {}
    held: list[tuple[int, int, int]] = []  # end, stream, bytes that have come and not gone on
    ended: set[tuple[int, int]] = set()
    reset: set[int] = set()
    streams: list[int] = []
    taken: set[int] = set()

    def happened(end: int, events: list[Event]) -> None:
        for event in events:
            key = (end, event.stream)
            if isinstance(event, Opened):
                assert event.address == ANA
                if chance.random() < 0.1:
                    reset.add(event.stream)
                    ends.links[1].reset(event.stream)
                else:
                    ends.links[1].take(event.stream)
                    taken.add(event.stream)
            elif isinstance(event, Data):
                heard[key] = heard.get(key, b"") + event.data
                held.append((end, event.stream, len(event.data)))

    def send() -> None:
        end, stream = chance.randrange(2), chance.choice(streams)
        link = ends.links[end]
        room = link.room(stream)
        if (end == 1 and stream not in taken) or (end, stream) in ended or not room:
            return
        data = chance.randbytes(chance.randint(1, min(room, 30_000)))
        link.send(stream, data)
        sent[end, stream] = sent.get((end, stream), b"") + data

    def open_() -> None:
        if (stream := ends.links[0].open(ANA)) is not None:
            streams.append(stream)

    def arrive() -> None:
        end = chance.randrange(2)
        happened(end, ends.carry(end, chance.choice([1, 10, 1000, 100_000])))

    def pass_on() -> None:
        if held:
            end, stream, size = held.pop(chance.randrange(len(held)))
            ends.links[end].passed_on(stream, size)

    def finish(often: float) -> None:
        end, stream = chance.randrange(2), chance.choice(streams)
        if stream not in taken or (end, stream) in ended or Taken(stream) not in ends.events[0]:
            return
        if chance.random() < often:
            reset.add(stream)
            ends.links[end].reset(stream)
        else:
            ended.add((end, stream))
            ends.links[end].end(stream)

    open_()
    steps: list[Callable[[], None]] = [send, send, send, arrive, arrive, arrive, pass_on, pass_on, open_, lambda: finish(0.2)]
    for _ in range(600):
        chance.choice(steps)()
    while any(ends.on_its_way) or any(link.outgoing for link in ends.links):
        for end in (0, 1):
            happened(end, ends.carry(end))
    for end, stream, size in held:
        ends.links[end].passed_on(stream, size)
    happened(0, ends.carry(0))
    happened(1, ends.carry(1))

    for (end, stream), data in sent.items():
        got = heard.get((1 - end, stream), b"")
        assert data.startswith(got)
        assert stream in reset or got == data
    told = Counter(event.stream for event in ends.events[1] if isinstance(event, Ended))
    assert all(count == 1 for count in told.values())
    for stream in streams:
        if (0, stream) in ended and (1, stream) in ended and stream not in reset:
            assert not ends.links[0].room(stream)
    alive = [stream for stream in streams if stream not in reset and not {(0, stream), (1, stream)} <= ended]
    assert [len(link) for link in ends.links] == [len(alive)] * 2
