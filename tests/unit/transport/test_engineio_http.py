"""Engine.IO over HTTP: queries, lengths, handshakes and payloads, without a server."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.frames import Frame
from headgate.transport.engineio_http import (
    BAD_REQUEST,
    MAX_QUERY_FIELDS,
    Refused,
    join_packets,
    read_length,
    read_query,
    split_packets,
    switching_protocols,
)

# RFC 6455 section 1.3.
KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
HANDSHAKE = {
    "HTTP_SEC_WEBSOCKET_KEY": KEY,
    "HTTP_SEC_WEBSOCKET_VERSION": "13",
    "HTTP_CONNECTION": "keep-alive, Upgrade",
}


def test_a_query_says_transport_version_and_session() -> None:
    """Those that are missing are empty; of one that is given twice the first counts."""
    assert read_query("EIO=4&transport=polling&sid=abc&t=x") == ("polling", "4", "abc")
    assert read_query("EIO=4&transport=websocket&transport=polling") == ("websocket", "4", "")
    assert read_query("") == ("", "", "")


def test_a_query_with_too_many_fields_is_refused() -> None:
    """Before they are taken apart."""
    assert read_query("&".join(["x=1"] * MAX_QUERY_FIELDS)) == ("", "", "")
    with pytest.raises(Refused) as refused:
        read_query("&".join(["x=1"] * (MAX_QUERY_FIELDS + 1)))
    assert (refused.value.status, refused.value.body["code"]) == ("400 Bad Request", BAD_REQUEST[0])


@pytest.mark.parametrize("length", [None, "", "-1", "x", "1.5"])
def test_a_body_without_a_length_is_refused(length: str | None) -> None:
    """411: how much to read is not known."""
    with pytest.raises(Refused) as refused:
        read_length({} if length is None else {"CONTENT_LENGTH": length})

    assert refused.value.status == "411 Length Required"
    assert read_length({"CONTENT_LENGTH": "0"}) == 0


def test_a_websocket_handshake_is_answered_with_the_key_that_proves_it() -> None:
    """The example of RFC 6455 section 1.3; no extension is negotiated."""
    answer = switching_protocols(HANDSHAKE | {"HTTP_SEC_WEBSOCKET_EXTENSIONS": "permessage-deflate"})

    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert answer.endswith(f"Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n".encode())
    assert b"deflate" not in answer


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"HTTP_SEC_WEBSOCKET_VERSION": "8"}, "426 Upgrade Required"),
        *(({"HTTP_SEC_WEBSOCKET_KEY": key}, "400 Bad Request") for key in ("short", "a", "")),
        *(({"HTTP_CONNECTION": options}, "400 Bad Request") for options in ("keep-alive", "")),
    ],
)
def test_a_wrong_handshake_is_refused(change: dict[str, Any], status: str) -> None:
    """RFC 6455 section 4.2.1."""
    with pytest.raises(Refused) as refused:
        switching_protocols(HANDSHAKE | change)

    assert refused.value.status == status


@given(st.lists(st.text(st.characters(exclude_characters="\x1e")).filter(lambda text: text[:1] != "b") | st.binary(), min_size=1))
def test_packets_survive_a_payload(packets: list[str | bytes]) -> None:
    """Text as it is, binary in base64, in order."""
    frames = [Frame(packet.encode()) if isinstance(packet, str) else Frame(packet, binary=True) for packet in packets]

    assert split_packets(join_packets(frames).decode(), len(packets)) == packets


def test_a_payload_with_too_many_packets_or_bad_base64_is_refused() -> None:
    """All of it: none is taken and lost."""
    assert split_packets("4a\x1e4b", 2) == ["4a", "4b"]
    with pytest.raises(ValueError, match="too many packets in one request: at most 2"):
        split_packets("4a\x1e4b\x1e4c", 2)
    assert split_packets("b" + base64.b64encode(b"\x01").decode(), 1) == [b"\x01"]
    with pytest.raises(ValueError, match=r"."):
        split_packets("b!!!", 1)
