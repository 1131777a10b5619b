"""Engine.IO 4 over HTTP: queries, payloads, error codes, and the answer to a WebSocket handshake. No I/O.

A bad request raises `Refused`, with the status and the body that the reference server sends.
"""

from __future__ import annotations

import base64
import hashlib
import re
from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import parse_qs
from wsgiref.types import WSGIEnvironment

import msgspec

from headgate.errors import HeadgateError
from headgate.events.wire.frames import Frame

from .http_answers import http_error
from .http_parser import LENGTH, list_of
from .limits import TransportLimits

# A client has four or five.
MAX_QUERY_FIELDS = 32
_RECORD_SEPARATOR = "\x1e"
# 16 bytes in base64, and the suffix that RFC 6455 section 1.3 appends before hashing.
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==", re.ASCII)
_ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

# Engine.IO's error codes and messages from the reference server, and our code for each.
UNKNOWN_TRANSPORT = (0, "Transport unknown", "bad_request")
UNKNOWN_SESSION = (1, "Session ID unknown", "unknown_session")
BAD_METHOD = (2, "Bad handshake method", "bad_request")
BAD_REQUEST = (3, "Bad request", "bad_request")
UNSERVED_METHOD = (3, "Bad request", "method_not_allowed")
FORBIDDEN = (4, "Forbidden", "unauthorized")
BAD_VERSION = (5, "Unsupported protocol version", "bad_request")
NOT_SUPPORTED = (3, "Bad request", "not_implemented")


class Refused(Exception):
    """An HTTP request that Engine.IO does not allow. `body` is its `{code, message}`, `error` our wire form of the same."""

    def __init__(
        self,
        refusal: tuple[int, str, str],
        status: str = "400 Bad Request",
        detail: str | None = None,
        error: HeadgateError | None = None,
    ) -> None:
        number, words, code = refusal
        super().__init__(words)
        self.status = status
        detail = detail if error is None else error.message
        message = f"{words}: {detail}" if detail else words
        text = detail if detail and words == "Bad request" else message
        self.error = http_error(code, text) if error is None else error.to_wire()
        self.body: dict[str, object] = {"code": number, "message": message}
        if "retry_after_s" in self.error:  # clients before 0.2 read them here
            self.body |= {"retry": True, "retry_after_s": self.error["retry_after_s"]}


@lru_cache(maxsize=64)  # the query of a joining WebSocket is always the same
def read_query(query: str) -> tuple[str, str, str]:
    """Return transport, version and session id. Raises Refused for more than MAX_QUERY_FIELDS fields."""
    try:
        fields = parse_qs(query, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as error:
        raise Refused(BAD_REQUEST, detail=f"more than {MAX_QUERY_FIELDS} fields in the query") from error
    transport, version, sid = (fields.get(name, [""])[0] for name in ("transport", "EIO", "sid"))
    return transport, version, sid


def read_length(environ: WSGIEnvironment) -> int:
    """Return the length of a POST body. Raises Refused without a valid Content-Length."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not LENGTH.fullmatch(length):
        raise Refused(BAD_REQUEST, "411 Length Required", "Content-Length is required")
    return int(length)


def switching_protocols(environ: WSGIEnvironment) -> bytes:
    """Return the 101 answer to a WebSocket request (RFC 6455 section 4.2). Negotiates no extension.

    Raises Refused for an invalid handshake.
    """
    if environ.get("SERVER_PROTOCOL") == "HTTP/1.0":
        raise Refused(BAD_REQUEST, detail="a WebSocket handshake needs HTTP/1.1, and this one came in HTTP/1.0")
    key = environ.get("HTTP_SEC_WEBSOCKET_KEY", "")
    if environ.get("HTTP_SEC_WEBSOCKET_VERSION") != "13":
        raise Refused(BAD_REQUEST, "426 Upgrade Required", "Sec-WebSocket-Version must be 13")
    if "upgrade" not in list_of(environ.get("HTTP_CONNECTION", "")):
        raise Refused(BAD_REQUEST, detail="a WebSocket handshake needs Connection: Upgrade")
    if not _KEY.fullmatch(key):  # HTTP/2 has none (RFC 8441), and Envoy adds none when it speaks HTTP/1.1 to us
        raise Refused(BAD_REQUEST, detail="a WebSocket handshake needs Sec-WebSocket-Key, 16 bytes in base64")
    accept = b2a_base64(hashlib.sha1(key.encode() + _ACCEPT, usedforsecurity=False).digest(), newline=False)
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
    )


def opening_end(limits: TransportLimits, upgrades: list[str]) -> bytes:
    """Return the part of the opening packet after the session id."""
    packet = {
        "upgrades": upgrades,
        "pingInterval": round(limits.ping_interval_s * 1000),
        "pingTimeout": round(limits.ping_timeout_s * 1000),
        "maxPayload": limits.max_message_bytes,
    }
    return b'",%b' % msgspec.json.encode(packet)[1:]


def join_packets(frames: Sequence[Frame]) -> bytes:
    """Return the body of a poll's answer, with binary frames in base64."""
    return _RECORD_SEPARATOR.encode().join(
        b"b" + base64.b64encode(frame.packet) if frame.binary else frame.packet for frame in frames
    )


def split_packets(body: str, max_packets: int | None) -> list[str | bytes]:
    """Return the packets of a POST body; `b…` packets are binary messages in base64. None for `max_packets` sets no limit.

    Raises ValueError for too many packets or bad base64.
    """
    parts = body.split(_RECORD_SEPARATOR, -1 if max_packets is None else max_packets)
    if max_packets is not None and len(parts) > max_packets:
        raise ValueError(f"too many packets in one request: at most {max_packets}")
    return [base64.b64decode(part[1:], validate=True) if part[:1] == "b" else part for part in parts]
