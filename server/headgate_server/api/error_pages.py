"""Answers every refusal over HTTP with a problem (v1/problems.py) and the status for its code.

In: errors of Headgate's tree, werkzeug's HTTP errors, and any other exception from a route. Out: one shape, in the words of the
wire (docs/protocol.md), never with a traceback or with text of an internal exception.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import structlog
from flask import Flask, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge
from werkzeug.routing.exceptions import WebsocketMismatch

from headgate.auth.identity import Handshake
from headgate.errors import HeadgateError, PayloadTooLarge
from headgate.flask.extension import SOCKET_PATH

from .v1.problems import BodyFault, as_response, http_problem, problem_answer

MAX_TRACE_CHARACTERS = 16_000

_log = structlog.get_logger("headgate.server")


def install_error_pages(app: Flask) -> None:
    """Make `app` answer every error as JSON."""
    app.register_error_handler(HeadgateError, refusal)
    app.register_error_handler(BodyFault, refusal)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def refusal(error: HeadgateError | BodyFault) -> Response:
    """Return the response for an error of the tree, or for faults in a body."""
    return as_response(problem_answer(error))


def log_failure(path: str, method: str, environ: Mapping[str, Any], error: Exception) -> None:
    """Log an unexpected exception. The caller gets no details, because its text may hold a secret.

    The traceback is passed as text, because structlog's own console rendering would add every local variable, tokens included.
    The values of the request's Authorization and Cookie are removed from it.
    """
    shown = Handshake("", {}, environ)
    trace = shown.redacted("".join(traceback.format_exception(error)), MAX_TRACE_CHARACTERS)
    _log.error("request failed", path=path, method=method, traceback=trace)


def _http_error(error: HTTPException) -> ResponseReturnValue:
    """Translate werkzeug's 404, 405, 413, …, with the Allow that a 405 needs. A redirect is not an error and passes unchanged."""
    if isinstance(error, RequestEntityTooLarge):
        limit = request.max_content_length or 0
        return refusal(PayloadTooLarge(request.content_length or limit + 1, limit, "http"))
    if isinstance(error, ClientDisconnected) and isinstance(error.__context__, TimeoutError):
        return as_response(http_problem(408))
    status = error.code or 500
    if status < 400:
        return error.get_response()
    detail = f"this path has no WebSocket; expected {SOCKET_PATH}" if isinstance(error, WebsocketMismatch) else None
    allow = error.get_response().headers.get("Allow")
    return as_response(http_problem(status, detail, [("Allow", allow)] if allow else []))


def _unexpected(error: Exception) -> Response:
    log_failure(request.path, request.method, request.environ, error)
    return as_response(http_problem(500))
