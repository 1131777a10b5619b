"""Answers of the HTTP server itself, without the application: errors and refusals, each with a line that says why. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def error_answer(status: str, told: str) -> bytes:
    """Return a whole answer that closes the connection, with a line that says why."""
    body = f"{told}\n".encode("latin-1", "replace")
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


def too_many_text(limit: int) -> str:
    return f"limit reached: connections_per_address (at most {limit} HTTP connections of one network address at once)"


def refusing(limit: int) -> WSGIApplication:
    """Return an application that answers 429."""

    def refuse(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        body = f"{too_many_text(limit)}\n".encode()
        headers = [
            ("Content-Type", "text/plain"),
            ("Content-Length", str(len(body))),
            ("Retry-After", "1"),
            ("Connection", "close"),
        ]
        start_response("429 Too Many Requests", headers)
        return [body]

    return refuse
