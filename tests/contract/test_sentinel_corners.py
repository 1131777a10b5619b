"""Corners of redis-py that headgate.redis.bounded relies on; each is named here once.

The pool calls `connect()` before it gives a connection to a caller, and `disconnect()` and `connect()` when it finds it broken;
`host` and `port` count when they are set before that.
"""

import contextlib
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.redis import bounded
from headgate.redis.bounded import Connection, TlsConnection
from headgate.redis.connections import connection_pool
from headgate.settings.addresses.redis_url import read_url
from tests.support.held_clock import HeldClock

URL = "redis{}+sentinel://127.0.0.1:1/mymaster"


class Discovery:
    """Stands for the Sentinels. The primary is the listener that `at` holds; `asked` counts the questions."""

    def __init__(self, at: socket.socket) -> None:
        self.at = at
        self.asked = 0

    def primary(self) -> tuple[str, int]:
        self.asked += 1
        host, port = self.at.getsockname()
        return host, port


@pytest.fixture
def listeners() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two servers that take connections; connecting sends them nothing."""
    with contextlib.ExitStack() as opened:
        first, second = (opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        for listener in (first, second):
            listener.settimeout(30)
        yield first, second


@pytest.fixture
def discovery(listeners: tuple[socket.socket, socket.socket]) -> Discovery:
    return Discovery(listeners[0])


@pytest.fixture
def pool(discovery: Discovery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A pool of one connection, as clients have it. On its clock no second passes, after which it asks by itself."""
    monkeypatch.setattr(bounded, "monotonic", HeldClock(1000.0))
    pool = connection_pool(read_url(URL.format("")), 30.0)
    pool.connection_kwargs["discovery"] = discovery
    yield pool
    pool.disconnect()


def leads_to(connection: Any, listener: socket.socket) -> bool:
    found: bool = connection._sock.getpeername() == listener.getsockname()
    return found


def test_a_live_connection_does_not_ask_the_sentinels_again(
    pool: Any, discovery: Discovery, listeners: tuple[socket.socket, socket.socket]
) -> None:
    """The pool gives the same connection a second time, and connecting once more changes nothing; the primary is another now."""
    connection = pool.get_connection()
    assert leads_to(connection, listeners[0])
    kept, discovery.at = connection._sock, listeners[1]

    pool.release(connection)
    again = pool.get_connection()
    again.connect()

    assert (again._sock, discovery.asked) == (kept, 1)
    pool.release(again)


@pytest.mark.parametrize("is_idle", [True, False], ids=["closed by the server", "without a socket"])
def test_a_broken_connection_asks_the_sentinels_and_leads_to_the_new_primary(
    pool: Any, discovery: Discovery, listeners: tuple[socket.socket, socket.socket], is_idle: bool
) -> None:
    """The pool notices that the server has closed an idle connection, and connects it again; so does the next `connect()`."""
    connection = pool.get_connection()
    discovery.at = listeners[1]
    if is_idle:
        pool.release(connection)
        listeners[0].accept()[0].close()
        # A busy machine delivers the end late.
        assert select.select([connection._sock], [], [], 30)[0]
        connection = pool.get_connection()
    else:
        connection.disconnect()
        assert connection._sock is None
        connection.connect()

    assert discovery.asked == 2
    assert leads_to(connection, listeners[1])
    assert (connection.host, connection.port) == listeners[1].getsockname()
    pool.release(connection)


def test_the_connections_of_a_pool_are_ours_with_tls_and_without() -> None:
    """`connection_class` and `connection_kwargs` decide what a pool makes."""
    for letter, kind in (("", Connection), ("s", TlsConnection)):
        pool: Any = connection_pool(read_url(URL.format(letter)), 30.0)
        connection = pool.make_connection()

        assert type(connection) is kind
        assert connection._sock is None
        assert connection._discovery is pool.connection_kwargs["discovery"]
