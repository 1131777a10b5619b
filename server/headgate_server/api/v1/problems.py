"""Every refusal over HTTP is a problem, `application/problem+json` (RFC 9457), with the codes of the wire.

Out: `{type, title, status, detail, code, retry, …parts}`, and `errors: [{pointer, code, detail, …}]` for faults in the body,
with a JSON Pointer to each faulty field. `type` leads to the code's description, which is the first sentence of its class.

400 is for an unreadable request, and 422 for a readable body that requests something impossible.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from flask import Response
from werkzeug.http import HTTP_STATUS_CODES

from headgate import errors
from headgate.errors import Forbidden, HeadgateError, LimitReached
from headgate.runtime.logging import wire_form
from headgate.services.publisher import NonePublished
from headgate.transport.http_answers import STATUS_BY_CODE, Answer, error_fields, status_of

ROOT = "/api/v1"
MEDIA_TYPE = "application/problem+json"
# Namespaces listed in one problem.
_MAX_SHOWN = 5
# Places in a body listed in one problem. `refused` counts all.
MAX_NAMED = 100
# Codes in addition to those of the error tree, by HTTP status.
OF_HTTP: Mapping[int, tuple[str, str]] = {
    400: ("bad_request", "The request cannot be read as HTTP."),
    404: ("not_found", "There is no such path, or nothing with that name (any more)."),
    405: ("method_not_allowed", "The path does not have this method. The field Allow lists its methods."),
    406: ("not_acceptable", "The answer would be JSON, which the field Accept of the request does not allow."),
    408: ("request_timeout", "The body of the request took too long."),
    409: ("conflict", "The current state does not allow it."),
    415: ("unsupported_media_type", "The body is not JSON by its Content-Type, or has a Content-Encoding."),
    500: ("internal_error", "The server failed; its log says why."),
}


# The base class, and errors that only the start of a gateway reports.
_NOT_HERE = ("error", "invalid_settings", "not_durable")


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


def http_refusal(status: int, message: str, **parts: Any) -> HeadgateError:
    """Return a refusal with a code of HTTP itself (OF_HTTP)."""
    error = HeadgateError(message, **parts)
    error.code = OF_HTTP[status][0]
    return error


def not_found(what: str, name: str) -> HeadgateError:
    """Return the error for something that does not exist (any more)."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return http_refusal(404, f"there is no {what} {name[:80]!r} (any more)", what=what, name=shown[:80])


def scope_missing(scope: str) -> Forbidden:
    """Return the error for a known caller without the scope."""
    return Forbidden("use", scope, f"the scope {scope!r} is missing", scope=scope)


def namespaces_missing(namespaces: Sequence[str]) -> Forbidden:
    """Return the error for a known caller without a key for these namespaces."""
    shown = ", ".join(namespaces[:_MAX_SHOWN]) + (", …" if len(namespaces) > _MAX_SHOWN else "")
    message = f"this reaches namespaces that the key is not for ({shown}); expected a key for them, or for all (*)"
    return Forbidden("reach", shown, message)


class RateReached(LimitReached):
    """A caller is too fast. `fields` have its quota (draft-ietf-httpapi-ratelimit-headers-10)."""

    def __init__(self, name: str, per_s: float, burst: int, wait_s: float) -> None:
        super().__init__(name, per_s, wait_s)
        policy = f'"{name}";q={burst};w={max(1, round(burst / per_s))}'
        self.fields = (("RateLimit-Policy", policy), ("RateLimit", f'"{name}";r=0;t={self.retry_after_s}'))


class BodyFault(Exception):
    """Faults in a readable body: (JSON Pointer, error) of each."""

    def __init__(self, faults: Sequence[tuple[str, HeadgateError]]) -> None:
        super().__init__(f"{len(faults)} faults in a body")
        self.faults = tuple(faults)


class Problem(msgspec.Struct, omit_defaults=True):
    """A refusal (RFC 9457). It may also have its code's own members, such as `limit` or `scope`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retry: bool
    retry_after_s: int | None = None
    errors: list[FaultAt] | None = None


class FaultAt(msgspec.Struct):
    """One fault in a body, and its place as a JSON Pointer (RFC 6901)."""

    pointer: str
    code: str
    detail: str


def problem_answer(error: HeadgateError | BodyFault) -> Answer:
    if isinstance(error, HeadgateError):
        status = status_of(error)
        return _answer(status, _members(error.code, status, _wire_form(error)), _headers(error))
    faults = error.faults
    named = [{"pointer": pointer, **_wire_form(each)} for pointer, each in faults[:MAX_NAMED]]
    first = faults[0][1]
    status = status_of(first)
    status = 422 if status == 400 else status
    if len(faults) == 1:
        return _answer(status, {**_members(first.code, status, _wire_form(first)), "errors": named}, _headers(first))
    detail = f"{len(faults)} faults; the first is at {faults[0][0]}: {first.message}"
    parts = {"detail": detail, "retry": False, "refused": len(faults), "errors": named}
    return _answer(422, _members("batch_refused", 422, parts))


def http_problem(status: int, detail: str | None = None, headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """Return the answer for a refusal of HTTP itself."""
    code, meaning = OF_HTTP.get(status, OF_HTTP[500 if status >= 500 else 400])
    return _answer(status, _members(code, status, {"detail": detail or meaning, "retry": status == 408}), headers)


def descriptions() -> dict[str, tuple[int, str]]:
    """Return status and description of every code of a refusal over HTTP."""
    by_code: dict[str, tuple[int, str]] = {code: (status, meaning) for status, (code, meaning) in OF_HTTP.items()}
    for each in (*vars(errors).values(), NonePublished):
        if not (isinstance(each, type) and issubclass(each, HeadgateError) and each.__doc__ and "code" in vars(each)):
            continue
        if each.code in _NOT_HERE or "Does not travel the wire" in each.__doc__:
            continue
        status = 429 if each.code == LimitReached.code else STATUS_BY_CODE.get(each.code, 400)
        by_code.setdefault(each.code, (status, " ".join(each.__doc__.split("\n\n")[0].split())))
    return dict(sorted(by_code.items()))


def _wire_form(error: HeadgateError) -> dict[str, Any]:
    wire = wire_form(error)
    return {"detail": wire.pop("message"), **wire}


def _members(code: str, status: int, parts: Mapping[str, Any]) -> dict[str, Any]:
    title = code.replace("_", " ").capitalize()
    return {"type": f"{ROOT}/problems/{code}", "title": title, "status": status, "code": code, **parts}


def _headers(error: HeadgateError) -> list[tuple[str, str]]:
    fields = error_fields(error.to_wire())
    return [*fields, *error.fields] if isinstance(error, RateReached) else fields


def _answer(status: int, body: Mapping[str, Any], headers: Sequence[tuple[str, str]] = ()) -> Answer:
    return encoded_answer(status, json_bytes(body) + b"\n", headers, MEDIA_TYPE)
