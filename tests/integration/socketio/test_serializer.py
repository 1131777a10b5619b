"""Packets other than the standard ones (`serializer=`) with the real python-socketio client, over each transport.

tests/unit/socketio/test_sessions.py has the rest: every kind of serializer, messages that are no packets, and serializers that
cannot work.
"""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from socketio.exceptions import ConnectionError as NotConnected

from tests.integration.socketio.real_client import POLLING, SOON, UPGRADED, WEBSOCKET, in_the_room
from tests.integration.transport.clients import DEADLINE_S
from tests.integration.transport.server_process import ServerProcess, StartServer

DATA = {"deep": [b"\x00\xff", {"bytes": b""}], "text": "ü € 😀", "number": 1.5, "nothing": None}


def test_the_real_client_does_everything(start_server: StartServer) -> None:
    """Over each transport, with auth, events and acknowledgements both ways, a refusal, order, goodbye; nothing is left."""
    server = start_server(options={"serializer": "msgpack"}, **SOON)
    for count, transports in enumerate((POLLING, WEBSOCKET, UPGRADED), 1):
        with pytest.raises(NotConnected), in_the_room(server.port, transports, "", serializer="msgpack", refuse=True):
            pass
        user = "+".join(transports)
        talk(server, transports, user)
        state = server.until(lambda state, count=count: len(state["leavings"]) == count, f"the goodbye of {user}")  # type: ignore[misc]

        assert state["leavings"][-1]["user"] == user
        server.until(
            lambda state: not any(state[name] for name in ("sessions", "members", "environs", "half_binary")),
            f"nothing left of {user}",
        )


def talk(server: ServerProcess, transports: Sequence[str], user: str) -> None:
    """Join, say and hear everything, and leave."""
    with in_the_room(server.port, transports, user, serializer="msgpack") as client:
        client.on("question", lambda question: {"asked": question}, namespace="/room")
        ten = threading.Event()
        numbers: set[int] = set()

        def numbered(number: int, _: Any) -> None:
            numbers.add(number)
            if len(numbers) == 10:
                ten.set()

        client.on("numbered", numbered, namespace="/room")
        assert client.call("echo", (DATA, "second"), namespace="/room", timeout=DEADLINE_S) == (DATA, "second"), user
        assert client.call("ask_me", DATA, namespace="/room", timeout=DEADLINE_S) == {"asked": DATA}, user
        assert client.call("note", namespace="/room", timeout=DEADLINE_S) == user
        assert client.call("burst", (10, 100), namespace="/room", timeout=DEADLINE_S) == "behind them", user
        assert ten.wait(DEADLINE_S), (user, numbers)
