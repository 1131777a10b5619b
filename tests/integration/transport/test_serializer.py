"""Packets other than the standard ones (`serializer=`): msgpack, and classes of an application's own. With the real client."""

from __future__ import annotations

import base64
import threading
from typing import Any

import msgpack
import pytest
from socketio.exceptions import ConnectionError as NotConnected

from tests.integration.transport import packets
from tests.integration.transport.clients import DEADLINE_S, Polling, WebSocket, closing
from tests.integration.transport.real_client import POLLING, SOON, UPGRADED, WEBSOCKET, in_the_room
from tests.integration.transport.server_process import ServerProcess, StartServer

BINARY = {"deep": [b"\x00\xff", {"bytes": b""}], "text": "ü € 😀", "number": 1.5, "nothing": None}
PLAIN = {"deep": [1, {"list": []}], "text": "ü € 😀", "number": 1.5, "nothing": None}
# Serializer, the client's, and what it carries.
SERIALIZERS: list[tuple[str, Any, Any]] = [
    ("msgpack", "msgpack", BINARY),
    ("Zipped", packets.Zipped, PLAIN),
    ("Terse", packets.Terse, PLAIN),
    ("Counting", packets.Counting, BINARY),
]


@pytest.mark.parametrize("transports", [POLLING, WEBSOCKET, UPGRADED], ids="+".join)
@pytest.mark.parametrize(("name", "serializer", "data"), SERIALIZERS, ids=[name for name, *_ in SERIALIZERS])
def test_the_real_client_does_everything(
    start_server: StartServer, transports: tuple[str, ...], name: str, serializer: Any, data: Any
) -> None:
    """Auth, events and acknowledgements both ways, a refusal, order, goodbye; nothing is left."""
    server = start_server(options={"serializer": name}, **SOON)
    with pytest.raises(NotConnected), in_the_room(server.port, transports, "", serializer=serializer, refuse=True):
        pass
    with in_the_room(server.port, transports, "ana", serializer=serializer) as client:
        client.on("question", lambda question: {"asked": question}, namespace="/room")
        ten = threading.Event()
        numbers: set[int] = set()

        def numbered(number: int, _: Any) -> None:
            numbers.add(number)
            if len(numbers) == 10:
                ten.set()

        client.on("numbered", numbered, namespace="/room")
        assert client.call("echo", (data, "second"), namespace="/room", timeout=DEADLINE_S) == (data, "second")
        assert client.call("ask_me", data, namespace="/room", timeout=DEADLINE_S) == {"asked": data}
        assert client.call("note", namespace="/room", timeout=DEADLINE_S) == "ana"
        assert client.call("burst", (10, 100), namespace="/room", timeout=DEADLINE_S) == "behind them"
        assert ten.wait(DEADLINE_S), numbers
    (leaving,) = server.until(lambda state: state["leavings"], "the goodbye")["leavings"]

    assert leaving["user"] == "ana"
    server.until(
        lambda state: not any(state[what] for what in ("sessions", "members", "environs", "half_binary")), "nothing left"
    )


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server that speaks msgpack."""
    return start_shared_server(options={"serializer": "msgpack"})


def packed(type_: Any, data: Any = None, *, nsp: Any = "/room", **more: Any) -> bytes:
    """Return a packet as MsgPackPacket lays it out, or as it would never be."""
    message: bytes = msgpack.dumps({"type": type_, "data": data, "nsp": nsp, **more})
    return message


HOSTILE: list[tuple[str, str | bytes]] = [
    ("empty", b""),
    ("not msgpack", b"\xc1"),
    ("cut", packed(2, ["note"])[:-3]),
    ("more than one", packed(2, ["note"]) * 2),
    ("a list", msgpack.dumps([2, ["note"]])),
    ("a number", msgpack.dumps(2)),
    ("no namespace", msgpack.dumps({"type": 2, "data": ["note"]})),
    ("array of four thousand millions", b"\xdd\xff\xff\xff\xff"),
    ("nested", b"\x91" * 100_000),
    ("not UTF-8", b"\x83\xa4type\x02\xa4data\x91\xa2\xff\xff\xa3nsp\xa5/room"),
    ("namespace a list", packed(2, ["note"], nsp=["/room"])),
    ("namespace a number", packed(0, nsp=7)),
    ("type a text", packed("2", ["note"])),
    ("type a list", packed([2], ["note"])),
    ("unknown type", packed(9, ["note"])),
    ("attachments", packed(5, ["note"])),
    ("event without a list", packed(2, {"note": 1})),
    ("event without a name", packed(2, [])),
    ("name in bytes", packed(2, [b"note"])),
    ("id a text", packed(2, ["note"], id="1")),
    ("id a list", packed(2, ["note"], id=[1])),
    ("negative id", packed(2, ["note"], id=-1)),
    ("acknowledgement without an id", packed(3, [])),
    ("acknowledgement of no event", packed(3, [], id=0)),
    ("CONNECT with a list", packed(0, [1])),
    ("text", '2/room,["note"]'),
]


@pytest.mark.parametrize("message", [message for _, message in HOSTILE], ids=[name for name, _ in HOSTILE])
def test_what_is_no_packet_ends_the_connection(server: ServerProcess, message: str | bytes) -> None:
    """1002 and a reason; no traceback (the fixture looks), and the client leaves like any other."""
    client = WebSocket(server.port)
    with closing(client):
        client.send(packed(0, {"user": "mallory"}))
        answer = client.receive()
        assert isinstance(answer, bytes)
        assert set(msgpack.loads(answer)["data"]) == {"sid"}
        client.send(message if isinstance(message, bytes) else f"4{message}")
        closed = client.end()

    assert closed.code == 1002
    assert closed.reason
    state = server.until(lambda state: not state["members"] and not state["environs"], "nothing left")
    assert state["leavings"][-1]["reason"] == "parse error"


def test_a_ping_goes_ahead_of_binary_packets(start_server: StartServer) -> None:
    """They are whole packets, and no attachments that would have to go first: data does not crowd out control."""
    server = start_server(
        options={"serializer": "msgpack"}, queue_frames=60, send_buffer_bytes=4096, ping_timeout_s=60, write_deadline_s=60
    )
    client = WebSocket(server.port, receive_buffer_bytes=4096)
    with closing(client):
        client.send(packed(0, {"user": "ana"}))
        client.receive()
        server.debug("emit", count=40, size=25_000, namespace="/room")
        server.debug("ping")
        assert server.state()["control_frames"] == 1
        received = [client.receive() for _ in range(41)]

    assert received.index("2") < 40, "the ping came behind all data"
    numbers = [msgpack.loads(message)["data"][1] for message in received if isinstance(message, bytes)]
    assert numbers == list(range(40))


def test_packets_are_base64_on_polling(server: ServerProcess) -> None:
    """As Engine.IO has it: `b` and the message."""
    session = Polling(server.port)
    session.post("b" + base64.b64encode(packed(0, {"user": "ana"})).decode())
    (answer,) = session.packets()

    assert answer[0] == "b"
    assert set(msgpack.loads(base64.b64decode(answer[1:]))["data"]) == {"sid"}
    session.post("b" + base64.b64encode(packed(1)).decode())


@pytest.mark.parametrize(
    ("serializer", "told"),
    [
        ("pickle", "ValueError: serializer: expected 'default', 'msgpack' or a subclass of socketio.packet.Packet, got 'pickle'"),
        ("Broken", r"ValueError: serializer: encode\(\) of Broken must return str, bytes or a list of these, not dict"),
    ],
)
def test_what_cannot_work_is_refused_when_the_server_is_made(start_server: StartServer, serializer: str, told: str) -> None:
    """One error, which names what is allowed."""
    with pytest.raises(AssertionError, match=told):
        start_server(options={"serializer": serializer})
