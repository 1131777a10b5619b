"""Every refusal over HTTP as JSON: `{"error": {code, message, retry, …parts}}`, with the status that fits its code. Those of
/api/v1 are problems (v1/problems.py).

In: errors of Headgate's tree, werkzeug's own HTTP errors, and whatever else escapes a route. Out: one shape, the same
words as on the wire (docs/protocol.md), and never a traceback or an exception's text that nobody meant for the caller.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import structlog
from flask import Flask, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge

from headgate.auth.identity import Handshake
from headgate.errors import HeadgateError, PayloadTooLarge
from headgate.runtime.logging import told
from headgate.transport.http_answers import Answer
from headgate.transport.statuses import RETRY_AFTER_S, status_of

from .json_answers import as_response, json_answer
from .v1.problems import ROOT, BodyFault, http_problem, problem_answer

MAX_TRACE_CHARACTERS = 16_000

_log = structlog.get_logger("headgate.server")


def install_error_pages(app: Flask) -> None:
    """Make `app` answer every error as JSON."""
    app.register_error_handler(HeadgateError, refusal)
    app.register_error_handler(BodyFault, _body_fault)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def refusal(error: HeadgateError) -> Response:
    """Return the response for an error of the tree."""
    return as_response((WORDS_OF_V1 if _is_v1() else WORDS).refusal(error))


def refusal_answer(error: HeadgateError) -> Answer:
    """Return the answer for an error of the tree; what can be tried again says when (RFC 9110, section 10.2.3; RFC 6585)."""
    status = status_of(error)
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


def failed_answer() -> Answer:
    """Return the answer where the server failed."""
    body = {"code": "internal_error", "message": "the server failed; its log says why", "retry": False}
    return json_answer(500, {"error": body})


def log_failure(path: str, method: str, environ: Mapping[str, Any], error: Exception) -> None:
    """Tell the log what happened; the caller is told nothing: the text of a stray exception may hold a secret.

    The traceback goes in as text: structlog's own console rendering would add every local variable, tokens included. The
    values of the request's Authorization and Cookie are taken out of it.
    """
    shown = Handshake("", {}, environ)
    trace = shown.redacted("".join(traceback.format_exception(error)), MAX_TRACE_CHARACTERS)
    _log.error("request failed", path=path, method=method, traceback=trace)


class Words(NamedTuple):
    """How refusals are told: of the tree, of a body that came too late, of a fault of ours."""

    refusal: Callable[[HeadgateError], Answer]
    late: Callable[[], Answer]
    failed: Callable[[], Answer]


WORDS = Words(refusal_answer, late_answer, failed_answer)
WORDS_OF_V1 = Words(problem_answer, lambda: http_problem(408), lambda: http_problem(500))


def _is_v1() -> bool:
    return request.path.startswith(f"{ROOT}/")


def _body_fault(fault: BodyFault) -> Response:
    return as_response(problem_answer(fault))


def _http_error(error: HTTPException) -> ResponseReturnValue:
    """Translate werkzeug's 404, 405, 413, …, with the Allow that a 405 owes; a redirect is not an error and stays."""
    if isinstance(error, RequestEntityTooLarge):
        limit = request.max_content_length or 0
        return refusal(PayloadTooLarge(request.content_length or limit + 1, limit, "http"))
    if isinstance(error, ClientDisconnected) and isinstance(error.__context__, TimeoutError):
        return as_response((WORDS_OF_V1 if _is_v1() else WORDS).late())
    status = error.code or 500
    if status < 400:
        return error.get_response()
    if _is_v1():
        allow = error.get_response().headers.get("Allow")
        return as_response(http_problem(status, None, [("Allow", allow)] if allow else []))
    code = error.name.lower().replace(" ", "_").replace("'", "")
    allow = error.get_response().headers.get("Allow")
    body = {"code": code, "message": error.description or error.name, "retry": False}
    return as_response(json_answer(status, {"error": body}, [("Allow", allow)] if allow else []))


def _unexpected(error: Exception) -> Response:
    log_failure(request.path, request.method, request.environ, error)
    return as_response((WORDS_OF_V1 if _is_v1() else WORDS).failed())
