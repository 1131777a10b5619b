"""The sending half of a session over a socket pair: direct writes, corks, holds, and the rest of a cut write."""

import json
from collections.abc import Iterator

import pytest

from headgate.events.wire.frames import Frame
from headgate.transport.limits import TransportLimits
from headgate.transport.send_queue import MAX_CONTROL_FRAMES
from tests.support.session_browser import Browser
from tests.support.session_clock import Clock, controlled_clock, fill, read_all, turn, until

clock = pytest.fixture(controlled_clock)
QUEUE_FRAMES = 8


class Client:
    def __init__(self) -> None:
        self.direct = self.offered = self.sent = self.times_drained = 0

    def drained(self) -> None:
        self.times_drained += 1


class Line(Browser):
    """A session on WebSocket with one client, and the browser's end, which reads only on demand."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, TransportLimits(queue_frames=QUEUE_FRAMES, send_buffer_bytes=4096))
        self.client = Client()
        self.session.owners = (self.client,)
        self.connect()

    def back_up(self) -> int:
        """Let the browser read nothing until the kernel takes no more; return how many bytes of padding it holds."""
        return fill(self.wire.send)

    def read(self, skip: int = 0) -> list[bytes]:
        """Let the browser read all there is, after `skip` bytes of padding; return the packets."""
        packets = [payload for _, payload in self.received(skip)]
        assert self.unparsed == b"", "a frame was cut"
        return packets

    def ready(self) -> bool:
        """Whether the fan-out may write directly now."""
        return self.session.ready


@pytest.fixture
def line(clock: Clock) -> Iterator[Line]:
    made = Line(clock)
    yield made
    made.over()


def events(count: int, size: int = 0) -> list[Frame]:
    return [Frame(b"4" + json.dumps([number, "x" * size]).encode()) for number in range(count)]


def test_a_session_whose_socket_is_full_takes_none_until_it_has_caught_up(line: Line) -> None:
    """Events queue up after the waiting ones, and keep their order."""
    padding = line.back_up()
    sent = events(4)
    for frame in sent:
        assert line.session.offer(frame, line.client)
    assert (line.ready(), line.session.idle, line.client.sent) == (False, False, 1)  # the first is half written

    assert line.read(padding) == [frame.packet for frame in sent]
    assert (line.ready(), line.session.idle) == (True, True)


def test_control_goes_ahead_of_data_that_waits(line: Line) -> None:
    """A full data lane does not crowd out a ping; the half-written frame is finished first."""
    padding = line.back_up()
    sent = events(QUEUE_FRAMES)
    for frame in sent:
        assert line.session.offer(frame)
    line.session.offer_control(Frame(b"2"))

    assert line.read(padding) == [sent[0].packet, b"2", *[frame.packet for frame in sent[1:]]]


def test_a_cork_keeps_data_back_and_lets_control_through(line: Line, clock: Clock) -> None:
    """CONNECT goes ahead of its handler's events; counted, as two namespaces may join at once."""
    line.session.cork()
    line.session.cork()
    line.session.offer(Frame(b"4data"))
    line.session.offer_control(Frame(b"40"))
    assert (line.ready(), line.read()) == (False, [b"40"])
    line.session.uncork(at_once=True)
    assert (line.ready(), line.read()) == (False, [])
    line.session.uncork(at_once=True)
    assert (line.ready(), line.read()) == (True, [b"4data"])


def test_corked_frames_follow_connect_by_a_moment(line: Line) -> None:
    """In a separate segment; with nothing to send, the cork is out at once."""
    line.session.cork()
    line.session.uncork()
    assert line.ready()
    line.session.cork()
    line.session.offer(Frame(b"4data"))
    line.session.uncork()
    assert (line.ready(), read_all(line.socks[-1])) == (False, b"")
    until(line.ready)
    assert line.read() == [b"4data"]


def test_a_hold_keeps_the_fan_out_out_and_lets_the_queue_go_on(line: Line) -> None:
    """A client that reads the log sends its pages; live events pass it by. Counted, too."""
    line.session.hold_direct(True)
    line.session.hold_direct(True)
    assert not line.ready()
    assert line.session.stream(events(2), line.client) == 2
    assert len(line.read()) == 2
    line.session.hold_direct(False)
    assert not line.ready()
    line.session.hold_direct(False)
    assert line.ready()


def test_what_was_not_put_in_cannot_be_taken_back(line: Line) -> None:
    """It would let a later one's data out too early."""
    with pytest.raises(RuntimeError, match="uncork without cork"):
        line.session.uncork()
    with pytest.raises(RuntimeError, match="release without hold"):
        line.session.hold_direct(False)


@pytest.mark.parametrize("cut", [0, 1, 5, 12, 13, 14, 25, 26, 38])
def test_a_direct_write_that_was_cut_is_finished_where_it_was_cut(line: Line, cut: int) -> None:
    """The frame that was hit goes out whole; those after it are the caller's to offer."""
    frames = [Frame(b"4" + bytes([65 + number]) * 10) for number in range(3)]
    data = b"".join(frame.wire for frame in frames)
    assert line.wire.send(data[:cut]) == cut if cut else True
    accounted = line.session.written_in_part(frames, cut)
    for frame in frames[accounted:]:
        assert line.session.offer(frame)
    turn()

    assert accounted == -(-cut // len(frames[0].wire))
    assert line.read() == [frame.packet for frame in frames]
    assert line.ready()


def test_a_page_of_the_log_goes_out_in_one_write_or_is_queued(line: Line) -> None:
    """Each frame is counted once; one without room is not accepted."""
    assert line.session.stream(events(3), line.client) == 3
    assert (line.client.direct, line.client.offered) == (3, 0)
    line.read()
    padding = line.back_up()
    page = events(QUEUE_FRAMES + 5)
    accepted = line.session.stream(page, line.client)
    assert accepted < len(page)
    assert line.client.direct + line.client.offered == 3 + accepted
    assert line.read(padding) == [frame.packet for frame in page[:accepted]]


def test_a_full_control_lane_ends_the_session(line: Line) -> None:
    """A browser that lets even that fill up is not reading."""
    line.back_up()
    line.wire.await_room()
    for _ in range(MAX_CONTROL_FRAMES):
        line.session.offer_control(Frame(b"2"))
    assert not line.session.closed
    line.session.offer_control(Frame(b"2"))

    assert line.session.reason == "slow consumer"


def test_clients_are_told_once_when_a_queue_over_high_water_has_drained(line: Line) -> None:
    """And only if one has asked for it. A full queue refuses, and the caller decides about the event."""
    for asks in (False, True):
        line.session.cork()
        assert all(line.session.offer(frame) for frame in events(QUEUE_FRAMES))
        assert not line.session.offer(Frame(b"4one too many"))
        line.session.awaits_drain = asks
        assert not line.session.idle
        line.session.uncork(at_once=True)
        assert line.client.times_drained == asks

    assert (line.session.awaits_drain, line.session.idle) == (False, True)


def test_a_socket_that_breaks_under_a_direct_write_ends_the_session(line: Line) -> None:
    """With the system's reason."""
    line.wire.lose(OSError(32, "Broken pipe"))
    assert (line.session.reason, line.session.wire, line.ready()) == ("transport error: Broken pipe", None, False)
