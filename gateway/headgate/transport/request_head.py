"""The head of an HTTP request that is plain: its request line and header lines, read at once from bytes. No I/O.

In: the bytes up to the empty line. Out: a `Head`, or None: "not plain", which says nothing about the request. pywsgi and
request_headers.py then read the same bytes, and accept or refuse them. Plain is a part of what they accept, and means for them
the same: method, target, WSGI environment, length of the body, whether the connection ends (tested against them with random
heads). Nothing is refused here, so there is one place that decides what a bad request is.

Not plain: any version but HTTP/1.1, a path with `%`, a body in chunks or behind 100 Continue, a second header of a kind of which
one is allowed, bytes that are not ASCII, a field name with `_`, HEAD.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .request_headers import MAX_HEADER_LINES, list_of

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.1\r\n")
# Possessive: no byte is looked at twice. A value has no blank at its ends, and no control character.
_FIELDS = re.compile(rb"(?:[!#$%&'*+.^`|~0-9A-Za-z-]++:[\t -~]*+\r\n)*+\r\n")
_FIELD = re.compile(r"([^:\r]++):[\t ]*+([^\r]*+)\r\n")
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_LENGTH_LINE = re.compile(rb"\r\nContent-Length: ([0-9]{1,18})\r\n", re.IGNORECASE)
_MAX_LENGTH_DIGITS = 18
# Of these one is allowed; or pywsgi takes the first, and joins the others of a name.
_ONCE = frozenset({"CONTENT_LENGTH", "CONTENT_TYPE", "HTTP_HOST", "HTTP_CONNECTION"})
_NOT_PLAIN = frozenset({"HTTP_TRANSFER_ENCODING", "HTTP_EXPECT"})
# A name that is sent often is translated once. Bounded, and these are always among them: any client can make up names.
MAX_NAMES = 256
_OFTEN = (
    *("Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection", "Content-Length"),
    *("Content-Type", "Cookie", "Host", "Origin", "Pragma", "Referer", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site"),
    *("Sec-WebSocket-Extensions", "Sec-WebSocket-Key", "Sec-WebSocket-Protocol", "Sec-WebSocket-Version", "Traceparent"),
    *("Tracestate", "Upgrade", "User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id"),
)
_known_names: dict[str, str] = {}


class Head(NamedTuple):
    """A plain head.

    Attributes:
        path, query: of the target, as they came.
        fields: the headers as a WSGI environment has them: `HTTP_HOST`, `CONTENT_TYPE`, …
        body_bytes: the length of the body.
        ends: whether the client ends the connection behind the answer.
    """

    method: str
    path: str
    query: str
    fields: Mapping[str, str]
    body_bytes: int
    ends: bool

    def environ(self, base: dict[str, Any], client_address: object) -> dict[str, Any]:
        """Return `base`, the WSGI environment of the server, with this request in it, as pywsgi makes it, but for the body."""
        base["REQUEST_METHOD"], base["SCRIPT_NAME"] = self.method, ""
        base["PATH_INFO"], base["QUERY_STRING"], base["SERVER_PROTOCOL"] = self.path, self.query, "HTTP/1.1"
        if isinstance(client_address, tuple):
            base["REMOTE_ADDR"], base["REMOTE_PORT"] = str(client_address[0]), str(client_address[1])
        base |= self.fields
        return base


class HeadBut(NamedTuple):
    """The bytes of a plain head before and behind the length of its body: most clients send the same again but for that."""

    before: bytes
    behind: bytes

    def length_in(self, received: bytes) -> bytes | None:
        """Return the digits of the length in bytes that begin with this head and another length; None if they do not."""
        before, behind = self
        if not received.startswith(before):
            return None
        digits = received[len(before) : received.find(b"\r", len(before), len(before) + _MAX_LENGTH_DIGITS + 1)]
        return digits if digits.isdigit() and received.startswith(behind, len(before) + len(digits)) else None


def head_but_length(block: bytes) -> HeadBut | None:
    """Return a plain head without the length of its body; None when that has no line in its usual form."""
    line = _LENGTH_LINE.search(block)
    return None if line is None else HeadBut(block[: line.start(1)], block[line.end(1) :])


def read_head(block: bytes) -> Head | None:
    """Return the plain head that these bytes are, with the empty line at their end; None when it is not plain."""
    line = _REQUEST_LINE.match(block)
    if line is None or not _FIELDS.fullmatch(block, line.end()):
        return None
    path, _, query = line[2].decode().partition("?")
    found = _FIELD.findall(block[line.end() :].decode())
    if "%" in path or len(found) > MAX_HEADER_LINES:
        return None
    fields: dict[str, str] = {}
    for name, value in found:
        key = _known_names.get(name) or _environ_name(name)
        value = value.rstrip("\t ")
        if key not in fields:
            fields[key] = value
        elif key in _ONCE:
            return None
        else:
            fields[key] += f"{'; ' if 'COOKIE' in key else ','}{value}"
    method, length = line[1].decode(), fields.get("CONTENT_LENGTH", "0")
    if not _NOT_PLAIN.isdisjoint(fields) or not _LENGTH.fullmatch(length) or method == "HEAD":
        return None
    return Head(method, path, query, fields, int(length), "close" in list_of(fields.get("HTTP_CONNECTION", "")))


def _environ_name(name: str) -> str:
    """Return what the WSGI environment calls a header."""
    key = name.upper().replace("-", "_")
    if key not in ("CONTENT_LENGTH", "CONTENT_TYPE"):
        key = f"HTTP_{key}"
    if len(_known_names) < MAX_NAMES and len(name) <= 64:
        _known_names[name] = key
    return key


for _name in _OFTEN:
    _environ_name(_name)
    _environ_name(_name.lower())
