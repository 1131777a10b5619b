"""Socket.IO packets of clients, checked one by one. Each row is a packet that python-socketio would dispatch or fail on."""

import pytest
from socketio.packet import Packet

from headgate.socketio.packet_check import MAX_ATTACHMENTS, fault_of

PLACEHOLDER = '{"_placeholder":true,"num":0}'


def fault(packet: str, *, has_attachments: bool = True, in_namespace: bool = True) -> str | None:
    return fault_of(Packet(encoded_packet=packet), has_attachments=has_attachments, in_namespace=in_namespace)


@pytest.mark.parametrize(
    "packet",
    [
        *("0", '0{"token":1}', "0/ns,", '0"token"', '0["a","b"]', "1", "1/ns,", "31[]", '31["answer"]'),
        *('2["name"]', '2/ns,7["name",1,{}]', '20["name"]', '2["name",{"_placeholder":true}]', '2["connect"]'),
        *('2["connect_error"]', f'51-["blob",{PLACEHOLDER}]', f"61-1[{PLACEHOLDER}]"),
    ],
)
def test_a_packet_as_clients_send_it_has_no_fault(packet: str) -> None:
    assert fault(packet) is None


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        ("1[1]", "DISCONNECT with data"),
        ("2", "packet without an argument list"),
        ("2[true]", "event without a valid name"),
        ("3[1]", "acknowledgement without the id of an event"),
        ('50-["blob"]', "number of attachments not between 1 and 1024"),
        (f'5{MAX_ATTACHMENTS + 1}-["blob"]', "number of attachments not between 1 and 1024"),
    ],
)
def test_a_malformed_packet_is_told_its_fault(packet: str, expected: str) -> None:
    assert fault(packet) == expected


@pytest.mark.parametrize("packet", ['2["name"]', '31["answer"]', f'51-["blob",{PLACEHOLDER}]'])
def test_a_packet_before_connect_has_nobody_to_take_it(packet: str) -> None:
    """CONNECT and DISCONNECT may come at any time."""
    assert fault(packet, in_namespace=False) == "packet before CONNECT"
    assert fault("0", in_namespace=False) is None
    assert fault("1", in_namespace=False) is None


def test_a_server_whose_packets_are_whole_messages_has_no_attachments() -> None:
    """As with msgpack."""
    words = "packet with attachments, of which this server's packets have none"

    assert fault(f'51-["blob",{PLACEHOLDER}]', has_attachments=False) == words


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"namespace": ["/"]}, "namespace that is no text"),
        ({"id": "7"}, "id that is no whole number"),
        ({"id": -1}, "id that is no whole number"),
        ({"packet_type": 9}, "unknown packet type"),
        ({"attachment_count": 1}, "attachments on a text packet"),
    ],
)
def test_packet_classes_that_take_what_they_find_are_checked_too(change: dict[str, object], expected: str) -> None:
    """A serializer of an application's own need not look."""
    packet = Packet(encoded_packet='2["name"]')
    for name, value in change.items():
        setattr(packet, name, value)

    assert fault_of(packet, has_attachments=True, in_namespace=True) == expected
