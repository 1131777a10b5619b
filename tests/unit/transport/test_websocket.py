"""The order of bytes on one wire, when its owner calls back into it. A socket pair and no loop: nothing waits here."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest

from headgate.transport.limits import TransportLimits
from headgate.transport.peer_socket import NativeSocket
from headgate.transport.timers import Deadlines
from headgate.transport.websocket import LINGER_S, WebSocket
from tests.support.session_clock import Clock, controlled_clock, read_all, turn
from tests.support.websocket_codec import BINARY, CLOSE, PING, PONG, TEXT, frame_at, masked

clock = pytest.fixture(controlled_clock)
LIMITS = TransportLimits(max_message_bytes=1000, send_buffer_bytes=65536, write_deadline_s=10.0)


def _nothing() -> None:
    """Leave the wire alone."""


class Scripted:
    """An owner that hands over chunks, and while it does, does what a test wants."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.meanwhile: Callable[[], None] = _nothing
        self.idle = 0
        self.lost: list[str] = []
        self.texts: list[str] = []

    def text_received(self, text: str) -> None:
        """Record."""
        self.texts.append(text)

    def binary_received(self, data: bytes) -> None:
        """Not used."""

    def control_received(self) -> bool:
        """Not used."""
        return True

    def next_chunk(self) -> bytes | None:
        """Take the next chunk; then, before it is written, the owner is busy."""
        chunk = self.chunks.pop(0) if self.chunks else None
        meanwhile, self.meanwhile = self.meanwhile, _nothing
        meanwhile()
        return chunk

    def all_written(self) -> None:
        """Count."""
        self.idle += 1

    def websocket_lost(self, reason: str) -> None:
        """Record."""
        self.lost.append(reason)


@pytest.fixture
def pair() -> Iterator[tuple[WebSocket, Scripted, socket.socket]]:
    """A wire, its owner, and the other end."""
    ours, theirs = socket.socketpair()
    owner = Scripted()
    timer = Deadlines(1.0)
    wire = WebSocket(NativeSocket(fileno=ours.detach()), owner, timer, LIMITS)
    theirs.settimeout(5)
    yield wire, owner, theirs
    wire.lose("the test is over")
    timer.close()
    theirs.close()


def test_frames_that_are_flushed_while_a_chunk_is_handed_over_come_behind_it(
    pair: tuple[WebSocket, Scripted, socket.socket],
) -> None:
    """A relieved client puts its notices into the queue, and flushes, while older frames are on their way to the wire."""
    wire, owner, theirs = pair

    def notice() -> None:
        owner.chunks.append(b"newer")
        wire.flush()

    owner.chunks, owner.meanwhile = [b"older "], notice
    wire.flush()

    assert theirs.recv(100) == b"older newer"
    assert owner.idle == 1


def test_nothing_is_written_behind_a_close_frame(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """The owner knows of the end before `close` returns, and is asked for nothing more."""
    wire, owner, theirs = pair
    owner.chunks = [b"too late"]
    wire.close(1008, "enough", why="inbound flood")
    wire.flush()

    assert owner.lost == ["inbound flood"]
    assert theirs.recv(100) == b"\x88\x08\x03\xf0enough"
    assert theirs.recv(100) == b""


def fill(wire: WebSocket) -> int:
    """Write until the kernel takes no more; return how many bytes it took."""
    sent = 0
    try:
        while True:
            sent += wire.send(b"x" * 65536)
    except BlockingIOError:
        return sent


def test_the_rest_of_a_frame_comes_before_the_goodbye(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """A frame that the kernel took in part is finished, or the stream would be corrupt."""
    wire, owner, theirs = pair
    sent = fill(wire)
    wire.finish_frame(b"the rest")
    wire.close(1000, last=b" goodbye")
    received = bytearray()
    while len(received) < sent:
        received += theirs.recv(sent - len(received))
    wire.flush()

    assert theirs.recv(100) == b"the rest goodbye\x88\x02\x03\xe8"
    assert owner.lost == ["transport error"]


def test_a_slow_reader_gets_a_goodbye_whole(
    pair: tuple[WebSocket, Scripted, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The linger begins behind the close frame: until that is written, the write deadline counts."""
    wire, _, theirs = pair
    asked: list[tuple[float, str]] = []
    monkeypatch.setattr(wire._deadlines, "after", lambda delay_s, callback, *args: asked.append((delay_s, callback.__name__)))
    sent = fill(wire)
    wire.close(1000, last=b"goodbye")
    assert asked == [(10.0, "_check_progress"), (10.0, "_expire_goodbye")]
    received = bytearray()
    while len(received) < sent:
        received += theirs.recv(sent - len(received))
    wire.flush()

    assert asked[2:] == [(LINGER_S, "lose")]
    assert theirs.recv(100) == b"goodbye\x88\x02\x03\xe8"


def test_nobody_holds_a_goodbye_longer_than_the_write_deadline(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """However it trickles: the session is over and counted no more, so its bytes must go."""
    wire, _, theirs = pair
    fill(wire)
    wire.close(1000, last=b"goodbye")
    theirs.recv(100)
    wire._expire_goodbye()

    assert wire.closed


def test_an_owner_that_ends_the_connection_while_it_hands_over_a_chunk_gets_its_goodbye_out(
    pair: tuple[WebSocket, Scripted, socket.socket],
) -> None:
    """The close frame is the last thing on the wire."""
    wire, owner, theirs = pair
    owner.chunks, owner.meanwhile = [b"never mind"], lambda: wire.close(1000, last=b"bye")
    wire.flush()

    assert theirs.recv(100).endswith(b"bye\x88\x02\x03\xe8")
    assert theirs.recv(100) == b""


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return whole frames."""
    found, at = [], 0
    while (frame := frame_at(data, at)) is not None:
        found.append((frame.opcode, data[frame.start : frame.end]))
        at = frame.end
    assert at == len(data)
    return found


def test_a_ping_is_answered_with_its_payload(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """RFC 6455 section 5.5.3."""
    wire, _, theirs = pair
    wire.open(masked(PING, b"x" * 125))

    assert frames(read_all(theirs)) == [(PONG, b"x" * 125)]


def test_a_slow_reader_is_answered_the_latest_of_its_pings(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """Between two frames; answers to a flood of pings do not queue."""
    wire, owner, theirs = pair
    sent = fill(wire)
    owner.chunks = [b"\x82\x03abc", b"\x82\x03def"]
    wire.flush()
    wire.open(masked(PING, b"first") + masked(PING, b"last"))
    received = b""
    while len(received) < sent:
        received += read_all(theirs)
    turn()

    assert frames(read_all(theirs)) == [(BINARY, b"abc"), (PONG, b"last"), (BINARY, b"def")]


def test_a_close_frame_is_answered_and_told_at_once(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """The owner does not wait until the socket has lingered out."""
    wire, owner, theirs = pair
    wire.open(masked(CLOSE, b"\x03\xe8bye"))

    assert frames(read_all(theirs)) == [(CLOSE, b"\x03\xe8")]
    assert owner.lost == ["transport close"]


def test_frames_behind_a_close_frame_are_not_read(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """The client has said that it was all."""
    wire, owner, _ = pair
    wire.open(masked(TEXT, "before") + masked(CLOSE, b"") + masked(TEXT, "behind"))

    assert owner.texts == ["before"]


def test_the_kernel_holds_as_much_as_the_limit_says(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """Linux doubles the number (socket(7))."""
    wire, _, _ = pair

    assert wire._sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 65536


def test_a_reader_lives_while_it_accepts_bytes_however_slowly(clock: Clock) -> None:
    """The write deadline is for progress, not for all that waits; without progress the socket is dropped with its bytes."""
    ours, theirs = socket.socketpair()
    owner = Scripted()
    wire = WebSocket(NativeSocket(fileno=ours.detach()), owner, cast(Deadlines, clock), replace(LIMITS, send_buffer_bytes=4096))
    with theirs:
        fill(wire)
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


def test_nothing_overtakes_the_answer_to_the_handshake(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """Until it is written the wire counts as one that waits for room, so that nobody writes to it directly."""
    wire, owner, theirs = pair
    wire.put_first(b"the answer ")
    assert (wire.writing, wire.is_clear) == (True, False)
    owner.chunks = [b"a frame"]

    wire.write_first()

    assert theirs.recv(100) == b"the answer a frame"
    assert (wire.writing, wire.is_clear, owner.idle) == (False, True, 1)


def test_an_answer_for_which_there_is_no_room_is_written_when_there_is(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """A peer with a full buffer gets all of it, in order."""
    wire, _, theirs = pair
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += wire.send(b"-" * 4096)
    wire.put_first(b"the answer")
    wire.write_first()
    assert wire.writing

    got = b""
    while len(got) < filled:
        got += theirs.recv(65536)
    turn()

    assert got[filled:] + theirs.recv(100) == b"the answer"
    assert not wire.writing


def test_a_goodbye_before_the_answer_was_written_follows_it(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """A session may end in the turn in which it began."""
    wire, owner, theirs = pair
    wire.put_first(b"the answer")
    wire.close(1008, "no")
    wire.write_first()

    assert theirs.recv(100).startswith(b"the answer\x88")
    assert owner.lost == ["transport error"]


def test_an_answer_to_a_client_that_is_gone_loses_the_socket(pair: tuple[WebSocket, Scripted, socket.socket]) -> None:
    """The owner is told once."""
    wire, owner, theirs = pair
    wire.put_first(b"the answer")
    theirs.close()
    wire.write_first()
    wire.write_first()

    assert wire.closed
    assert len(owner.lost) == 1
