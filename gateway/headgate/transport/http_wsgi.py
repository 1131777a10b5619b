"""The answer of a WSGI application to one request (PEP 3333).

The answer has a Content-Length if the application gives one or returns a list. Otherwise it is chunked, or ends with the
connection for a client of HTTP/1.0. An answer to HEAD, and one of 204 or 304, has no body, whatever the application yields.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias
from wsgiref.types import WSGIEnvironment

from .http_answers import date_line
from .http_parser import Request, list_of

if TYPE_CHECKING:
    from .http_connection import HttpConnection

Headers: TypeAlias = list[tuple[str, str]]
ExcInfo: TypeAlias = "tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]"
# A first piece up to this size is written together with the head.
_WITH_HEAD_BYTES = 16384
_NO_BODY = ("204", "304")


class WsgiExchange:
    """See the module. `status` and `headers` are empty until the application has called `start_response`.

    The answer `is_begun` when any of it is written. The connection ends after it if it `ends`.
    """

    __slots__ = (
        *("_connection", "_is_chunked", "_left_bytes", "_request", "_result"),
        *("ends", "environ", "headers", "is_begun", "status"),
    )

    def __init__(self, connection: HttpConnection, request: Request, environ: WSGIEnvironment) -> None:
        self._connection, self._request, self.environ = connection, request, environ
        self.status, self.headers = "", Headers()
        self.is_begun = self.ends = self._is_chunked = False
        # What is left of the Content-Length; None without one.
        self._left_bytes: int | None = None
        self._result: Iterable[bytes] | None = None

    def run(self, application: Callable[[WSGIEnvironment, Any], Iterable[bytes]]) -> None:
        """Run the application. Switches greenlets, and raises the application's exceptions."""
        result = self._result = application(self.environ, self.start_response)
        try:
            for piece in result:
                if piece:
                    self.write(piece)
            if self.status and not self.is_begun:
                self.write(b"")
            if self._is_chunked:
                self._connection.write(b"0\r\n\r\n")
            if self._left_bytes:
                self.ends = True  # the client waits for the rest
        finally:
            self._result = None
            if (close := getattr(result, "close", None)) is not None:
                close()

    def start_response(self, status: str, headers: Headers, exc_info: ExcInfo | None = None, /) -> Callable[[bytes], object]:
        """Begin the answer (PEP 3333). Raises ValueError for a bad status, a line break, or a text outside latin-1."""
        try:
            if exc_info is not None and exc_info[1] is not None and self.is_begun:
                raise exc_info[1].with_traceback(exc_info[2])
        finally:
            exc_info = None  # it would be a cycle
        if self.is_begun:
            raise RuntimeError("start_response was called again after the beginning of the answer")
        for text in (status, *(text for header in headers for text in header)):
            if not isinstance(text, str):
                raise UnicodeError(f"expected a str, got {text!r}")
            text.encode("latin-1")
            if "\r" in text or "\n" in text:
                raise ValueError(f"line break in {text[:100]!r}")
        int(status[:3])
        self.status, self.headers = status, list(headers)
        return self.write

    def write(self, data: bytes, /) -> None:
        """Write a piece of the body (`write` of PEP 3333). Switches greenlets."""
        head = b"" if self.is_begun else self._head()
        self.is_begun = True
        if self._request.method == "HEAD" or self.status[:3] in _NO_BODY:
            data = b""
        elif self._left_bytes is not None:
            data = data[: self._left_bytes]
            self._left_bytes -= len(data)
        elif self._is_chunked and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if head and len(data) > _WITH_HEAD_BYTES:
            self._connection.write(head)
            head = b""
        self._connection.write(head + data if head else data)

    def _head(self) -> bytes:
        """Return status line and headers, including those for framing and the connection."""
        if not self.status:
            raise RuntimeError("the application did not call start_response")
        is_1_1 = self._request.protocol == "HTTP/1.1"
        has_body = self.status[:3] not in _NO_BODY and self.status[:1] != "1"
        headers: Headers = []
        length: str | None = None
        date = date_line(int(time.time()))
        for name, value in self.headers:
            lower = name.lower()
            if lower == "connection":
                self.ends = self.ends or "close" in list_of(value)
            elif lower == "content-length" and (has_body or self.status[:3] == "304"):
                length = value
                headers.append((name, value))
            elif lower not in ("content-length", "transfer-encoding"):  # meaningless here, or set by the server (PEP 3333)
                headers.append((name, value))
            if lower == "date":
                date = b""
            elif lower == "upgrade":  # RFC 9110 section 7.8
                headers.append(("Connection", "Upgrade"))
        if has_body and self._request.method != "HEAD":
            if length is None and isinstance(self._result, list | tuple):
                length = str(sum(map(len, self._result)))
                headers.append(("Content-Length", length))
            if length is not None:
                self._left_bytes = int(length)
            elif is_1_1:
                self._is_chunked = True
                headers.append(("Transfer-Encoding", "chunked"))
            else:
                self.ends = True
        self.ends = self.ends or self._connection.ends_after(self._request) or self._connection.must_end
        connection = b"Connection: close\r\n" if self.ends else b"" if is_1_1 else b"Connection: keep-alive\r\n"
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in headers), ""]
        return b"%b%b%b\r\n" % ("\r\n".join(lines).encode("latin-1"), date, connection)


def base_environ(name: str, port: int, scheme: str, errors: Any) -> dict[str, Any]:
    """Return the server's part of the environment."""
    from wsgiref.util import FileWrapper

    return {
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_SOFTWARE": "headgate",
        "SERVER_NAME": name,
        "SERVER_PORT": str(port),
        "SCRIPT_NAME": "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.errors": errors,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        "wsgi.file_wrapper": FileWrapper,
    }
