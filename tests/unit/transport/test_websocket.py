"""The order of bytes on one wire, when its owner calls back into it. A socket pair and no loop, so nothing waits here."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, cast

import pytest

from headgate.transport.limits import TransportLimits
from headgate.transport.peer_socket import NativeSocket
from headgate.transport.timers import Deadlines
from headgate.transport.websocket import LINGER_S, WebSocket
from tests.support.session_clock import Clock, controlled_clock, fill, native_pair, read_all, turn
from tests.support.websocket_codec import BINARY, CLOSE, PING, PONG, TEXT, frames_in, masked

clock = pytest.fixture(controlled_clock)
LIMITS = TransportLimits(max_message_bytes=1000, send_buffer_bytes=65536, write_deadline_s=10.0)


class Scripted:
    """An owner that hands over chunks, and acts for the test between them."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.meanwhile: Callable[[], object] | None = None
        self.idle = 0
        self.lost: list[str] = []
        self.messages: list[str | bytes] = []

    def received(self, message: str | bytes) -> None:
        self.messages.append(message)

    def control_received(self) -> bool:
        return True

    def next_chunk(self) -> bytes | None:
        """Take the next chunk; then, before it is written, the owner is busy."""
        chunk = self.chunks.pop(0) if self.chunks else None
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return chunk

    def all_written(self) -> None:
        self.idle += 1

    def websocket_lost(self, reason: str) -> None:
        self.lost.append(reason)


class Line(NamedTuple):
    """A wire, its owner, and the other end."""

    wire: WebSocket
    owner: Scripted
    peer: socket.socket

    def take(self, size: int) -> None:
        """Have the other end read so many bytes."""
        while size:
            size -= len(self.peer.recv(size))

    def frames(self) -> list[tuple[int, bytes]]:
        """Return the frames that have come; they are whole."""
        frames, left = frames_in(read_all(self.peer))
        assert left == b""
        return frames


def line_of(deadlines: Deadlines, limits: TransportLimits = LIMITS) -> Line:
    ours, theirs = native_pair()
    theirs.settimeout(5)
    owner = Scripted()
    return Line(WebSocket(ours, owner, deadlines, limits), owner, theirs)


@pytest.fixture
def line() -> Iterator[Line]:
    """A wire with a separate timer."""
    timer = Deadlines(1.0)
    made = line_of(timer)
    yield made
    made.wire.lose("the test is over")
    timer.close()
    made.peer.close()


def test_frames_that_are_flushed_while_a_chunk_is_handed_over_come_behind_it(line: Line) -> None:
    """A relieved client puts its notices into the queue, and flushes, while older frames are on their way to the wire."""
    wire, owner, theirs = line

    def notice() -> None:
        owner.chunks.append(b"newer")
        wire.flush()

    owner.chunks, owner.meanwhile = [b"older "], notice
    wire.flush()

    assert theirs.recv(100) == b"older newer"
    assert owner.idle == 1


def test_nothing_is_written_behind_a_close_frame(line: Line) -> None:
    """The owner knows of the end before `close` returns, and is asked for nothing more."""
    wire, owner, theirs = line
    owner.chunks = [b"too late"]
    wire.close(1008, "enough", why="inbound flood")
    wire.flush()

    assert owner.lost == ["inbound flood"]
    assert theirs.recv(100) == b"\x88\x08\x03\xf0enough"
    assert theirs.recv(100) == b""


def test_the_rest_of_a_frame_comes_before_the_goodbye(line: Line) -> None:
    """A frame that the kernel took in part is finished, or the stream would be corrupt."""
    wire, owner, theirs = line
    sent = fill(wire.send)
    wire.finish_frame(b"the rest")
    wire.close(1000, last=b" goodbye")
    line.take(sent)
    wire.flush()

    assert theirs.recv(100) == b"the rest goodbye\x88\x02\x03\xe8"
    assert owner.lost == ["transport error"]


def test_a_slow_reader_gets_a_goodbye_whole(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """The linger begins after the close frame. Until that is written, the write deadline counts."""
    wire, _, theirs = line
    asked: list[tuple[float, str]] = []
    monkeypatch.setattr(wire._deadlines, "after", lambda delay_s, callback, *args: asked.append((delay_s, callback.__name__)))
    sent = fill(wire.send)
    wire.close(1000, last=b"goodbye")
    assert asked == [(10.0, "_check_progress")]
    line.take(sent)
    wire.flush()

    assert asked[1:] == [(LINGER_S, "lose")]
    assert theirs.recv(100) == b"goodbye\x88\x02\x03\xe8"


def test_nobody_holds_a_goodbye_longer_than_the_write_deadline(clock: Clock) -> None:
    """However it trickles, the session is over and counted no more, so its bytes must go."""
    wire, _, theirs = line_of(cast(Deadlines, clock), replace(LIMITS, send_buffer_bytes=4096))
    with theirs:
        fill(wire.send)
        clock.advance(9)
        wire.close(1000, last=b"x" * 1_000_000)
        for _ in range(9):
            clock.advance(1)
            theirs.recv(20_000)
            turn()
        assert not wire.closed
        clock.advance(1)

    assert wire.closed


def test_an_owner_that_ends_the_connection_while_it_hands_over_a_chunk_gets_its_goodbye_out(line: Line) -> None:
    """The close frame is the last thing on the wire."""
    wire, owner, theirs = line
    owner.chunks, owner.meanwhile = [b"never mind"], lambda: wire.close(1000, last=b"bye")
    wire.flush()

    assert theirs.recv(100).endswith(b"bye\x88\x02\x03\xe8")
    assert theirs.recv(100) == b""


def test_a_slow_reader_is_answered_the_latest_of_its_pings(line: Line) -> None:
    """Between two frames; answers to a flood of pings do not queue."""
    wire, owner, _ = line
    sent = fill(wire.send)
    owner.chunks = [b"\x82\x03abc", b"\x82\x03def"]
    wire.flush()
    wire.open(masked(PING, b"first") + masked(PING, b"last"))
    line.take(sent)
    turn()

    assert line.frames() == [(BINARY, b"abc"), (PONG, b"last"), (BINARY, b"def")]


def test_a_close_frame_is_answered_and_told_at_once(line: Line) -> None:
    """The owner does not wait until the socket has lingered out. Frames after it are not read, as it was the client's last."""
    line.wire.open(masked(TEXT, "before") + masked(CLOSE, b"\x03\xe8bye") + masked(TEXT, "behind"))

    assert line.frames() == [(CLOSE, b"\x03\xe8")]
    assert (line.owner.messages, line.owner.lost) == (["before"], ["transport close"])


def test_a_browser_whose_data_waited_ends_the_connection_after_our_goodbye(line: Line) -> None:
    """Its unread bytes are read now, because closing with them unread would reset the connection."""
    line.wire.open()
    line.wire.pause_reading()
    line.peer.sendall(masked(TEXT, b"more"))
    line.wire.close()
    assert [opcode for opcode, _ in line.frames()] == [CLOSE]
    line.peer.shutdown(socket.SHUT_WR)
    turn()
    turn()
    assert (line.wire.closed, line.owner.messages) == (True, [])


def test_the_kernel_sends_at_once_and_holds_as_much_as_the_limit_says() -> None:
    """Without TCP_NODELAY an answer may wait 40 ms. Linux doubles the size of the buffer (socket(7))."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        ours = NativeSocket(fileno=server.accept()[0].detach())
    WebSocket(ours, Scripted(), Deadlines(1), LIMITS)
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 65536
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_reader_lives_while_it_accepts_bytes_however_slowly(clock: Clock) -> None:
    """The write deadline is for progress, not for all that waits; without progress the socket is dropped with its bytes."""
    wire, owner, theirs = line_of(cast(Deadlines, clock), replace(LIMITS, send_buffer_bytes=4096))
    with theirs:
        fill(wire.send)
        wire.finish_frame(b"x" * 1_000_000)
        for _ in range(20):
            clock.advance(9)
            theirs.recv(20_000)
            turn()
            assert owner.lost == []
        clock.advance(9)
        assert owner.lost == []
        clock.advance(1)

    assert owner.lost == ["write deadline"]


def test_an_answer_for_which_there_is_no_room_is_written_when_there_is(line: Line) -> None:
    """A peer with a full buffer gets all of it, in order."""
    wire, _, theirs = line
    filled = fill(wire.send)
    wire.open(unsent=b"the answer")
    wire.flush()
    assert wire.writing
    line.take(filled)
    turn()

    assert theirs.recv(100) == b"the answer"
    assert not wire.writing


def test_a_goodbye_before_the_answer_was_written_follows_it(line: Line) -> None:
    """A session may end in the turn in which it began."""
    wire, owner, theirs = line
    wire.open(unsent=b"the answer")
    wire.close(1008, "no")
    wire.flush()

    assert theirs.recv(100).startswith(b"the answer\x88")
    assert owner.lost == ["transport error"]


def test_an_answer_to_a_client_that_is_gone_loses_the_socket(line: Line) -> None:
    """The owner is notified once."""
    wire, owner, theirs = line
    wire.open(unsent=b"the answer")
    theirs.close()
    wire.flush()
    wire.flush()

    assert wire.closed
    assert len(owner.lost) == 1
