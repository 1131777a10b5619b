"""JSON answers of the HTTP API, with the same bytes below WSGI and through Flask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from flask import Response
from werkzeug.http import HTTP_STATUS_CODES

from headgate.transport.http_answers import Answer

_STATUS = {code: f"{code} {phrase.upper()}" for code, phrase in HTTP_STATUS_CODES.items()}


def json_bytes(value: object) -> bytes:
    """Return JSON as Flask writes it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def encoded_answer(
    status: int, body: bytes, headers: Sequence[tuple[str, str]] = (), media_type: str = "application/json"
) -> Answer:
    shown = _headers_of(len(body), media_type)
    return Answer(_STATUS.get(status) or f"{status} UNKNOWN", (*shown, *headers) if headers else shown, body)


@lru_cache(maxsize=256)  # receipts differ in a few digits
def _headers_of(size: int, media_type: str) -> tuple[tuple[str, str], ...]:
    return ("Content-Type", media_type), ("Content-Length", str(size))


def as_response(answer: Answer) -> Response:
    return Response(answer.body, status=answer.status, headers=list(answer.headers))
