"""Answers of the HTTP server itself, without the application: errors and refusals, each with a line that says why. No I/O."""

from __future__ import annotations

from random import randint
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


NO_ROOM_TEXT = "this gateway has no room for more connections now; try again later, or another gateway"
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


def refusing(status: str, told: str, retry_after_s: int) -> WSGIApplication:
    """Return an application that refuses, and closes the connection."""

    def refuse(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        body = f"{told}\n".encode()
        headers = [
            ("Content-Type", "text/plain"),
            ("Content-Length", str(len(body))),
            ("Retry-After", str(retry_after_s)),
            ("Connection", "close"),
        ]
        start_response(status, headers)
        return [body]

    return refuse
