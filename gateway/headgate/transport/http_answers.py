"""Answers of routes, and the errors and refusals of the server. No I/O.

Every refusal has the body `{"error": {code, message, retry, retry_after_s?, …parts}}` (docs/protocol.md) and is not cached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from random import randint
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import msgspec

from headgate.errors import HeadgateError, LimitReached, PayloadTooLarge, Unauthorized

NO_STORE = ("Cache-Control", "no-store")
# A random number of seconds in this range, so that clients do not all return at once.
NO_ROOM_RETRY_S = (1, 5)
# For a retryable error without a time.
RETRY_AFTER_S = 1
# A connection without room is refused before its Origin is known. The limit is not a secret.
_FOR_ANY_PAGE = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", "Retry-After"))

# The status of each error (RFC 9110, section 15). Any other code gets 400, because the request is at fault.
STATUS_BY_CODE = {
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_namespace": 404,
    "not_acceptable": 406,
    "conflict": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "unknown_host": 421,
    "origin_not_allowed": 403,
    "batch_refused": 422,
    "schema_violation": 422,
    # 429 where waiting helps.
    "limit_reached": 409,
    "bus_refused": 502,
    "authorize_failed": 503,
    "bus_unavailable": 503,
    "overloaded": 503,
    "paused": 503,
}
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


def status_of(error: HeadgateError) -> int:
    """Return the status for an error."""
    return 429 if error.code == LimitReached.code and error.retry else STATUS_BY_CODE.get(error.code, 400)


def http_error(code: str, message: str, *, retry: bool = False) -> dict[str, Any]:
    """Return the wire form of an HTTP error that has no class in headgate.errors."""
    return {"code": code, "message": message, "retry": retry}


def error_answer(status: str, error: Mapping[str, Any], **around: object) -> Answer:
    """Return an answer with the wire form of an error. `around` adds members to its body."""
    body = json.dumps({**around, "error": error}, separators=(",", ":")).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), NO_STORE]
    return Answer(status, [*headers, *error_fields(error)], body)


def error_fields(error: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers for the wire form of an error: when to retry, and how to authenticate (RFC 9110, section 11.6.1)."""
    fields = [("Retry-After", str(error.get("retry_after_s", RETRY_AFTER_S)))] if error["retry"] else []
    return [*fields, ("WWW-Authenticate", 'Bearer realm="headgate"')] if error["code"] == Unauthorized.code else fields


def last_answer(status: str, error: Mapping[str, Any]) -> Answer:
    """Return an error after which the connection ends."""
    return msgspec.structs.replace(error_answer(status, error), closes=True)


def too_large(size_bytes: int, limit_bytes: int) -> Answer:
    """Return the answer to a request with a larger body than the server allows."""
    return last_answer("413 Content Too Large", PayloadTooLarge(size_bytes, limit_bytes, "http").to_wire())


def no_room(name: str, limit: int) -> Answer:
    """Return the answer to a connection beyond the limit `connections` or `connections_per_address`."""
    status = "503 Service Unavailable" if name == "connections" else "429 Too Many Requests"
    answer = error_answer(status, LimitReached(name, limit, randint(*NO_ROOM_RETRY_S)).to_wire())
    return msgspec.structs.replace(answer, headers=(*answer.headers, *_FOR_ANY_PAGE), closes=True)


class Answer(msgspec.Struct, frozen=True):
    """A whole answer, which is also a WSGI application. The connection ends after it if it `closes`."""

    status: str
    headers: Sequence[tuple[str, str]]
    """Including Content-Length, without Date and Connection."""
    body: bytes
    closes: bool = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response(self.status, [*self.headers, ("Connection", "close")] if self.closes else list(self.headers))
        # A client would read a body as the next answer (RFC 9110, section 9.3.2), and WSGI servers do not drop it.
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [self.body]

    def to_bytes(self, now_s: float, *, close: bool = False) -> bytes:
        """Return the answer as bytes. With `close`, or if it `closes`, the connection ends after it."""
        ends = b"Connection: close\r\n\r\n" if close or self.closes else b"\r\n"
        return b"".join((_head(self.status, tuple(self.headers)), date_line(int(now_s)), ends, self.body))


@lru_cache(maxsize=256)  # most answers differ only in their body and its length
def _head(status: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return status line and headers. Raises ValueError for a line break, which would inject another header."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("line break in a header")
    return "\r\n".join([*lines, ""]).encode("latin-1")


@lru_cache(maxsize=1)
def date_line(now_s: int) -> bytes:
    """Return the line of a Date header for seconds since 1970."""
    return f"Date: {formatdate(now_s, usegmt=True)}\r\n".encode()
