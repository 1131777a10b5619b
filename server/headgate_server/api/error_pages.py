"""Every refusal over HTTP as JSON: `{"error": {code, message, retry, …parts}}`, with the status that fits its code.

In: errors of Headgate's tree, werkzeug's own HTTP errors, and whatever else escapes a route. Out: one shape, the same
words as on the wire (docs/protocol.md), and never a traceback or an exception's text that nobody meant for the caller.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import structlog
from flask import Flask, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge

from headgate.auth.identity import Handshake
from headgate.errors import HeadgateError, LimitReached, PayloadTooLarge
from headgate.runtime.logging import told
from headgate.transport.http_answers import Answer

from .json_answers import as_response, json_answer

# RFC 9110 section 15. Any other code is the caller's fault: 400.
STATUS_BY_CODE = {
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_namespace": 404,
    "conflict": 409,
    "payload_too_large": 413,
    "schema_violation": 422,
    # Where waiting does not help; else 429.
    "limit_reached": 409,
    "bus_refused": 502,
    "bus_unavailable": 503,
    "overloaded": 503,
    "paused": 503,
}
# Of an error of the tree that can be tried again and does not say when.
RETRY_AFTER_S = 1
MAX_TRACE_CHARACTERS = 16_000

_log = structlog.get_logger("headgate.server")


def install_error_pages(app: Flask) -> None:
    """Make `app` answer every error as JSON."""
    app.register_error_handler(HeadgateError, refusal)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def refusal(error: HeadgateError) -> Response:
    """Return the response for an error of the tree."""
    return as_response(refusal_answer(error))


def refusal_answer(error: HeadgateError) -> Answer:
    """Return the answer for an error of the tree; what can be tried again says when (RFC 9110, section 10.2.3; RFC 6585)."""
    status = 429 if error.code == LimitReached.code and error.retry else STATUS_BY_CODE.get(error.code, 400)
    headers = []
    if error.retry:
        headers.append(("Retry-After", str(error.retry_after_s or RETRY_AFTER_S)))
    if error.code == "unauthorized":
        headers.append(("WWW-Authenticate", 'Bearer realm="headgate"'))
    return json_answer(status, {"error": told(error)}, headers)


def late_answer() -> Answer:
    """Return the answer to a request whose body took too long."""
    body = {"code": "request_timeout", "message": "the request's body took too long", "retry": True}
    return json_answer(408, {"error": body})


def failed_answer(path: str, method: str, environ: Mapping[str, Any], error: Exception) -> Answer:
    """Tell the log what happened and the caller nothing: the text of a stray exception may hold a secret.

    The traceback goes in as text: structlog's own console rendering would add every local variable, tokens included. The
    values of the request's Authorization and Cookie are taken out of it.
    """
    shown = Handshake("", {}, environ)
    trace = shown.redacted("".join(traceback.format_exception(error)), MAX_TRACE_CHARACTERS)
    _log.error("request_failed", path=path, method=method, traceback=trace)
    body = {"code": "internal_error", "message": "the server failed; its log says why", "retry": False}
    return json_answer(500, {"error": body})


def _http_error(error: HTTPException) -> ResponseReturnValue:
    """Translate werkzeug's 404, 405, 413, …, with the Allow that a 405 owes; a redirect is not an error and stays."""
    if isinstance(error, RequestEntityTooLarge):
        limit = request.max_content_length or 0
        return refusal(PayloadTooLarge(request.content_length or limit + 1, limit, "http"))
    if isinstance(error, ClientDisconnected) and isinstance(error.__context__, TimeoutError):
        return as_response(late_answer())
    status = error.code or 500
    if status < 400:
        return error.get_response()
    code = error.name.lower().replace(" ", "_").replace("'", "")
    allow = error.get_response().headers.get("Allow")
    body = {"code": code, "message": error.description or error.name, "retry": False}
    return as_response(json_answer(status, {"error": body}, [("Allow", allow)] if allow else []))


def _unexpected(error: Exception) -> Response:
    return as_response(failed_answer(request.path, request.method, request.environ, error))
