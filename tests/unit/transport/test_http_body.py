"""The body of a request, as the application reads it, and the rest of it that nobody has read."""

from __future__ import annotations

import io
import socket
from typing import TYPE_CHECKING

import pytest
from gevent import pywsgi

from headgate.transport.http_body import MAX_DISCARD_BYTES, MAX_LINGER_BYTES, RequestBody
from headgate.transport.http_limits import Part

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Handler:
    """The handler of a connection: the body's bytes are in `stream`. `sent_late`: writing waits for what was written before."""

    def __init__(self, stream: bytes, *, breaks_off: bool = False, sent_late: bool = False) -> None:
        self.part, self.parts = Part.BODY, list[Part]()
        self.broken = self.close_connection = False
        self.socket: Handler | None = self
        self.sent, self.sent_late = b"", sent_late
        self.shut: list[int] = []
        self.reader = io.BufferedReader(io.BytesIO(stream))
        self._breaks_off = breaks_off

    def begin(self, part: Part) -> None:
        self.part = part
        self.parts.append(part)

    def receive_into(self, buffer: WriteableBuffer) -> int:
        if self._breaks_off:
            raise ConnectionResetError
        return self.reader.readinto(buffer)

    def send_ahead(self, data: bytes) -> None:
        if self.sent_late:
            self.begin(Part.ANSWER)
        self.sent += data

    def shutdown(self, how: int) -> None:
        self.shut.append(how)

    @property
    def left_bytes(self) -> int:
        """How much of the stream nobody has read."""
        return len(self.reader.read())


def body_of(handler: Handler, length: int | None, *, chunked: bool = False, waits: bool = False) -> RequestBody:
    """Return a body of this length, or a chunked one. `waits`: its client waits for 100 Continue before it sends it."""
    return RequestBody(handler, pywsgi.Input(handler.reader, length, handler if waits else None, chunked))


def chunks(*sizes: int) -> bytes:
    """Return a chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (size, b"x" * size) for size in sizes) + b"0\r\n\r\n"


def test_a_body_is_read_in_pieces_and_in_lines() -> None:
    """Up to its length, whatever comes behind it."""
    handler = Handler(b"one\ntwo\nthree" + b"the next request")
    body = body_of(handler, 13)

    assert (body.read(2), body.readline(), body.readline(), body.read(), body.read()) == (b"on", b"e\n", b"two\n", b"three", b"")
    assert body.unread_bytes == 0


def test_a_body_that_is_read_behind_the_beginning_of_its_answer_has_its_own_deadline_again() -> None:
    """An application may answer first and read then."""
    handler = Handler(b"hello")
    handler.part = Part.ANSWER
    body_of(handler, 5).read()

    assert handler.parts == [Part.BODY]


def test_a_body_that_could_not_be_read_is_the_connections_last() -> None:
    """Nobody knows where the next request would begin."""
    handler = Handler(b"half")
    body = body_of(handler, 100)
    with pytest.raises(OSError, match="unexpected end"):
        body.read()

    assert (handler.broken, handler.close_connection, body.abandoned) == (True, True, True)


@pytest.mark.parametrize(
    ("length", "read", "unread"),
    [(None, 0, 0), (0, 0, 0), (10, 0, 10), (10, 4, 6), (10, 10, 0)],
)
def test_a_body_knows_how_much_of_it_is_missing(length: int | None, read: int, unread: int) -> None:
    """By its declared length."""
    body = body_of(Handler(b"x" * 10), length)
    body.read(read)

    assert body.unread_bytes == unread
    assert not body.abandoned


def test_a_chunked_body_is_missing_until_its_end_has_come() -> None:
    """How much there is nobody says."""
    body = body_of(Handler(chunks(5)), None, chunked=True)
    assert body.read(5) == b"xxxxx"
    assert body.unread_bytes == MAX_DISCARD_BYTES
    assert body.read() == b""
    assert body.unread_bytes == 0


@pytest.mark.parametrize(
    ("missing", "waits", "abandoned"),
    [
        (MAX_DISCARD_BYTES, False, False),
        (MAX_DISCARD_BYTES + 1, False, True),
        (1, True, True),
        (0, True, False),
    ],
)
def test_a_connection_cannot_be_used_again_with_too_much_unread(missing: int, waits: bool, abandoned: bool) -> None:
    """Or while its client waits for leave to send."""
    body = body_of(Handler(b""), missing, waits=waits)

    assert body.abandoned is abandoned


def test_the_rest_of_a_small_body_is_read_so_that_the_connection_can_be_used_again() -> None:
    """And no byte of what comes behind it."""
    for stream, length in ((b"x" * 1000, 1000), (chunks(400, 600), None)):
        handler = Handler(stream + b"the next request")
        body = body_of(handler, length, chunked=length is None)
        body.read(10)
        body._discard()

        assert (handler.left_bytes, handler.shut, handler.close_connection) == (len(b"the next request"), [], False)


def test_a_body_that_was_read_is_left_alone() -> None:
    """One that there never was, too."""
    for length in (None, 0, 4):
        handler = Handler(b"bodythe next request")
        body = body_of(handler, length)
        body.read()
        handler.part = Part.ANSWER
        body._discard()

        assert (handler.parts, handler.shut, handler.close_connection) == ([], [], False)


@pytest.mark.parametrize(
    ("stream", "length"),
    [(b"x" * 10_000_000, 10_000_000), (chunks(*[1000] * 10_000), None)],
    ids=["length", "chunked"],
)
def test_of_a_large_body_no_more_is_read_than_the_goodbye_needs(stream: bytes, length: int | None) -> None:
    """The client is told that our answer was all; what it is still sending is read for a while, or it would be reset."""
    handler = Handler(stream)
    body_of(handler, length, chunked=length is None)._discard()
    read_bytes = len(stream) - handler.left_bytes

    assert handler.shut == [socket.SHUT_WR]
    assert handler.close_connection
    assert MAX_LINGER_BYTES <= read_bytes <= MAX_LINGER_BYTES + 3 * MAX_DISCARD_BYTES


def test_a_client_that_breaks_off_in_the_goodbye_is_gone() -> None:
    """Nothing of that reaches the server."""
    handler = Handler(b"", breaks_off=True)
    body_of(handler, MAX_DISCARD_BYTES + 1)._discard()

    assert handler.close_connection


def test_a_client_that_waits_for_leave_to_send_is_not_asked_for_its_body() -> None:
    """It has its answer instead."""
    handler = Handler(b"x" * 10)
    body_of(handler, 10, waits=True)._discard()

    assert (handler.sent, handler.left_bytes, handler.close_connection) == (b"", 10, True)


def test_reading_gives_a_client_leave_to_send() -> None:
    """100 Continue, once, and through the handler: the socket may still be full of earlier answers."""
    for sent_late, stream, length in ((False, b"x" * 10, 10), (True, b"x" * 10, 10), (True, chunks(10), None)):
        handler = Handler(stream, sent_late=sent_late)
        body = body_of(handler, length, chunked=length is None, waits=True)
        assert body.read(5) + body.read() == b"x" * 10

        assert handler.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert handler.part is Part.BODY


def test_nothing_more_is_read_of_a_connection_that_is_broken_or_gone() -> None:
    """A WebSocket has taken it over, or the body is in doubt."""
    broken, gone = Handler(b"x" * 10), Handler(b"x" * 10)
    broken.broken, gone.socket = True, None
    for handler in (broken, gone):
        body_of(handler, 10)._discard()

        assert handler.left_bytes == 10
