"""Answers requests to publish with the same bytes through Flask and below WSGI.

In: functions that answer requests, or begin to in the hub (v1/publishing.py). Out: routes for `transport/http_routes.py`, and a
function for a Flask view. Flask handles requests without a token, and those to a foreign host name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import msgspec
from flask import request

from headgate.errors import HeadgateError, PayloadTooLarge
from headgate.events.traceparent import read_traceparent
from headgate.runtime.spans import current_traceparent
from headgate.services.publisher import Receipt
from headgate.transport.http_answers import Answer
from headgate.transport.http_routes import BeginsInHub, Route, RoutedRequest
from headgate_server.api.security_headers import security_headers

from .error_pages import log_failure
from .v1.dispatch import read_whole
from .v1.problems import BodyFault, encoded_answer, http_problem, problem_answer


class PublishRequest(msgspec.Struct):
    """A request to publish.

    Attributes:
        environ: the WSGI environment.
        body: returns the body, of at most the given number of bytes. Waits for it. Raises PayloadTooLarge or
            RequestEntityTooLarge if it is too large, without reading if it declares its length.
        known: the caller, stored by the answering function. The next request with the same head inherits it.
    """

    environ: Mapping[str, Any]
    body: Callable[[int], bytes]
    known: object = None


Publish: TypeAlias = Callable[[PublishRequest], Answer]
# Takes the environment and `known` of an earlier request with the same head, the body, and a function for the outcome. Returns
# False, without an effect, if it might wait. Raises as `Publish`.
Begin: TypeAlias = Callable[[Mapping[str, Any], object, bytes, Callable[[Receipt | HeadgateError], object]], bool]


def posted(publish: Publish) -> Callable[[], Answer]:
    """Return the answer to a Flask request."""
    return lambda: publish(PublishRequest(request.environ, _body_in_flask))


def routes_below(
    answered: Mapping[str, Publish], answers_to: Callable[[Mapping[str, Any]], bool], begun: Mapping[str, Begin]
) -> Mapping[tuple[str, str], Route]:
    """Return the routes for requests below WSGI.

    Args:
        answered: the function that answers a POST, by path.
        answers_to: whether a host name is ours.
        begun: the function that begins to answer one in the hub, by path.
    """

    def route(publish: Publish) -> Route:
        def answer(request: RoutedRequest) -> Answer | None:
            environ = request.environ
            if request.known is None and not (environ.get("HTTP_AUTHORIZATION") and answers_to(environ)):
                return None
            # An application's authenticator may store values in it.
            own_environ = dict(environ) if request.known is None else environ
            asked = PublishRequest(own_environ, partial(_body_below, request), request.known)
            try:
                return _secured(publish(asked), environ)
            except Exception as error:  # noqa: BLE001 - raised again, or told
                return _failure(error, environ)
            finally:
                request.known = asked.known

        return answer

    routes = {("POST", path): route(publish) for path, publish in answered.items()}
    return routes | {("POST", path): BeginsInHub(routes["POST", path], partial(_begin, begin)) for path, begin in begun.items()}


def _begin(begin: Begin, request: RoutedRequest, body: bytes, done: Callable[[Answer], object]) -> Answer | bool:
    """Begin to answer a request, as `BeginsInHub` wants it."""
    environ = request.environ

    def answered(outcome: Receipt | HeadgateError) -> None:
        if isinstance(outcome, HeadgateError):
            done(_failure(outcome, environ))
        else:
            body = receipt_json(outcome) + b"\n"
            done(Answer(*_created(len(body), str(environ.get("HTTP_HOST", ""))), body))

    try:
        return begin(environ, request.known, body, answered)
    except Exception as error:  # noqa: BLE001 - becomes the answer
        return _failure(error, environ)


def _failure(error: Exception, environ: Mapping[str, Any]) -> Answer:
    """Return the answer for an error. Raises OSError: the caller has disconnected."""
    if isinstance(error, HeadgateError | BodyFault):
        return _secured(problem_answer(error), environ)
    if isinstance(error, TimeoutError):
        return _secured(http_problem(408), environ)
    if isinstance(error, OSError):
        raise error
    # Logged, without details for the caller, as Flask's page does.
    log_failure(str(environ["PATH_INFO"]), str(environ["REQUEST_METHOD"]), environ, error)
    return _secured(http_problem(500), environ)


def _secured(answer: Answer, environ: Mapping[str, Any]) -> Answer:
    """Return an answer with the security headers for browsers."""
    headers = _with_security(tuple(answer.headers), str(environ.get("HTTP_HOST", "")))
    return Answer(answer.status, headers, answer.body, answer.closes)


@lru_cache(maxsize=256)
def _created(size: int, host: str) -> tuple[str, Sequence[tuple[str, str]]]:
    """Return status and headers of the answer 201 with a body of so many bytes."""
    answer = _secured(encoded_answer(201, bytes(size)), {"HTTP_HOST": host})
    return answer.status, answer.headers


@lru_cache(maxsize=256)
def _with_security(headers: tuple[tuple[str, str], ...], host: str) -> tuple[tuple[str, str], ...]:
    return *headers, *security_headers(host)


def _body_in_flask(limit_bytes: int) -> bytes:
    if limit_bytes > (request.max_content_length or limit_bytes):
        request.max_content_length = limit_bytes  # a batch is larger than any other body of this application
    return read_whole()


def _body_below(routed: RoutedRequest, limit_bytes: int) -> bytes:
    """Return the body, whose length is in the head."""
    size = routed.head.body_bytes
    if size > limit_bytes:
        raise PayloadTooLarge(size, limit_bytes, "http")
    return routed.body()


def receipt_json(receipt: Receipt) -> bytes:
    """Return a receipt as JSON. No character of an epoch or id needs escaping."""
    duplicate = "true" if receipt.duplicate else "false"
    return f'{{"duplicate":{duplicate},"epoch":"{receipt.epoch}","id":"{receipt.id}","offset":{receipt.offset}}}'.encode()


def traceparent_of(environ: Mapping[str, Any]) -> str | None:
    """Return the trace in a request's header; None if a span is current, or for a malformed header."""
    return None if current_traceparent() else read_traceparent(environ["HTTP_TRACEPARENT"], "http")
