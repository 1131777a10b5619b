"""Clients that leave, each way there is: their disconnect handlers find everything still there, and nothing stays behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import socketio

from tests.integration.transport.clients import DEADLINE_S, Polling, WebSocket, closing
from tests.integration.transport.real_client import POLLING, SOON, WEBSOCKET, cut, in_the_room, join
from tests.integration.transport.server_process import ServerProcess, StartServer

SMALL_BUFFER_BYTES = 4096
# What is there only while somebody is.
LEFTOVERS = ("sessions", "environs", "members", "in_the_room", "half_gone", "half_binary", "handlers")


def entered(port: int, user: str, more: str = "") -> WebSocket:
    """Return a WebSocket made by hand that is in the room, and takes little before it has to be read."""
    client = WebSocket(port, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    client.send(f'40/room,{{"user":"{user}"{more}}}')
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
def put_out(server: ServerProcess, user: str) -> Iterator[None]:
    """The application disconnects the client, in a handler of that client's own event."""
    with in_the_room(server.port, WEBSOCKET, user) as client:
        client.emit("put_me_out", namespace="/room")
        yield


@contextmanager
def put_out_polling(server: ServerProcess, user: str) -> Iterator[None]:
    """The same without a WebSocket."""
    with in_the_room(server.port, POLLING, user) as client:
        client.emit("put_me_out", namespace="/room")
        yield


@contextmanager
def engine_put_out(server: ServerProcess, user: str) -> Iterator[None]:
    """The application ends the Engine.IO session."""
    client = entered(server.port, user)
    with closing(client):
        server.debug("disconnect", engine=True)
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
    (put_out, "server disconnect", "websocket"),
    (put_out_polling, "server disconnect", "polling"),
    (engine_put_out, "server disconnect", "websocket"),
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


class TestDisconnectHandler:
    """What it may rely on."""

    @pytest.mark.parametrize(("leave", "reason", "transport"), WAYS, ids=[way.__name__ for way, *_ in WAYS])
    def test_it_finds_the_session_however_the_client_leaves(
        self, server: ServerProcess, leave: Way, reason: str, transport: str
    ) -> None:
        """What was saved, and what it saves; transport, environ, rooms. Behind it nothing is left."""
        server.debug("limit", **SOON, write_deadline_s=60)
        user = leave.__name__
        with leave(server, user):
            state = server.until(
                lambda state: state["leavings"] and state["leavings"][-1]["user"] == user, "the disconnect handler done"
            )

        assert state["leavings"][-1] == {
            "user": user,
            "reason": reason,
            "saved": reason,
            "transport": transport,
            "environ": True,
            "rooms": True,
        }
        server.until(lambda state: not any(state[name] for name in LEFTOVERS), "nothing left")

    def test_one_that_raises_leaves_no_ghost_and_costs_no_other_namespace_its_own(
        self, start_failing_server: StartServer, asynchronous: bool
    ) -> None:
        """The client is out of its rooms, whoever disconnected it; the next handler runs; the server says what failed."""
        server = start_failing_server(options={"async_handlers": asynchronous})
        leaving: list[Callable[[WebSocket], object]] = [
            WebSocket.close,
            lambda client: client.send("1"),
            lambda client: client.send("41/room,"),
            lambda client: client.send('42/room,["put_me_out"]'),
            lambda client: server.debug("disconnect", engine=True),
        ]
        for count, leave in enumerate(leaving, 1):
            client = entered(server.port, str(count), ',"raises":true')
            with closing(client):
                client.send("40")
                assert client.text().startswith("40{")
                assert client.text().startswith('42["auth"')
                leave(client)
                server.until(lambda state: not state["in_the_room"] and not state["half_gone"], "nobody in the room")
            server.until(lambda state, count=count: len(state["ends"]) == count, "the handler of `/`")  # type: ignore[misc]

        state = server.until(lambda state: not any(state[name] for name in LEFTOVERS), "nothing left")
        assert [leaving["user"] for leaving in state["leavings"]] == ["1", "2", "3", "4", "5"]
        assert server.errors.count("this disconnect handler fails") >= 5

    def test_one_that_waits_has_its_session_until_it_is_done(self, start_server: StartServer, asynchronous: bool) -> None:
        """The application disconnects a client, the browser closes the connection for its part, the handler is still at it."""
        server = start_server(options={"async_handlers": asynchronous})
        with in_the_room(server.port, WEBSOCKET, "ana", waits=True) as client:
            client.emit("put_me_out", namespace="/room")
            server.until(lambda state: state["leaving"] and state["closed"], "a handler that waits, and a closed connection")
            server.debug("release")
            (leaving,) = server.until(lambda state: state["leavings"], "the handler done")["leavings"]

        assert (leaving["user"], leaving["saved"], leaving["environ"]) == ("ana", "server disconnect", True)
        server.until(lambda state: not any(state[name] for name in LEFTOVERS), "nothing left")

    def test_handlers_of_what_came_before_the_goodbye_find_the_session_too(
        self, start_server: StartServer, asynchronous: bool
    ) -> None:
        """Events and the end in one segment, as a page sends them that is being left."""
        server = start_server(options={"async_handlers": asynchronous})
        for count, goodbye in enumerate((["41/room,", "1"], ["1"]), 1):
            client = entered(server.port, "ana")
            with closing(client):
                client.send(*['42/room,["note"]'] * 5, *goodbye)
                server.until(lambda state, count=count: len(state["leavings"]) == count, "the goodbye")  # type: ignore[misc]

            assert server.state()["notes"] == ["ana"] * 5 * count

    def test_an_event_that_is_delivered_behind_the_end_finds_the_session_too(
        self, start_server: StartServer, asynchronous: bool
    ) -> None:
        """What waited for an earlier handler when the connection broke."""
        server = start_server(options={"async_handlers": asynchronous})
        client = entered(server.port, "ana")
        with closing(client):
            client.send("40/other,", *['42/room,["note"]'] * 5)  # joining /other takes a while
        state = server.until(lambda state: state["leavings"], "the goodbye")

        assert state["notes"] == ["ana"] * 5


def test_a_connect_handler_that_raises_leaves_no_ghost(start_failing_server: StartServer) -> None:
    """The client is in no room, may try again, and leaves nothing behind."""
    server = start_failing_server()
    client = WebSocket(server.port)
    with closing(client):
        client.send('40/room,{"user":"ana","fails":true}')
        server.until(lambda state: "this connect handler fails" in server.errors and not state["members"], "out of the room")
        client.send('40/room,{"user":"ana"}')
        assert client.text().startswith('40/room,{"sid"')
    state = server.until(lambda state: not any(state[name] for name in LEFTOVERS), "nothing left")

    assert [leaving["user"] for leaving in state["leavings"]] == ["ana"]


def test_with_always_connect_a_client_whose_connect_handler_raised_stays(start_failing_server: StartServer) -> None:
    """It has had its CONNECT: it is in the room, and not ended for having joined nothing."""
    server = start_failing_server(options={"always_connect": True}, handshake_deadline_s=600)
    client = WebSocket(server.port)
    with closing(client):
        client.send('40/room,{"user":"ana","fails":true}')
        assert client.text().startswith('40/room,{"sid"')
        idle = WebSocket(server.port)
        with closing(idle):
            server.debug("expire_handshakes")
            assert idle.end().reason == "no CONNECT within 600 s"
        client.send('42/room,1["note"]')
        assert client.text() == '43/room,1["ana"]'


@pytest.mark.parametrize("transports", [POLLING, WEBSOCKET], ids="+".join)
def test_everyone_in_the_room_hears_of_twenty_who_leave(start_server: StartServer, transports: tuple[str, ...]) -> None:
    """The real client hears each name once, and there are no ghosts."""
    server = start_server(**SOON)
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
            assert half_left.wait(DEADLINE_S), f"heard of {len(names)}: {names}"
            for page in pages:
                page.send("1")
            assert all_left.wait(DEADLINE_S), f"heard of {len(names)}: {names}"
        server.until(lambda state: state["members"] == state["in_the_room"] == state["environs"] == 1, "the witness alone")
    finally:
        witness.disconnect()

    assert sorted(names) == sorted([f"tab {number}" for number in range(10)] + [f"page {number}" for number in range(10)])
