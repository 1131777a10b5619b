"""What the gateway brings to python-socketio to join faster: packets and membership. They must do what its own do."""

from __future__ import annotations

from typing import Any

import pytest
import socketio
from hypothesis import example, given
from hypothesis import strategies as st
from socketio.packet import ACK, CONNECT, EVENT, Packet

from headgate.transport.fast_packet import FastPacket
from headgate.transport.socketio_face import _Members

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from([EVENT, ACK]), JSON, st.sampled_from([None, 0, 7]))
@example(EVENT, "half a pair: \ud800", None)
@example(EVENT, {"\udfff": 10**40}, 1)
def test_a_packet_says_the_same_as_python_socketios(kind: int, data: Any, id: int | None) -> None:
    """Either of the two reads what the other wrote."""
    fast = FastPacket(kind, data=["x", data], namespace="/n", id=id, binary=False).encode()
    stock = Packet(kind, data=["x", data], namespace="/n", id=id, binary=False).encode()

    for text in (fast, stock):
        for reader in (FastPacket, Packet):
            packet = reader(encoded_packet=text)
            assert (packet.packet_type, packet.namespace, packet.id, packet.data) == (kind, "/n", id, ["x", data])


@pytest.mark.parametrize("text", ["0{", "2[1,]", "2[01]", '2["a"] ["b"]', f"2[{'1' * 5000}]", "2[\x00]"])
def test_what_is_no_json_is_refused_as_python_socketio_does(text: str) -> None:
    """With a ValueError: `malformed packet`."""
    for reader in (FastPacket, Packet):
        with pytest.raises(ValueError, match=r"."):
            reader(encoded_packet=text)


def test_what_only_python_socketio_can_write_is_written_by_it() -> None:
    """A key that is no text."""
    assert FastPacket(ACK, data=[{None: 1}], id=1).encode() == Packet(ACK, data=[{None: 1}], id=1).encode()


@pytest.fixture
def server() -> Any:
    """A server with members and no rooms, which records what it would send."""

    class Recording(socketio.Server):  # type: ignore[misc]
        sent: list[tuple[str, Any]]

        def _send_packet(self, eio_sid: str, pkt: Any) -> None:
            self.sent.append((eio_sid, pkt.packet_type))

    made = Recording(
        async_mode="threading", async_handlers=False, namespaces=["/"], client_manager=_Members(), serializer=FastPacket
    )
    made.sent = []
    return made


def test_members_join_and_leave_without_rooms(server: Any) -> None:
    """They are known by both ids while they are in, told of their end, and nothing of them stays."""
    left: list[tuple[str, str]] = []
    server.on("connect", lambda sid, environ, auth: None)
    server.on("disconnect", lambda sid, reason: left.append((sid, reason)))
    for eio_sid in ("a", "b", "c"):
        server._handle_eio_connect(eio_sid, {})
        server._handle_eio_message(eio_sid, "0")
    sids = [server.manager.sid_from_eio_sid(eio_sid, "/") for eio_sid in ("a", "b", "c")]

    assert server.sent == [("a", CONNECT), ("b", CONNECT), ("c", CONNECT)]
    assert list(server.manager.rooms["/"]) == [None]
    assert [server.manager.eio_sid_from_sid(sid, "/") for sid in sids] == ["a", "b", "c"]
    assert all(server.manager.is_connected(sid, "/") for sid in sids)

    server._handle_eio_disconnect("a", "transport close")
    server.disconnect(sids[1])
    server._handle_eio_message("c", "1")

    assert left == [(sids[0], "transport close"), (sids[1], "server disconnect"), (sids[2], "client disconnect")]
    assert server.manager.rooms == {}
    assert not any(server.manager.is_connected(sid, "/") for sid in sids)


def test_a_refused_connect_leaves_no_member(server: Any) -> None:
    """As with rooms."""
    server.on("connect", lambda sid, environ, auth: False)
    server._handle_eio_connect("a", {})
    server._handle_eio_message("a", "0")

    assert server.manager.rooms == {}
