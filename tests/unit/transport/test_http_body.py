"""`wsgi.input`, over pieces that the test makes, and the rest of a body that was not read."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.http_channel import CONTINUE, MAX_DISCARD_BYTES, MAX_LINGER_BYTES, BadBody, Channel, Part, wsgi_input
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_parser import Request, RequestParser
from tests.support.http_peer import Pause, Peer, Reset

SIZES = st.none() | st.integers(-1, 12)


def body_of(pieces: list[bytes]) -> io.BufferedReader:
    left = iter(pieces)
    return wsgi_input(lambda: next(left, b""))


@given(
    st.lists(st.binary(min_size=1, max_size=8).map(lambda piece: piece.replace(b"\1", b"\n")), max_size=6),
    st.lists(st.tuples(st.sampled_from(["read", "readline", "readlines"]), SIZES), max_size=12),
)
def test_a_body_reads_as_a_file_does(pieces: list[bytes], calls: list[tuple[str, int | None]]) -> None:
    """However it comes in pieces, and however it is read."""
    body, file = body_of(pieces), io.BytesIO(b"".join(pieces))
    for name, size in calls:
        assert getattr(body, name)(size) == getattr(file, name)(size)
    assert list(body) == list(file)
    assert body.read() == b""


def incoming(head: bytes, *sends: bytes | Pause | Reset) -> tuple[Channel, Peer]:
    """Return a connection to a peer that has sent this head, and sends the rest."""
    peer = Peer(sends)
    parser = RequestParser(b"POST / HTTP/1.1\r\nHost: test\r\n" + head + b"\r\n")
    channel = Channel(peer.as_socket(), parser, HttpLimits())
    request = parser.next_event()
    assert isinstance(request, Request)
    channel.begin_body(request)
    return channel, peer


def chunks(*sizes: int) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (size, b"x" * size) for size in sizes) + b"0\r\n\r\n"


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("head", "sends", "failure"),
    [
        (b"Content-Length: 9\r\n", [b"half"], ConnectionResetError),
        (b"Content-Length: 9\r\n", [b"half", Reset()], ConnectionResetError),
        (CHUNKED, [b"5\r\nhelloX"], BadBody),
    ],
)
def test_a_body_that_could_not_be_read_is_the_connections_last(
    head: bytes, sends: list[bytes | Reset], failure: type[OSError]
) -> None:
    """It is unknown where the next request would begin; a second look finds no end of it either."""
    channel, _ = incoming(head, *sends)
    for expected in (failure, OSError):
        with pytest.raises(expected):
            channel.read_body()
    assert (channel.broken, channel.must_end, channel.finish()) == (True, True, False)


@pytest.mark.parametrize(
    ("head", "must_end"),
    [
        (b"", False),
        (b"Content-Length: %d\r\n" % MAX_DISCARD_BYTES, False),
        (b"Content-Length: %d\r\n" % (MAX_DISCARD_BYTES + 1), True),
        (b"Content-Length: 1\r\nExpect: 100-continue\r\n", True),
        (b"Content-Length: 0\r\nExpect: 100-continue\r\n", False),
        (CHUNKED, False),
    ],
)
def test_a_connection_cannot_be_used_again_with_too_much_unread(head: bytes, must_end: bool) -> None:
    """Or while its client waits for leave to send."""
    assert incoming(head)[0].must_end is must_end


def test_the_rest_of_a_small_body_is_read_so_that_the_connection_can_be_used_again() -> None:
    """And no byte after it."""
    for head, sent in ((b"Content-Length: 1000\r\n", b"x" * 1000), (CHUNKED, chunks(400, 600))):
        channel, peer = incoming(head, sent + b"the next request")
        assert channel.finish()
        assert (channel.parser.held, peer.shut) == (b"the next request", False)


@pytest.mark.parametrize(
    ("head", "sent"),
    [(b"Content-Length: 10000000\r\n", b"x" * 10_000_000), (CHUNKED, chunks(*[1000] * 10_000))],
    ids=["length", "chunked"],
)
def test_of_a_large_body_no_more_is_read_than_the_goodbye_needs(head: bytes, sent: bytes) -> None:
    """The client learns that our answer was all; its further bytes are read for a while, or it would be reset."""
    channel, peer = incoming(head, sent)
    assert not channel.finish()
    assert peer.shut
    assert MAX_LINGER_BYTES <= peer.sent_bytes <= MAX_LINGER_BYTES + 3 * MAX_DISCARD_BYTES


def test_a_client_that_waits_for_leave_to_send_is_not_asked_for_its_body() -> None:
    """It has its answer instead. Nor does one that breaks off in the goodbye reach the server."""
    channel, peer = incoming(b"Content-Length: 10\r\nExpect: 100-continue\r\n", b"x" * 10)
    assert not channel.finish()
    assert (peer.received, peer.sent_bytes) == (b"", 0)
    channel, _ = incoming(b"Content-Length: 1000000\r\n", Reset())
    assert not channel.finish()


@pytest.mark.parametrize("accepts", [[], [Pause(1)]])
@pytest.mark.parametrize(("head", "sent"), [(b"Content-Length: 10\r\n", b"x" * 10), (CHUNKED, chunks(10))])
def test_reading_gives_a_client_leave_to_send(accepts: list[int | Pause], head: bytes, sent: bytes) -> None:
    """100 Continue, once, also where the socket is still full of earlier answers; it is no part of the answer."""
    channel, peer = incoming(head + b"Expect: 100-continue\r\n", sent)
    peer._accepts = accepts
    assert channel.read_body() == b"x" * 10
    assert (peer.received, channel.sent_bytes, channel.part) == (CONTINUE, 0, Part.BODY)
