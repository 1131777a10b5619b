"""Parses the bytes of a connection into HTTP/1.1 requests (RFC 9112). No I/O.

In: bytes (`feed`), and the end of the connection (`end`). Out: events (`next_event`), which are a `Request`, the pieces of its
body and `END` (no bytes), or `BadRequest`, after which nothing is parsed, or None while more bytes are needed. `next_request`
continues after `END`. `leave` stops when the connection gets another owner.

Limits apply before parsing. A request is refused if two of three common parsers (h11, llhttp, gunicorn's or gevent's) refuse
it, or if two parsers could disagree about its end, as with both lengths, two lengths, a lone CR or LF, folded lines, white
space before a colon, and any transfer coding but `chunked`. HTTP/1.1 needs a Host.

Most clients repeat the head of a request, so a head equal to the last one on its connection, apart from the length of the body,
is not parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from headgate.installation import native
from headgate.runtime.machine import between

MAX_LINE_BYTES = 8192
MAX_HEADER_BYTES = 16384
MAX_HEADER_LINES = 100
MAX_CHUNK_LINE_BYTES = 4096
BAD_REQUEST = "400 Bad Request"
# The first bytes sent by a proxy configured for another protocol.
_OTHER_PROTOCOLS = {
    b"PROXY ": "the PROXY protocol",
    b"\r\n\r\n\0\r\nQUIT\n": "the PROXY protocol",
    b"PRI * HTTP/2.0\r\n": "HTTP/2",
    b"\x16\x03": "TLS",
}
# Field names and methods (RFC 9110 section 5.6.2). Possessive, so that no byte is matched twice.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([!-~]++) HTTP/1\.([01])\r\n")
# A value has no control characters (RFC 9110 section 5.5).
_FIELDS = re.compile(rb"(?:" + _TOKEN + rb":[\t -~\x80-\xff]*+\r\n)*+\r\n")
_FIELD = re.compile(r"([^:\r]++):[\t ]*+([^\r]*+)\r\n")
_LONE_LF = re.compile(rb"(?<!\r)\n")
_ABSOLUTE = re.compile(r"https?://([^/@]+)(/.*)?", re.IGNORECASE)
# int() alone would also accept `+5`, `1_0` and any number of digits.
LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_MAX_LENGTH_DIGITS = 18
_LENGTH_LINE = re.compile(rb"\r\nContent-Length: ([0-9]{1,18})\r\n", re.IGNORECASE)
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~\x80-\xff]*+)?\r\n")
_usual_head: Final[Callable[[bytes], tuple[str, str, dict[str, str]] | None] | None] = native("usual_head")
# Repeated, these would make the end or the host of a request ambiguous. For Content-Type the first counts.
_ONCE = frozenset({"CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING", "HTTP_HOST"})


class ParserState(Enum):
    """The next thing to parse."""

    HEAD = "a head"
    LENGTH = "a body of a known length"
    CHUNK_LINE = "the size of a chunk"
    CHUNK = "a chunk"
    CHUNK_END = "the end of a chunk"
    TRAILERS = "trailers"
    WHOLE = "nothing of this request"
    OVER = "nothing that is read here"

    __hash__ = object.__hash__  # Enum's is written in Python and costs 1 µs per request


MACHINE = between(
    "HTTP parser",
    {
        ParserState.HEAD: frozenset({ParserState.LENGTH, ParserState.CHUNK_LINE, ParserState.OVER}),
        ParserState.LENGTH: frozenset({ParserState.WHOLE, ParserState.OVER}),
        ParserState.CHUNK_LINE: frozenset({ParserState.CHUNK, ParserState.TRAILERS, ParserState.OVER}),
        ParserState.CHUNK: frozenset({ParserState.CHUNK_END, ParserState.OVER}),
        ParserState.CHUNK_END: frozenset({ParserState.CHUNK_LINE, ParserState.OVER}),
        ParserState.TRAILERS: frozenset({ParserState.WHOLE, ParserState.OVER}),
        ParserState.WHOLE: frozenset({ParserState.HEAD, ParserState.OVER}),
        ParserState.OVER: frozenset(),
    },
)


class Request(msgspec.Struct, frozen=True, gc=False):
    """The head of a request. The connection ends after its answer if it `ends`."""

    method: str
    path: str
    """Percent-decoded, one character per byte as in WSGI."""
    query: str
    fields: Mapping[str, str]
    """The headers under their WSGI names, such as `HTTP_HOST` and `CONTENT_TYPE`."""
    body_bytes: int
    """0 for a chunked body."""
    ends: bool
    is_chunked: bool = False
    protocol: str = "HTTP/1.1"
    expects_continue: bool = False

    def environ(self, base: dict[str, Any], client_address: object) -> dict[str, Any]:
        """Add this request to `base`, the WSGI environment of the server, and return it."""
        base["REQUEST_METHOD"], base["SCRIPT_NAME"] = self.method, ""
        base["PATH_INFO"], base["QUERY_STRING"], base["SERVER_PROTOCOL"] = self.path, self.query, self.protocol
        if isinstance(client_address, tuple):
            base["REMOTE_ADDR"], base["REMOTE_PORT"] = str(client_address[0]), str(client_address[1])
        base |= self.fields
        return base


class BadRequest(NamedTuple):
    """Invalid bytes, with the status of the answer, the reason, and their actual protocol if known."""

    status: str
    reason: str
    other_protocol: str | None = None


END: Final = b""
Event: TypeAlias = Request | bytes | BadRequest | None
_BAD_BODY = BadRequest(BAD_REQUEST, "the body is not valid HTTP")


class RequestParser:
    """See the module. `block` has the bytes of the last head, `held` those not parsed yet.

    `is_like_last` is whether the last request repeats the previous head, apart from the length of the body.
    """

    __slots__ = ("_before", "_behind", "_last", "_left", "_scanned", "block", "held", "is_like_last", "state")

    def __init__(self, received: bytes = b"") -> None:
        self.state = ParserState.HEAD
        self.held = received
        self._scanned = self._left = 0
        self.block = self._before = self._behind = b""
        self._last: Request | None = None
        self.is_like_last = False

    @property
    def left_bytes(self) -> int | None:
        """How many bytes of the body are left; None if unknown."""
        if self.state is ParserState.LENGTH:
            return self._left
        return 0 if self.state is ParserState.WHOLE else None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection."""
        self.held = self.held + data if self.held else data

    def end(self) -> BadRequest | None:
        """Take the end of the connection; return the fault of an incomplete request, if any."""
        if self.state is ParserState.HEAD and not self.held:
            return None
        return self._refuse(BadRequest(BAD_REQUEST, "the request ends too early"))

    def repeated(self, data: bytes) -> bytes | None:
        """Return the body in `data` if it is one whole request with the last head, apart from the length of the body.

        Parses nothing. Otherwise, or in the middle of a request, returns None.
        """
        before, behind = self._before, self._behind
        if self.held or self.state is not ParserState.HEAD or not (before and data.startswith(before)):
            return None
        end = data.find(b"\r", len(before), len(before) + _MAX_LENGTH_DIGITS + 1)
        digits, body = data[len(before) : end], data[end + len(behind) :]
        return body if digits.isdigit() and data.startswith(behind, end) and len(body) == int(digits) else None

    def whole_body(self, *, takes: bool = True) -> bytes | None:
        """Return the rest of the body and go to the end of the request, unless not `takes`; None if the body is incomplete."""
        held, left = self.held, self._left
        if self.state is ParserState.WHOLE:
            return b""
        if self.state is not ParserState.LENGTH or len(held) < left:
            return None
        if takes:
            self.held, self._left = held[left:], 0
            self.state = MACHINE[self.state, ParserState.WHOLE]
        return held[:left]

    def leave(self) -> bytes:
        """Stop parsing; return the bytes not parsed."""
        held, self.held = self.held, b""
        self.state = MACHINE[self.state, ParserState.OVER]
        return held

    def next_request(self) -> None:
        """Continue with the next request. This one must have been parsed to its end."""
        self.state = MACHINE[self.state, ParserState.HEAD]

    def next_event(self) -> Event:
        """Return the next event; None when more bytes are needed."""
        while True:
            state = self.state
            if state is ParserState.HEAD:
                return self._head()
            if state is ParserState.LENGTH:
                return self._piece(ParserState.WHOLE)
            if state is ParserState.CHUNK:
                return self._piece(ParserState.CHUNK_END)
            if state is ParserState.WHOLE:
                return END
            if state is ParserState.OVER:
                return None
            fault = self._lines()
            if fault is not None or self.state is state:
                return fault

    def _refuse(self, fault: BadRequest) -> BadRequest:
        self.state = MACHINE[self.state, ParserState.OVER]
        if self._last is None:  # the first bytes of the connection
            for start, name in _OTHER_PROTOCOLS.items():
                if self.held.startswith(start):
                    return BadRequest(BAD_REQUEST, f"the gateway speaks HTTP/1.1, and this is {name}", name)
        return fault

    def _head(self) -> Request | BadRequest | None:
        if not (held := self.held):
            return None
        self.is_like_last = True
        request = None if self._last is None else self._last if held.startswith(self.block) else self._again(self._last, held)
        if request is None:
            end = held.find(b"\r\n\r\n", self._scanned) + 4
            if end < 4:
                return self._incomplete()
            read = read_head(held[:end])
            if isinstance(read, BadRequest):
                return self._refuse(read)
            self.block, self._last = held[:end], read
            line = _LENGTH_LINE.search(self.block) if "CONTENT_LENGTH" in read.fields else None
            self._before, self._behind = (b"", b"") if line is None else (held[: line.start(1)], held[line.end(1) : end])
            request, self.is_like_last = read, False
        self.held = held[len(self.block) :]
        self._scanned = 0
        if request.is_chunked:
            self.state = MACHINE[self.state, ParserState.CHUNK_LINE]
        else:
            self._left = request.body_bytes
            self.state = MACHINE[self.state, ParserState.LENGTH]
        return request

    def _incomplete(self) -> BadRequest | None:
        """Refuse an incomplete head that no further bytes can make valid."""
        held = self.held
        line = held.find(b"\n") + 1
        if (fault := _too_long(line or len(held), len(held) - line)) is not None:
            return self._refuse(fault)
        if held[:1] == b"\x16" or (line and (not _REQUEST_LINE.match(held) or _LONE_LF.search(held, self._scanned))):
            return self._refuse(BadRequest(BAD_REQUEST, "not a valid HTTP request"))
        self._scanned = max(0, len(held) - 3)
        return None

    def _again(self, last: Request, held: bytes) -> Request | None:
        """Return the next request if its head equals the last one, apart from the length of the body."""
        before = self._before
        if not before or not held.startswith(before):
            return None
        at = len(before)
        digits = held[at : held.find(b"\r", at, at + _MAX_LENGTH_DIGITS + 1)]
        if not digits.isdigit() or not held.startswith(self._behind, at + len(digits)):
            return None
        length = digits.decode()
        self.block = b"%b%b%b" % (before, digits, self._behind)
        fields = {**last.fields, "CONTENT_LENGTH": length}
        self._last = msgspec.structs.replace(last, fields=fields, body_bytes=int(length))
        return self._last

    def _piece(self, behind: ParserState) -> bytes | None:
        held, left = self.held, self._left
        if left and not held:
            return None
        piece, self.held = held[:left], held[left:]
        self._left = left - len(piece)
        if not self._left and (not piece or behind is not ParserState.WHOLE):  # the end of a body is another event
            self.state = MACHINE[self.state, behind]
        return piece

    def _lines(self) -> BadRequest | None:
        """Parse the end of a chunk, the size of the next one, or the trailers, once they are complete."""
        held = self.held
        if self.state is ParserState.CHUNK_END:
            if not held.startswith(b"\r\n"):
                return None if b"\r\n".startswith(held) else self._refuse(_BAD_BODY)
            self.held = held[2:]
            self.state = MACHINE[self.state, ParserState.CHUNK_LINE]
            return None
        if self.state is ParserState.TRAILERS:
            end = 2 if held.startswith(b"\r\n") else held.find(b"\r\n\r\n") + 4
            if end >= 4 or end == 2:
                if end > MAX_HEADER_BYTES or not _FIELDS.fullmatch(held, 0, end):
                    return self._refuse(_BAD_BODY)
                self.held = held[end:]
                self.state = MACHINE[self.state, ParserState.WHOLE]
                return None
            return self._refuse(_BAD_BODY) if len(held) > MAX_HEADER_BYTES else None
        if (line := _CHUNK_LINE.match(held, 0, MAX_CHUNK_LINE_BYTES)) is None:
            return self._refuse(_BAD_BODY) if b"\n" in held or len(held) >= MAX_CHUNK_LINE_BYTES else None
        self.held, self._left = held[line.end() :], int(line[1], 16)
        self.state = MACHINE[self.state, ParserState.CHUNK if self._left else ParserState.TRAILERS]
        return None


@lru_cache(maxsize=64)  # clients send few different values
def list_of(value: str) -> frozenset[str]:
    """Return the elements of a list header such as Connection, in lower case (RFC 9110 section 5.6.1)."""
    return frozenset(element.strip(" \t").lower() for element in value.split(",")) - {""}


def read_head(block: bytes) -> Request | BadRequest:
    """Parse a head, which ends with an empty line."""
    if _usual_head is not None and (usual := _usual_head(block)) is not None:
        method, target, fields = usual
        return _framed(method, target, True, fields)
    return read_head_in_python(block)


def read_head_in_python(block: bytes) -> Request | BadRequest:
    """Parse a head as `read_head`, also one that the reader in C leaves, and all if it is not built."""
    if len(block) > MAX_LINE_BYTES:
        size = block.index(b"\n") + 1
        if (fault := _too_long(size, len(block) - size)) is not None:
            return fault
    if (line := _REQUEST_LINE.match(block)) is None:
        return BadRequest(BAD_REQUEST, "not a valid HTTP request")
    if not _FIELDS.fullmatch(block, line.end()):
        return BadRequest(BAD_REQUEST, "malformed header")
    lines = _FIELD.findall(block[line.end() :].decode("latin-1"))
    if len(lines) > MAX_HEADER_LINES:
        return BadRequest("431 Request Header Fields Too Large", f"more than {MAX_HEADER_LINES} headers")
    fields: dict[str, str] = {}
    for name, value in lines:
        key = _environ_name(name)
        if key not in fields:
            fields[key] = value.rstrip("\t ")
        elif key in _ONCE:
            return BadRequest(BAD_REQUEST, f"two {name.lower()} headers")
        elif key != "CONTENT_TYPE":
            fields[key] += f"{'; ' if key == 'HTTP_COOKIE' else ','}{value}".rstrip("\t ")
    fields.pop(_DROPPED, None)
    return _framed(line[1].decode(), line[2].decode(), line[3] == b"1", fields)


def _framed(method: str, target: str, is_1_1: bool, fields: dict[str, str]) -> Request | BadRequest:
    """Return a request of these parts, with its end."""
    if is_1_1 and "HTTP_HOST" not in fields:  # RFC 9112 section 3.2
        return BadRequest(BAD_REQUEST, "a request of HTTP/1.1 needs a Host header")
    path, _, query = target.partition("?")
    if path[:1] != "/" and not (path == "*" and method == "OPTIONS"):
        if (absolute := _ABSOLUTE.fullmatch(path)) is None:
            return BadRequest(BAD_REQUEST, "the target is no path")
        # The host of the target overrides Host (RFC 9112 section 3.2.2).
        fields["HTTP_HOST"], path = absolute[1], absolute[2] or "/"
    if "%" in path:
        path = unquote_to_bytes(path).decode("latin-1")
    length, is_chunked = 0, False
    if (length_field := fields.get("CONTENT_LENGTH")) is not None:
        if not LENGTH.fullmatch(length_field):
            return BadRequest(BAD_REQUEST, "malformed content-length")
        length = int(length_field)
    if (coding := fields.get("HTTP_TRANSFER_ENCODING")) is not None:
        if length_field is not None or not is_1_1:  # a proxy may have used the other length (RFC 9112 section 6.1)
            return BadRequest(BAD_REQUEST, "transfer-encoding with a content-length, or in HTTP/1.0")
        if coding.lower() != "chunked":
            return BadRequest("501 Not Implemented", "unknown transfer-encoding; known: chunked")
        is_chunked = True
    expectation = fields.get("HTTP_EXPECT")
    if expectation is not None and expectation.lower() != "100-continue":
        return BadRequest("417 Expectation Failed", "unknown expectation; known: 100-continue")
    options = list_of(fields["HTTP_CONNECTION"]) if "HTTP_CONNECTION" in fields else ()
    ends = "close" in options or not (is_1_1 or "keep-alive" in options)
    protocol = "HTTP/1.1" if is_1_1 else "HTTP/1.0"
    # A client of HTTP/1.0 would read 100 Continue as the answer (RFC 9110 section 10.1.1).
    return Request(method, path, query, fields, length, ends, is_chunked, protocol, expectation is not None and is_1_1)


def _too_long(line_bytes: int, header_bytes: int) -> BadRequest | None:
    if line_bytes > MAX_LINE_BYTES:
        return BadRequest("414 URI Too Long", "the request line is too long")
    if header_bytes > MAX_HEADER_BYTES:
        return BadRequest("431 Request Header Fields Too Large", f"headers of more than {MAX_HEADER_BYTES} bytes")
    return None


# Names with `_` are dropped. In the environment they would look like names with `-`, which a proxy may check.
_DROPPED = "_"


@lru_cache(maxsize=128)  # clients send few different names
def _environ_name(name: str) -> str:
    """Return a header's name in the WSGI environment."""
    if "_" in name:
        return _DROPPED
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{key}"
