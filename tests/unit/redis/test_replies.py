"""The parser of our connections: replies in any pieces, and whether anything is left."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import gevent.socket
import pytest
import redis

from headgate.redis import budget
from headgate.redis.replies import Replies

Pair = tuple[Replies, socket.socket]


@pytest.fixture(params=["blocking", "cooperative"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A parser on one end of a connection, as a publisher and as a gateway has it, and the server's end."""
    ours, theirs = gevent.socket.socketpair() if request.param == "cooperative" else socket.socketpair()
    ours.settimeout(30)
    replies = Replies(4096)
    replies.on_connect(SimpleNamespace(_sock=ours))
    with ours, theirs:
        yield replies, theirs


def test_a_reply_comes_whole_however_it_is_cut(pair: Pair) -> None:
    """Bytes that come one by one, and two replies that come at once, are the same replies."""
    replies, server = pair
    for byte in b"*2\r\n:7\r\n$3\r\nabc\r\n":
        server.sendall(bytes([byte]))
    server.sendall(b"+OK\r\n:1\r\n")

    assert [replies.read_response() for _ in range(3)] == [[7, b"abc"], b"OK", 1]


def test_what_has_come_whole_is_ready(pair: Pair) -> None:
    """In order, errors in their places; no more than asked for, and never a wait for the rest."""
    replies, server = pair
    assert replies.ready(3) == []
    server.sendall(b"+first\r\n-ERR wrong\r\n*2\r\n:7\r\n$3\r\nabc\r\n+more\r\n+ha")

    assert replies.read_response() == b"first"
    error, others = replies.ready(2)
    assert (type(error), others) == (redis.ResponseError, [7, b"abc"])
    assert (replies.ready(3), replies.ready(3)) == ([b"more"], [])
    server.sendall(b"lf\r\n-LOADING Redis is loading\r\n")
    assert replies.read_response() == b"half"
    with pytest.raises(redis.BusyLoadingError):
        replies.ready(1)


def test_the_rest_of_a_reply_ends_with_the_budget(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though something comes within each wait."""
    replies, server = pair
    monkeypatch.setattr(budget, "left_s", lambda: -0.1)
    server.sendall(b"+whole\r\n$3\r\na")
    assert replies.read_response() == b"whole"
    with pytest.raises(TimeoutError):
        replies.read_response()


def test_an_error_is_returned_and_one_of_a_server_that_cannot_serve_is_raised(pair: Pair) -> None:
    """redis-py raises the first; the second ends the connection."""
    replies, server = pair
    server.sendall(b"-ERR wrong\r\n-LOADING Redis is loading\r\n*1\r\n-LOADING Redis is loading\r\n")

    assert isinstance(replies.read_response(), redis.ResponseError)
    for _ in range(2):
        with pytest.raises(redis.BusyLoadingError):
            replies.read_response()


def test_nothing_to_read_is_known_at_once(pair: Pair) -> None:
    """The question neither waits nor takes later bytes."""
    replies, server = pair
    assert not replies.can_read(0)

    server.sendall(b":1\r\n")

    assert replies.can_read(30)
    assert replies.read_response() == 1
    assert not replies.can_read(0)


def test_a_reply_too_many_is_noticed_where_it_came_with_the_first(pair: Pair) -> None:
    """It waits in our memory, where the kernel does not know of it."""
    replies, server = pair
    server.sendall(b":1\r\n:2\r\n")

    assert replies.read_response() == 1
    assert replies.can_read(0)


def test_a_closed_connection_has_an_end_to_read(pair: Pair) -> None:
    """The reader gets the error of an ended connection."""
    replies, server = pair
    server.close()

    assert replies.can_read(0)
    with pytest.raises(redis.ConnectionError, match="closed"):
        replies.read_response()


def test_without_a_connection_there_is_an_error() -> None:
    replies = Replies(4096)
    for read in (replies.can_read, replies.read_response):
        with pytest.raises(redis.ConnectionError, match="closed"):
            read()
