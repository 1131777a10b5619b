"""The header lines of an HTTP request: limits first, then just enough parsing. No I/O but the reader it is given.

pywsgi's own parser is the e-mail package's: it costs a fifth of a whole WebSocket handshake, takes 100 lines of 64 KiB, and
is lenient where RFC 9112 asks a server not to be. This one has the interface that pywsgi uses of it, and no more.
"""

from __future__ import annotations

import re
from typing import Protocol

MAX_HEADER_BYTES = 16384
MAX_HEADER_LINES = 100
BAD_REQUEST = "400 Bad Request"
TOO_LARGE = "431 Request Header Fields Too Large"
EXPECTATION_FAILED = "417 Expectation Failed"
NOT_IMPLEMENTED = "501 Not Implemented"
# RFC 9110 section 5.6.2.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
# No body is that long; int() of many more digits would take a while.
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)


def is_token(text: str) -> bool:
    """Return whether a text is a token, as a field's name and a method are (RFC 9110 sections 5.6.2 and 9.1)."""
    return _NAME.fullmatch(text) is not None


def list_of(value: str) -> set[str]:
    """Return the elements of a field that is a list of words in any case, such as Connection (RFC 9110 section 5.6.1)."""
    return {element.strip(" \t").lower() for element in value.split(",")} - {""}


class Reader(Protocol):
    """Where the lines come from."""

    def readline(self, limit: int, /) -> bytes:
        """Return a line with its end, at most `limit` bytes; nothing at the end of the stream. May wait."""


class RequestHeaders:
    """Headers by name. `status` is empty, or says what is wrong with them; `answer` is then the HTTP status to give.

    Attributes:
        headers: the lines as they came, from which pywsgi makes the WSGI environment.
    """

    __slots__ = ("_values", "answer", "headers", "status")

    def __init__(self, reader: Reader) -> None:
        self.headers: list[str] = []
        self._values: dict[str, str] = {}
        self.answer = BAD_REQUEST
        self.status = self._read(reader)

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of a header."""
        return self._values.get(name.lower(), default)

    getheader = get

    def __delitem__(self, name: str) -> None:
        del self._values[name.lower()]

    @property
    def typeheader(self) -> str | None:
        """The Content-Type."""
        return self._values.get("content-type")

    def _read(self, reader: Reader) -> str:
        left = MAX_HEADER_BYTES
        while True:
            line = reader.readline(left + 1)
            left -= len(line)
            if left < 0:
                self.answer = TOO_LARGE
                return f"Headers of more than {MAX_HEADER_BYTES} bytes"
            if line in (b"\r\n", b"\n"):
                return self._framing_fault()
            if not line.endswith(b"\n"):
                return "Headers end too early"
            if len(self.headers) >= MAX_HEADER_LINES:
                self.answer = TOO_LARGE
                return f"More than {MAX_HEADER_LINES} headers"
            # RFC 9112 section 5: no white space before the colon, no lines folded into the next; RFC 9110 section 5.5: neither
            # NUL nor a lone CR, which some read as the end of a line.
            text = line.decode("latin-1")
            name, _, value = text.partition(":")
            value = value.removesuffix("\n").removesuffix("\r").strip(" \t")
            if not _NAME.fullmatch(name) or "\0" in value or "\r" in value:
                return "Malformed header"
            name = name.lower()
            if name in ("content-length", "transfer-encoding", "host") and name in self._values:
                return f"Two {name} headers"  # two views of where a request ends are how requests are smuggled
            if name == "content-length" and not _LENGTH.fullmatch(value):
                return "Malformed content-length"  # int() would read `+5` and `1_0`, a proxy in front of us something else
            if name == "expect":
                # RFC 9110 section 10.1.1: in any case, and there is no other. pywsgi compares letters.
                if value.lower() != "100-continue":
                    self.answer = EXPECTATION_FAILED
                    return "Unknown expectation; known: 100-continue"
                text = "Expect: 100-continue\r\n"
            if name == "connection" and name in self._values:
                value = f"{self._values.pop(name)}, {value}"
            self._values.setdefault(name, value)
            self.headers.append(text)

    def _framing_fault(self) -> str:
        """Return what is wrong with how the headers say where the body ends; nothing if all is well."""
        coding = self._values.get("transfer-encoding")
        if coding is None:
            return ""
        # RFC 9112 section 6.1: the one of the two that a proxy believed may not be the one that we would.
        if "content-length" in self._values:
            return "Both content-length and transfer-encoding"
        if coding.lower() != "chunked":
            self.answer = NOT_IMPLEMENTED  # RFC 9112 section 6.1; read as "no body", its body would be the next request
            return "Unknown transfer-encoding; known: chunked"
        return ""
