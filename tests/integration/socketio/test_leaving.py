"""Clients that leave over a real network, each way there is: their disconnect handlers find everything still there.

tests/unit/socketio/test_sessions.py has the handlers that raise, wait, or run behind the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import socketio

from tests.integration.socketio.real_client import POLLING, SOON, WEBSOCKET, cut, in_the_room, join
from tests.integration.transport.clients import DEADLINE_S, Polling, WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer

SMALL_BUFFER_BYTES = 4096
# These are there only while somebody is.
LEFTOVERS = ("sessions", "environs", "members", "in_the_room", "half_gone", "half_binary", "handlers")


def entered(port: int, user: str) -> WebSocket:
    """Return a WebSocket made by hand that is in the room, and takes little before it has to be read."""
    client = WebSocket(port, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    client.send(f'40/room,{{"user":"{user}"}}')
    assert client.text().startswith("40/room,")
    return client


def polling(port: int, user: str) -> Polling:
    """Return a polling session made by hand that is in the room."""
    session = Polling(port)
    session.post(f'40/room,{{"user":"{user}"}}')
    assert next(session.messages()).startswith("40/room,")
    return session


@contextmanager
def goodbye(server: ServerProcess, user: str) -> Iterator[None]:
    """The page says that it leaves the namespace, and then that it leaves, over HTTP."""
    polling(server.port, user).post("41/room,", "1")
    yield


@contextmanager
def lost_connection(server: ServerProcess, user: str) -> Iterator[None]:
    """The network cuts the WebSocket, without a close frame."""
    with in_the_room(server.port, WEBSOCKET, user) as client:
        cut(client)
        yield


@contextmanager
def closed_tab(server: ServerProcess, user: str) -> Iterator[None]:
    """The browser closes the TCP connection."""
    entered(server.port, user).close()
    yield


@contextmanager
def engine_goodbye(server: ServerProcess, user: str) -> Iterator[None]:
    """The page closes the Engine.IO session and says nothing to the namespace."""
    client = entered(server.port, user)
    with closing(client):
        client.send("1")
        yield


@contextmanager
def abandoned_poll(server: ServerProcess, user: str) -> Iterator[None]:
    """The browser gives its poll up."""
    server.debug("limit", ping_interval_s=3600)  # a ping would be the answer to that poll
    session = polling(server.port, user)
    poll = session.begin_poll()
    server.until(lambda state: session.sid in state["polls"], "the poll waiting")
    poll.close()
    yield


@contextmanager
def malformed_packet(server: ServerProcess, user: str) -> Iterator[None]:
    """The client breaks the protocol."""
    client = entered(server.port, user)
    with closing(client):
        client.send("4abc")
        yield


@contextmanager
def disconnected(server: ServerProcess, user: str) -> Iterator[None]:
    """The application disconnects the client, in a handler of that client's own event."""
    with in_the_room(server.port, WEBSOCKET, user) as client:
        client.emit("disconnect_me", namespace="/room")
        yield


@contextmanager
def disconnected_polling(server: ServerProcess, user: str) -> Iterator[None]:
    """The same without a WebSocket."""
    with in_the_room(server.port, POLLING, user) as client:
        client.emit("disconnect_me", namespace="/room")
        yield


@contextmanager
def engine_disconnected(server: ServerProcess, user: str) -> Iterator[None]:
    """The application ends the Engine.IO session."""
    client = entered(server.port, user)
    with closing(client):
        server.debug("disconnect")
        yield


@contextmanager
def silence(server: ServerProcess, user: str) -> Iterator[None]:
    """The client answers no ping."""
    client = entered(server.port, user)
    with closing(client):
        server.debug("limit", ping_timeout_s=0.2)
        server.debug("ping")
        yield


@contextmanager
def silent_polling(server: ServerProcess, user: str) -> Iterator[None]:
    """The client polls no more."""
    polling(server.port, user)
    server.debug("limit", ping_timeout_s=0.2)
    server.debug("ping")
    yield


@contextmanager
def stopped(server: ServerProcess, user: str) -> Iterator[None]:
    """The client accepts no more bytes, until the write deadline."""
    server.debug("limit", write_deadline_s=0.2)
    client = entered(server.port, user)
    with closing(client):
        server.debug("emit", count=20, size=20_000, namespace="/room")
        yield


@contextmanager
def slow(server: ServerProcess, user: str) -> Iterator[None]:
    """The client's queue is full."""
    polling(server.port, user)
    server.debug("emit", count=300, namespace="/room")
    yield


Way = Callable[[ServerProcess, str], Any]
WAYS: list[tuple[Way, str, str]] = [
    (goodbye, "client disconnect", "polling"),
    (lost_connection, "transport close", "websocket"),
    (closed_tab, "transport close", "websocket"),
    (engine_goodbye, "client disconnect", "websocket"),
    (abandoned_poll, "transport close", "polling"),
    (malformed_packet, "parse error", "websocket"),
    (disconnected, "server disconnect", "websocket"),
    (disconnected_polling, "server disconnect", "polling"),
    (engine_disconnected, "server disconnect", "websocket"),
    (silence, "ping timeout", "websocket"),
    (silent_polling, "ping timeout", "polling"),
    (stopped, "write deadline", "websocket"),
    (slow, "slow consumer", "polling"),
]


@pytest.fixture(scope="module", params=[True, False], ids=["async handlers", "handlers in turn"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """Whether handlers run in greenlets of their own, or one by one."""
    value: bool = request.param
    return value


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer, asynchronous: bool) -> ServerProcess:
    """A server on which nobody is but the one client of each test."""
    return start_shared_server(options={"async_handlers": asynchronous}, send_buffer_bytes=SMALL_BUFFER_BYTES, **SOON)


def test_a_disconnect_handler_finds_the_session_however_its_client_leaves(server: ServerProcess) -> None:
    """Its saved data, which it may change, its transport, its environ, its rooms. Behind it nothing is left."""
    for leave, reason, transport in WAYS:
        server.debug("limit", **SOON, write_deadline_s=60)
        user = leave.__name__
        with leave(server, user):
            state = server.until(
                lambda state, user=user: state["leavings"] and state["leavings"][-1]["user"] == user,  # type: ignore[misc]
                f"the disconnect handler of {user}",
            )

        assert state["leavings"][-1] == {
            "user": user,
            "reason": reason,
            "saved": reason,
            "transport": transport,
            "environ": True,
            "rooms": True,
        }
        server.until(lambda state: not any(state[name] for name in LEFTOVERS), f"nothing left of {user}")


def test_everyone_in_the_room_hears_of_twenty_who_leave(start_server: StartServer) -> None:
    """The real client hears each name once, over each transport, and there are no ghosts."""
    server = start_server(**SOON)
    for transports in (POLLING, WEBSOCKET):
        hear_twenty_leave(server, transports)


def hear_twenty_leave(server: ServerProcess, transports: tuple[str, ...]) -> None:
    """Have twenty join and leave, and the real client hear of each."""
    witness = socketio.Client(reconnection=False)
    names: list[str] = []
    half_left, all_left = threading.Event(), threading.Event()

    def left(name: str) -> None:
        names.append(name)
        if len(names) == 10:
            half_left.set()
        if len(names) == 20:
            all_left.set()

    witness.on("left the room", left, namespace="/room")
    join(witness, server.port, transports, "witness")
    tabs, pages = ([entered(server.port, f"{kind} {number}") for number in range(10)] for kind in ("tab", "page"))
    try:
        with closing(*tabs, *pages):
            for tab in tabs:
                tab.close()
            # The Python client takes at most 16 packets in the answer to one poll.
            assert half_left.wait(DEADLINE_S), f"heard of {len(names)} over {transports}: {names}"
            for page in pages:
                page.send("1")
            assert all_left.wait(DEADLINE_S), f"heard of {len(names)} over {transports}: {names}"
        server.until(lambda state: state["members"] == state["in_the_room"] == state["environs"] == 1, "the witness alone")
    finally:
        witness.disconnect()
    server.until(lambda state: not state["members"], "the witness gone")

    assert sorted(names) == sorted([f"tab {number}" for number in range(10)] + [f"page {number}" for number in range(10)])
