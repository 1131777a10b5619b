"""Every refusal over HTTP as a problem (v1/problems.py), with the status that fits its code.

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
from headgate.errors import HeadgateError, PayloadTooLarge

from .json_answers import as_response
from .v1.problems import BodyFault, http_problem, problem_answer

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
    """Tell the log what happened; the caller is told nothing: the text of a stray exception may hold a secret.

    The traceback goes in as text: structlog's own console rendering would add every local variable, tokens included. The
    values of the request's Authorization and Cookie are taken out of it.
    """
    shown = Handshake("", {}, environ)
    trace = shown.redacted("".join(traceback.format_exception(error)), MAX_TRACE_CHARACTERS)
    _log.error("request failed", path=path, method=method, traceback=trace)


def _http_error(error: HTTPException) -> ResponseReturnValue:
    """Translate werkzeug's 404, 405, 413, …, with the Allow that a 405 owes; a redirect is not an error and stays."""
    if isinstance(error, RequestEntityTooLarge):
        limit = request.max_content_length or 0
        return refusal(PayloadTooLarge(request.content_length or limit + 1, limit, "http"))
    if isinstance(error, ClientDisconnected) and isinstance(error.__context__, TimeoutError):
        return as_response(http_problem(408))
    status = error.code or 500
    if status < 400:
        return error.get_response()
    allow = error.get_response().headers.get("Allow")
    return as_response(http_problem(status, None, [("Allow", allow)] if allow else []))


def _unexpected(error: Exception) -> Response:
    log_failure(request.path, request.method, request.environ, error)
    return as_response(http_problem(500))
