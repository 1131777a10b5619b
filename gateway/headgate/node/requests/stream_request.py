"""The parsed form of a request for a stream: its query, its headers, and the body of a POST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from headgate.errors import InvalidRequest, PayloadTooLarge
from headgate.events.wire.packets import CANCEL, HISTORY, INBOX, PRESENCE, PUBLISH, REPLAY, REQUEST, SEEN, Overflow
from headgate.events.wire.requests import Position, check_text, read_resume
from headgate.events.wire.stream_text import EVENT_STREAM, JSON, read_cursor

DEFAULT_WAIT_S, MAX_WAIT_S = 25.0, 60.0
MAX_QUERY_FIELDS, MAX_LENGTH_DIGITS = 256, 18
_PARAMETERS = ("namespace", "overflow", "pattern", "since", "wait")
# Requests that need a client but no stream, and those that may come with a stream.
ALONE, _WITH_STREAM = (PUBLISH, REPLAY, SEEN, INBOX, HISTORY, REQUEST, CANCEL), (PRESENCE,)
MAX_REQUESTS = 64


class Wanted(NamedTuple):
    """A parsed request."""

    namespace: str | None
    auth: Mapping[str, Any]  # the object of a CONNECT, as the authenticator gets it
    subscriptions: list[Any]  # `{pattern, overflow?, since?}` each
    point: Position | int | None  # a number is an offset in the newest epoch
    wait_s: float | None  # for a long-poll; None for an event stream
    is_strict: bool = True  # whether a refused subscription refuses the stream
    requests: Sequence[tuple[str, Any]] = ()  # (name, body) each, made for the client after its welcome


def read_wanted(environ: Mapping[str, Any]) -> Wanted:
    """Read the query and the headers of a GET. Raises InvalidRequest with the fault and the allowed values."""
    query = read_query(environ)
    patterns = query.get("pattern")
    if not patterns:
        raise InvalidRequest("pattern: expected at least one, such as ?pattern=orders.*")
    overflow = one_of(query, "overflow") or Overflow.CATCH_UP
    kind, _, token = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
    return Wanted(
        one_of(query, "namespace"),
        {"token": token.strip()} if kind.lower() == "bearer" else {},
        [{"pattern": pattern, "overflow": overflow} for pattern in dict.fromkeys(patterns)],
        _point(environ.get("HTTP_LAST_EVENT_ID") or one_of(query, "since")),
        _wait_s(environ, query),
    )


def read_posted(environ: Mapping[str, Any], body: Mapping[str, Any]) -> Wanted:
    """Read the query and the body of a POST, which has the object of a CONNECT and perhaps `requests`.

    Raises InvalidRequest with the fault and the allowed values.
    """
    query, auth = read_query(environ, "namespace", "wait"), dict(body)
    point, subscriptions = read_resume(auth.pop("resume", None)), auth.pop("subscriptions", [])
    requests = auth.pop("requests", [])
    is_right = isinstance(requests, list) and len(requests) <= MAX_REQUESTS
    if not is_right or not all(isinstance(each, list) and len(each) == 2 and each[0] in _WITH_STREAM for each in requests):
        raise InvalidRequest(
            f"requests: expected at most {MAX_REQUESTS} of [name, body], with a name of {', '.join(_WITH_STREAM)}"
        )
    if not isinstance(subscriptions, list):
        raise InvalidRequest("subscriptions: expected a list")
    namespace = one_of(query, "namespace")
    return Wanted(namespace, auth, subscriptions, point, _wait_s(environ, query), is_strict=False, requests=requests)


def read_body(environ: Mapping[str, Any], max_bytes: int) -> Mapping[str, Any]:
    """Return the JSON object in the body of a POST. Waits for it.

    Raises:
        InvalidRequest: the body is not a JSON object.
        PayloadTooLarge.
        TimeoutError: the client paused for too long.
    """
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != JSON:  # a form of another site cannot send this type
        raise InvalidRequest(f"expected Content-Type: {JSON}")
    length = str(environ.get("CONTENT_LENGTH") or "")
    if not (length.isascii() and length.isdigit() and len(length) <= MAX_LENGTH_DIGITS):
        raise InvalidRequest(f"expected a Content-Length of at most {MAX_LENGTH_DIGITS} digits")
    if int(length) > max_bytes:
        raise PayloadTooLarge(int(length), max_bytes, "gateway")
    try:
        body = msgspec.json.decode(environ["wsgi.input"].read(int(length)))
    except TimeoutError:
        raise
    except (msgspec.DecodeError, UnicodeError, RecursionError, OSError) as error:
        raise InvalidRequest("the body is not JSON") from error
    if not isinstance(body, dict):
        raise InvalidRequest("expected an object as the body")
    check_text({name: value for name, value in body.items() if name != "body"})  # its data has a separate error
    return body


def read_query(environ: Mapping[str, Any], *known: str) -> Mapping[str, list[str]]:
    """Return the fields of the query. Raises InvalidRequest for an unknown field, or a repeated one that is not a list."""
    known = known or _PARAMETERS
    text = str(environ.get("QUERY_STRING", ""))
    try:
        query = parse_qs(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidRequest(f"the query: at most {MAX_QUERY_FIELDS} fields, in UTF-8") from error
    if unknown := sorted(query.keys() - set(known)):
        raise InvalidRequest(f"unknown parameter {unknown[0][:40]!r}; known: {', '.join(known)}")
    if twice := next((name for name, values in query.items() if name != "pattern" and len(values) > 1), None):
        raise InvalidRequest(f"the parameter {twice!r} is there more than once")
    return query


def one_of(query: Mapping[str, list[str]], name: str) -> str | None:
    return query[name][0] if name in query else None


def _point(text: str | None) -> Position | int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    return read_cursor(text)


def _wait_s(environ: Mapping[str, Any], query: Mapping[str, list[str]]) -> float | None:
    """Return the waiting time of a long-poll; None for an event stream."""
    accepted = [kind.partition(";")[0].strip().lower() for kind in str(environ.get("HTTP_ACCEPT", "")).split(",")]
    polls, text = JSON in accepted and EVENT_STREAM not in accepted, one_of(query, "wait")
    if text is None:
        return DEFAULT_WAIT_S if polls else None
    if not polls:
        raise InvalidRequest(f"wait: only with Accept: {JSON}")
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= MAX_WAIT_S):
        raise InvalidRequest(f"wait: expected whole seconds from 0 to {MAX_WAIT_S:g}")
    return float(text)
