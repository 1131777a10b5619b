"""Socket.IO packets of the gateway's clients: read as python-socketio reads them, checked, and written as it writes them."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from socketio.packet import ACK, EVENT
from socketio.packet import Packet as StockPacket

from headgate.transport.socketio_packet import read_packet, write_packet

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PLACEHOLDER = '{"_placeholder":true,"num":0}'


def as_stock_reads(text: str) -> tuple[object, ...]:
    """Return the parts of a packet as python-socketio reads them."""
    packet = StockPacket(encoded_packet=text)
    return packet.packet_type, packet.namespace or "/", packet.id, packet.data


@given(st.sampled_from([EVENT, ACK]), st.sampled_from(["/", "/n"]), JSON, st.sampled_from([None, 1, 7]))
@example(EVENT, "/n", "half a pair: \ud800", None)
@example(EVENT, "/n", {"\udfff": 10**40}, 1)
def test_either_reads_what_the_other_wrote(kind: int, path: str, data: Any, packet_id: int | None) -> None:
    """A packet says the same as python-socketio's."""
    packet_id = packet_id or (1 if kind == ACK else None)
    ours = write_packet(kind, path.encode(), ["x", data], packet_id).decode()
    stock = StockPacket(kind, data=["x", data], namespace=path, id=packet_id, binary=False).encode()

    for text in (ours, stock):
        assert msgspec.structs.astuple(read_packet(text)) == as_stock_reads(text) == (kind, path, packet_id, ["x", data])


@pytest.mark.parametrize(
    "text",
    [
        *("0", "0/n", "0/n,", '0/n,{"a":[1]}', '0/n?q=1,{"a":1}', "0/n,7", '0/n,7{"a":1}', '0/1-n,{"a":1}', "0/,{}", '0{"a":1}'),
        *('0"token"', '0["a","b"]', "1", "1/n,", '2["name"]', '2/n,7["name",1,{}]', '20["name"]', '2["connect"]'),
        *("31[]", '31["answer"]', '2["name",{"_placeholder":true}]', f'2{"1" * 100}["a"]'),
    ],
)
def test_a_packet_is_read_as_python_socketio_reads_it(text: str) -> None:
    assert msgspec.structs.astuple(read_packet(text)) == as_stock_reads(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *((text, "malformed packet") for text in ("", "x", "-1")),
        *(
            (f"2{data}", "malformed packet: its data is no JSON")
            for data in ("[1,]", "[01]", '["a"] ["b"]', "[\x00]", "[" * 10**5)
        ),
        *((f"0{data}", "malformed packet: its data is no JSON") for data in ("{", "/n,{", f'{"1" * 101}["a"]')),
        ("1[1]", "DISCONNECT with data"),
        ('4{"message":"from a client"}', "unknown packet type"),
        *((f"2{data}", "packet without an argument list") for data in ("", "{}", "7")),
        *((f"2{data}", "event without a valid name") for data in ("[]", "[1]", '[["a"]]')),
        *((f"3{data}", "acknowledgement without the id of an event") for data in ("[1]", "0[]")),
        *((text, "binary packets are not accepted") for text in (f'51-["blob",{PLACEHOLDER}]', f"61-1[{PLACEHOLDER}]", "5[]")),
        ('21-["name"]', "attachments on a text packet"),
    ],
)
def test_a_malformed_packet_is_told_its_fault(text: str, fault: str) -> None:
    """In words, for the close frame."""
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$"):
        read_packet(text)


@given(st.text() | st.text(alphabet='012345-/,n[]"{}?', max_size=12))
def test_any_text_is_read_as_python_socketio_reads_it_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        packet = read_packet(text)
    except ValueError:
        return
    assert msgspec.structs.astuple(packet) == as_stock_reads(text)


def test_values_that_only_the_standard_library_can_write_are_written_by_it() -> None:
    """A key of another type than text."""
    assert write_packet(ACK, b"/", [{None: 1}], 1).decode() == StockPacket(ACK, data=[{None: 1}], id=1).encode()
