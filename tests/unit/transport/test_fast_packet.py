"""The faster Socket.IO packets: they must say, read and refuse the same as python-socketio's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from socketio.packet import ACK, EVENT, Packet

from headgate.transport.fast_packet import FastPacket

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


CONNECTS = ["0", "0/n", "0/n,", '0/n,{"a":[1]}', '0/n?q=1,{"a":1}', "0/n,7", '0/n,7{"a":1}', '0/1-n,{"a":1}', "0/,{}", '0{"a":1}']


@pytest.mark.parametrize("text", CONNECTS)
def test_a_connect_is_read_as_python_socketio_reads_it(text: str) -> None:
    """Its usual form is parted at once; any other by python-socketio."""
    fast, stock = FastPacket(encoded_packet=text), Packet(encoded_packet=text)
    assert vars(fast) == vars(stock)


@pytest.mark.parametrize("text", ["0{", "0/n,{", "2[1,]", "2[01]", '2["a"] ["b"]', f"2[{'1' * 5000}]", "2[\x00]"])
def test_text_that_is_no_json_is_refused_as_python_socketio_does(text: str) -> None:
    """With a ValueError, which makes a `malformed packet` of it."""
    for reader in (FastPacket, Packet):
        with pytest.raises(ValueError, match=r"."):
            reader(encoded_packet=text)


def test_values_that_only_python_socketio_can_write_are_written_by_it() -> None:
    """A key that is no text."""
    assert FastPacket(ACK, data=[{None: 1}], id=1).encode() == Packet(ACK, data=[{None: 1}], id=1).encode()
