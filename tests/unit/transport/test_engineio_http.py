"""Engine.IO over HTTP: lengths and handshakes, without a server."""

from typing import Any

import pytest

from headgate.transport.engineio_http import Refused, read_length, switching_protocols

# RFC 6455 section 1.3.
KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
HANDSHAKE = {
    "SERVER_PROTOCOL": "HTTP/1.1",
    "HTTP_SEC_WEBSOCKET_KEY": KEY,
    "HTTP_SEC_WEBSOCKET_VERSION": "13",
    "HTTP_CONNECTION": "keep-alive, Upgrade",
}


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
    ("change", "status", "named"),
    [
        ({"SERVER_PROTOCOL": "HTTP/1.0"}, "400 Bad Request", "HTTP/1.1"),
        ({"HTTP_SEC_WEBSOCKET_VERSION": "8"}, "426 Upgrade Required", "Sec-WebSocket-Version must be 13"),
        *(({"HTTP_SEC_WEBSOCKET_KEY": key}, "400 Bad Request", "Sec-WebSocket-Key") for key in ("short", "a", "")),
        *(({"HTTP_CONNECTION": options}, "400 Bad Request", "Connection: Upgrade") for options in ("keep-alive", "")),
    ],
)
def test_a_wrong_handshake_is_refused(change: dict[str, Any], status: str, named: str) -> None:
    """RFC 6455 section 4.2.1. The answer names what is wrong."""
    with pytest.raises(Refused) as refused:
        switching_protocols(HANDSHAKE | change)

    assert refused.value.status == status
    assert named in refused.value.body["message"]  # type: ignore[operator]
