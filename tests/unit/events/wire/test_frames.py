"""Frames from server to client: read back by another implementation, the parser of the `websockets` package."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Close, Opcode
from websockets.frames import Frame as Parsed
from websockets.streams import StreamReader

from headgate.events.event import Event
from headgate.events.wire.frames import Frame, close_frame, event_frame, message_frame, pong_frame

# The edges of RFC 6455's three length encodings.
SIZES = [0, 1, 125, 126, 127, 65535, 65536, 100_000]


def parsed(stream: bytes) -> list[Parsed]:
    """Return all frames of a stream, which must end with the last one."""
    reader = StreamReader()
    reader.feed_data(stream)
    frames = []
    while reader.buffer:
        parser = Parsed.parse(reader.read_exact, mask=False)
        with pytest.raises(StopIteration) as done:
            next(parser)
        frames.append(done.value.value)
    return frames


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("binary", [False, True])
def test_a_frame_is_read_back_as_it_was_made(size: int, binary: bool) -> None:
    packet = b"x" * size
    made = Frame(packet, binary=binary)

    (read,) = parsed(made.wire)

    assert (bytes(read.data), read.opcode, read.fin) == (packet, Opcode.BINARY if binary else Opcode.TEXT, True)
    assert made.packet == packet


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_frames_joined_by_concatenation_are_a_valid_stream(packets: list[bytes]) -> None:
    """The fan-out relies on this."""
    stream = b"".join(Frame(packet).wire for packet in packets)

    assert [bytes(read.data) for read in parsed(stream)] == packets


def test_a_message_frame_carries_an_engineio_message() -> None:
    """`4` and the Socket.IO packet; it is of no event."""
    made = message_frame(b'2["welcome"]')

    assert made.packet == b'42["welcome"]'
    assert (made.topic, made.offset, made.payload_bytes, made.attachment) == (None, None, 0, False)


@given(st.sampled_from([0, 1, 20, 60, 200, 65_500, 70_000]), st.integers(0, 60), st.booleans())
def test_an_event_frame_is_one_frame_of_any_size(size: int, more: int, replayed: bool) -> None:
    """Its header has the length; and it has the size for the queue's account."""
    event = Event("orders.1", b'"%b"' % (b"x" * (size + more)), "a-1", 7, "0123456789abcdef", 3)
    made = event_frame(b"n", event, replayed=replayed)

    (read,) = parsed(made.wire)
    assert (bytes(read.data), read.opcode, read.fin) == (made.packet, Opcode.TEXT, True)
    assert made.packet.startswith(b'42/n,["event","orders.1","x' if size + more else b'42/n,["event","orders.1",""')
    assert (made.topic, made.offset, made.payload_bytes, made.attachment) == ("orders.1", 3, len(event.data), False)


@given(st.binary(max_size=125))
def test_a_pong_carries_its_pings_payload(payload: bytes) -> None:
    """RFC 6455 section 5.5.3."""
    (read,) = parsed(pong_frame(payload))

    assert (read.opcode, bytes(read.data)) == (Opcode.PONG, payload)


@given(st.integers(3000, 4999), st.text(max_size=200))
def test_a_close_frame_is_valid_whatever_the_reason(code: int, reason: str) -> None:
    """A control frame carries 123 bytes of reason, cut between characters, never inside one."""
    (read,) = parsed(close_frame(code, reason))

    close = Close.parse(read.data)
    assert close.code == code
    assert reason.startswith(close.reason)
    assert len(close.reason.encode()) > 119 or close.reason == reason
