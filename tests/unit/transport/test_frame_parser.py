"""From bytes to messages: any split of the stream, any fragmentation, and every limit, without a socket."""

import collections
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from headgate.transport.frame_parser import FRAGMENTS_PER_MESSAGE, MAX_FRAGMENTS, Inbound, ProtocolViolation, whole_text
from tests.support.websocket_codec import BINARY, CLOSE, CONTINUATION, PING, TEXT, header, masked

LIMIT = 1000


def sent(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    """Return a frame as a browser sends it, made by the `websockets` package."""
    return Frame(opcode, data, fin).serialize(mask=True)


def fragmented(opcode: Opcode, pieces: list[bytes]) -> bytes:
    last = len(pieces) - 1
    return b"".join(sent(Opcode.CONT if index else opcode, piece, fin=index == last) for index, piece in enumerate(pieces))


def fed(stream: bytes, cuts: list[int] | None = None, limit: int = LIMIT) -> list[tuple[Opcode, str | bytes]]:
    """Return the completed messages of a stream that arrives cut at these places."""
    inbound = Inbound(limit)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts or []), len(stream)]
    messages: list[tuple[Opcode, str | bytes]] = []
    for start, end in pairwise(edges):
        messages += inbound.feed(stream[start:end])
    assert inbound.at_rest
    return messages


def refused(stream: bytes, limit: int = LIMIT) -> int:
    """Return the close code with which a stream is refused."""
    with pytest.raises(ProtocolViolation) as violation:
        list(Inbound(limit).feed(stream))
    assert violation.value.reason
    return violation.value.code


def outcome(stream: bytes, cuts: list[int], limit: int) -> object:
    """Return the messages of a stream that arrives cut at these places, or the code and reason of its fault."""
    try:
        return fed(stream, cuts, limit)
    except ProtocolViolation as violation:
        return violation.code, violation.reason


def verdict_of_library(stream: bytes, limit: int) -> object:
    """Return how the `websockets` package reads the first frame of a stream: its parts, a close code, or None for more bytes."""
    reader = StreamReader()
    reader.feed_data(stream)
    parsing = Frame.parse(reader.read_exact, mask=True, max_size=limit)
    try:
        next(parsing)
    except StopIteration as end:
        frame = end.value
        return frame.opcode, bytes(frame.data), frame.fin
    except PayloadTooBig:
        return 1009
    except ProtocolError:
        return 1002
    return None


def verdict(stream: bytes, limit: int) -> object:
    """Return the same of ours."""
    inbound = Inbound(limit)
    inbound._held += stream
    try:
        return inbound._next_frame()
    except ProtocolViolation as violation:
        return violation.code


LENGTHS = st.one_of(
    st.integers(0, 127).map(lambda size: bytes([size])),
    st.integers(0, 65535).map(lambda size: b"\x7e" + size.to_bytes(2)),
    st.integers(0, 2**64 - 1).map(lambda size: b"\x7f" + size.to_bytes(8)),
    st.integers(0, 2 * LIMIT).map(lambda size: b"\x7f" + size.to_bytes(8)),
)


@given(st.integers(0, 255), st.booleans(), LENGTHS, st.binary(min_size=0, max_size=2 * LIMIT), st.integers(0, 2 * LIMIT + 20))
def test_a_frame_is_what_the_websockets_package_makes_of_it(
    first: int, is_masked: bool, length: bytes, rest: bytes, cut: int
) -> None:
    """Any first byte, any way to write a size, cut anywhere. A reserved bit, and a control frame that is too long or a
    fragment, are malformed from the first two bytes on; the package may wait for more, or take an overlong size."""
    stream = bytes([first, length[0] | 0x80 * is_masked, *length[1:], *rest])[:cut]
    is_bad_control = bool(first & 0x08) and (length[0] > 125 or not first & 0x80)
    is_malformed = len(stream) > 1 and (first & 0x70 or is_bad_control)
    assert verdict(stream, LIMIT) == (1002 if is_malformed else verdict_of_library(stream, LIMIT))


SIZES = (0, 1, 125, 126, 127, LIMIT, LIMIT + 1, 65535, 65536)
# A size that needs no further bytes, twice; no mask; a reserved bit.
ODD = (b"\x81\xfe\0\5" + bytes(4), b"\x81\xff" + bytes(7) + b"\5" + bytes(4), b"\x81\5", b"\xc1\x85" + bytes(4))


@pytest.mark.parametrize(
    "stream",
    [
        *(pytest.param(sent(Opcode.TEXT, each * size), id=f"{each!r} {size}") for size in SIZES for each in (b"a", b"\xff")),
        *(pytest.param(head + b"hello", id=head.hex()) for head in ODD),
    ],
)
@pytest.mark.parametrize("limit", [LIMIT, 100_000])
def test_a_text_that_comes_at_once_means_what_it_means_in_pieces(stream: bytes, limit: int) -> None:
    """Most messages are one whole frame, and are read in one step, with every limit, and every fault. An odd one is left to the
    parser."""
    assert outcome(stream, [], limit) == outcome(stream, [1, 3, 7], limit)


@given(st.lists(st.tuples(st.text(max_size=30), st.integers(1, 4)), max_size=6), st.lists(st.integers(0, 5000), max_size=20))
def test_messages_do_not_depend_on_how_the_stream_is_cut(messages: list[tuple[str, int]], cuts: list[int]) -> None:
    """Nor on how they are fragmented, inside a character or between two, with pings in between."""
    stream = b""
    for text, count in messages:
        data = text.encode()
        step = max(1, len(data) // count)
        pieces = [data[start : start + step] for start in range(0, len(data), step)] or [b""]
        stream += sent(Opcode.PING, b"p") + fragmented(Opcode.TEXT, pieces)

    received = fed(stream, cuts)

    assert [data for opcode, data in received if opcode is Opcode.TEXT] == [text for text, _ in messages]
    assert sum(opcode is Opcode.PING for opcode, _ in received) == len(messages)


@given(st.integers(0, 60), st.lists(st.integers(0, 70), min_size=1, max_size=8))
def test_the_size_limit_is_on_the_whole_message(limit: int, sizes: list[int]) -> None:
    """Accepted if and only if the fragments together are at most the limit."""
    stream = fragmented(Opcode.BINARY, [b"x" * size for size in sizes])

    if sum(sizes) <= limit:
        assert fed(stream, limit=limit) == [(Opcode.BINARY, b"x" * sum(sizes))]
    else:
        assert refused(stream, limit) == 1009


@pytest.mark.parametrize("opcode", [Opcode.TEXT, Opcode.BINARY])
@pytest.mark.parametrize("declared", [LIMIT + 1, 10**9, 2**40, 2**63 - 1, 2**64 - 1])
def test_a_frame_too_large_is_refused_from_its_header(opcode: Opcode, declared: int) -> None:
    """With the limit; nothing of the payload need have come."""
    with pytest.raises(ProtocolViolation) as violation:
        list(Inbound(LIMIT).feed(header(opcode, declared) + b"\x01\x02\x03\x04"))

    assert (violation.value.code, violation.value.reason) == (1009, f"message too big: at most {LIMIT} bytes")


def test_the_limit_counts_bytes_and_not_characters() -> None:
    """A character of two bytes counts twice. It starts from zero with each message, because it is no budget."""
    assert fed(sent(Opcode.TEXT, "ü".encode() * (LIMIT // 2)))[0][0] is Opcode.TEXT
    assert refused(sent(Opcode.TEXT, "ü".encode() * (LIMIT // 2) + b"x")) == 1009
    assert len(fed(fragmented(Opcode.BINARY, [b"x" * 400, b"x" * 600]) * 3)) == 3


@pytest.mark.parametrize("payload", [b"", b"x" * 125])
def test_a_control_frame_does_not_count_against_the_message_it_interrupts(payload: bytes) -> None:
    """A ping may come when the message has used its limit up."""
    stream = sent(Opcode.TEXT, b"x" * LIMIT, fin=False) + sent(Opcode.PING, payload) + sent(Opcode.CONT)

    assert fed(stream) == [(Opcode.PING, payload), (Opcode.TEXT, "x" * LIMIT)]


def test_the_number_of_fragments_is_bounded() -> None:
    assert fed(fragmented(Opcode.TEXT, [b""] * MAX_FRAGMENTS))[-1] == (Opcode.TEXT, "")
    assert refused(fragmented(Opcode.TEXT, [b""] * (MAX_FRAGMENTS + 1))) == 1008


def test_pieces_are_told_now_and_then() -> None:
    """So that a client that sends nothing else is noticed; the last piece is the message."""
    pieces = [b"x"] * (2 * FRAGMENTS_PER_MESSAGE)

    assert fed(fragmented(Opcode.TEXT, pieces)) == [(Opcode.CONT, b""), (Opcode.TEXT, b"".join(pieces).decode())]


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1014, 3000, 4999])
def test_a_valid_close_is_passed_on(code: int) -> None:
    for payload in (code.to_bytes(2, "big") + "bye ü".encode(), b""):
        assert fed(sent(Opcode.CLOSE, payload)) == [(Opcode.CLOSE, payload)]


FORBIDDEN = {
    "unmasked": (masked(TEXT, "4x", mask=False), 1002),
    "rsv1": (masked(TEXT, "4x", reserved=0b100), 1002),
    "rsv2": (masked(TEXT, "4x", reserved=0b010), 1002),
    "rsv3": (masked(TEXT, "4x", reserved=0b001), 1002),
    "rsv1 of a ping": (masked(PING, "", reserved=0b100), 1002),
    "opcode 3": (masked(3, "4x"), 1002),
    "opcode 11": (masked(11, ""), 1002),
    "lone continuation": (masked(CONTINUATION, "x"), 1002),
    "text in text": (masked(TEXT, "4", fin=False) + masked(TEXT, "4"), 1002),
    "binary in text": (masked(TEXT, "4", fin=False) + masked(BINARY, "4"), 1002),
    "ping in parts": (masked(PING, "", fin=False), 1002),
    "long ping": (masked(PING, b"x" * 126), 1002),
    "long close": (masked(CLOSE, b"x" * 126), 1002),
    "half a close code": (masked(CLOSE, b"\x03"), 1002),
    "close reason not UTF-8": (masked(CLOSE, b"\x03\xe8\xff"), 1007),
    "ff": (masked(TEXT, b"4\xff"), 1007),
    "overlong": (masked(TEXT, b"4\xc0\xaf"), 1007),
    "surrogate": (masked(TEXT, b"4\xed\xa0\x80"), 1007),
    "cut character": (masked(TEXT, b"4\xc3", fin=False) + masked(CONTINUATION, b"("), 1007),
    **{
        f"close code {code}": (sent(Opcode.CLOSE, code.to_bytes(2, "big")), 1002)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)
    },
}


@pytest.mark.parametrize(("stream", "code"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_frame_that_the_standard_forbids_has_a_code(stream: bytes, code: int) -> None:
    """RFC 6455 sections 5.1 to 5.5, 7.4 and 8.1; whole, or byte by byte."""
    assert refused(stream) == code
    inbound = Inbound(LIMIT)
    with pytest.raises(ProtocolViolation) as violation:
        collections.deque(message for byte in stream for message in inbound.feed(bytes([byte])))
    assert violation.value.code == code


def test_messages_before_a_fault_are_delivered() -> None:
    """In the same segment, in order; and the fault after it."""
    messages = Inbound(LIMIT).feed(sent(Opcode.TEXT, b"one") + sent(Opcode.TEXT, b"two") + b"\xff\xff")

    assert [next(messages), next(messages)] == [(Opcode.TEXT, "one"), (Opcode.TEXT, "two")]
    with pytest.raises(ProtocolViolation):
        next(messages)


def test_an_idle_connection_needs_no_parser() -> None:
    """`at_rest` exactly between messages, when the object can be dropped."""
    inbound = Inbound(LIMIT)
    stream = fragmented(Opcode.TEXT, [b"a", b"b"])
    rests = []
    for byte in stream:
        list(inbound.feed(bytes([byte])))
        rests.append(inbound.at_rest)

    assert rests == [False] * (len(stream) - 1) + [True]


@given(st.text(max_size=LIMIT) | st.binary(max_size=40), st.sampled_from((TEXT, BINARY)), st.booleans(), st.sampled_from(SIZES))
def test_a_whole_text_is_what_the_parser_makes_of_it(payload: str | bytes, opcode: int, fin: bool, limit: int) -> None:
    """It takes every valid text in one frame, and nothing else."""
    data = payload.encode() if isinstance(payload, str) else payload
    stream = sent(Opcode(opcode), data, fin=fin)
    try:
        messages = list(Inbound(limit).feed(stream))
    except ProtocolViolation:
        messages = []
    is_text = [kind for kind, _ in messages] == [Opcode.TEXT] and len(data) <= min(limit, 65535)
    expected = messages[0][1] if is_text else None
    assert whole_text(stream, limit) == expected


@pytest.mark.parametrize("odd", ODD)
def test_a_whole_text_has_the_shortest_size_and_a_mask(odd: bytes) -> None:
    """The parser judges everything else."""
    assert whole_text(odd + b"hello", LIMIT) is None
