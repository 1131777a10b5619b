"""Answers without the application: of a route below WSGI, and the server's own errors and refusals. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from random import randint
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


NO_ROOM_TEXT = "this gateway has no room for more connections now; try again later, or another gateway"
ROUTE_FAILED_TEXT = "the server failed; its log says why"
# Clients that were refused together come back apart.
RETRY_AFTER_S = (1, 5)


def error_answer(status: str, told: str, retry_after_s: int | None = None) -> bytes:
    """Return a whole answer that closes the connection, with a line that says why."""
    body = f"{told}\n".encode("latin-1", "replace")
    later = "" if retry_after_s is None else f"Retry-After: {retry_after_s}\r\n"
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\n{later}Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


def retry_after_s() -> int:
    """Return the seconds after which a client that found no room may try again: a random number of them."""
    return randint(*RETRY_AFTER_S)


def too_many_text(limit: int) -> str:
    return f"limit reached: connections_per_address (at most {limit} HTTP connections of one network address at once)"


class Answer(NamedTuple):
    """A whole answer. It is also the WSGI application that gives it.

    Attributes:
        status: such as `201 CREATED`.
        headers: with the length of the body, and without Date and Connection.
        closes: whether the connection ends behind it.
    """

    status: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    closes: bool = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response(self.status, [*self.headers, ("Connection", "close")] if self.closes else list(self.headers))
        return [self.body]

    def to_bytes(self, now_s: float, *, close: bool) -> bytes:
        """Return what is written to the connection: the bytes that pywsgi writes for the same answer.

        `now_s` (seconds since 1970) goes into Date; `close` says that the connection ends behind it, whatever `closes` says.
        """
        head, date = _head(self.status, tuple(self.headers)), _date(int(now_s))
        if self.closes:
            return b"%bConnection: close\r\nDate: %b\r\n\r\n%b" % (head, date, self.body)
        return b"%bDate: %b\r\n%b%b" % (head, date, b"Connection: close\r\n\r\n" if close else b"\r\n", self.body)


def refusing(status: str, told: str, retry_after_s: int) -> Answer:
    """Return the answer that refuses a request, and closes the connection."""
    body = f"{told}\n".encode()
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("Retry-After", str(retry_after_s))]
    return Answer(status, headers, body, closes=True)


@lru_cache(maxsize=256)  # most answers differ in their body and its length only
def _head(status: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return status line and headers.

    Raises:
        ValueError: a line break in a header would begin another one.
    """
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("line break in a header")
    return "\r\n".join([*lines, ""]).encode("latin-1")


@lru_cache(maxsize=1)
def _date(now_s: int) -> bytes:
    return formatdate(now_s, usegmt=True).encode()
