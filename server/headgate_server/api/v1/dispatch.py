"""Finds the row of the table for a request, and turns the result of the row into the answer.

In: the table. Out: Flask's routes for it. Each request passes the same checks, cheap ones first. It must accept JSON, and the
caller must be known, may do this kind of thing at all, and is within its rate. Then query and body are read, and the scope is
checked for their contents.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

import msgspec
from flask import Blueprint, Response, request
from werkzeug.datastructures import MIMEAccept, MultiDict
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_accept_header

from headgate.auth.identity import ANONYMOUS, Identity
from headgate.auth.scopes import WITH_PATTERN
from headgate.errors import InvalidRequest, PayloadTooLarge
from headgate.events.event import json_reason
from headgate.events.topic import check_pattern
from headgate.events.wire.requests import MAX_OFFSET, check_text
from headgate.runtime.shared_rates import SharedRates
from headgate_server.api.callers import SLOW_BODY_S, account_of, caller, first_known

from . import problems
from .operation import ANYONE, OPEN, Call, Operation
from .problems import as_response, encoded_answer
from .rights import may_some
from .services import Services

# The limit if the application has none.
MAX_BODY_BYTES = 64 * 1024
# Matches msgspec's messages about a missing or unknown member.
_FIELD = re.compile(r"(?:missing required|contains unknown) field `(.{1,80})`\Z")
_encode = msgspec.json.Encoder(order="sorted").encode
# The action passed to an application's `authorize` (headgate.authorize), by the kind of a scope.
ACTIONS = {"read": "replay", "presence": "presence"}
# The caller of an operation that needs no credentials.
_NOBODY = Identity(ANONYMOUS)


def routes(table: Sequence[Operation], services: Services, reads: SharedRates, below: Mapping[str, Any]) -> Blueprint:
    """Return the routes.

    Args:
        reads: the rate of each caller.
        below: by name, the functions for operations without an `answer`.
    """
    blueprint = Blueprint("api_v1", __name__)
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in table:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    for path, operations in by_path.items():
        methods = sorted({*operations, "OPTIONS", *(("HEAD",) if "GET" in operations else ())})
        allow = ", ".join(methods)

        def view(_operations: Mapping[str, Operation] = operations, _allow: str = allow, /, **names: str) -> Response:
            if request.method == "OPTIONS":
                return _empty({"Allow": _allow})
            operation = _operations["GET" if request.method == "HEAD" else request.method]
            check_acceptable(request.headers.get("Accept", ""))
            if operation.answer is None:
                return as_response(below[operation.name]())
            return _answered(operation, services, reads, names)

        rule = problems.ROOT + path.replace("{user}", "<path:user>").replace("{", "<").replace("}", ">")
        as_it_is: dict[str, Any] = {"provide_automatic_options": False, "merge_slashes": False}
        blueprint.add_url_rule(rule, path.replace(".", "_"), view, methods=methods, **as_it_is)
    return blueprint


def check_acceptable(accept: str) -> None:
    """Raise HeadgateError for a request that does not accept JSON (RFC 9110, section 12.5.1)."""
    if not _accepts_json(accept):
        raise problems.http_refusal(406, "the answer would be application/json, which the request does not accept")


@lru_cache(maxsize=256)  # clients send few different values
def _accepts_json(accept: str) -> bool:
    # JSON has no parameters (RFC 8259, section 11), so `application/json; charset=utf-8` asks for no other answer.
    kinds = [(kind.partition(";")[0].strip(), quality) for kind, quality in parse_accept_header(accept[:1024], MIMEAccept)]
    return not accept or MIMEAccept(kinds).quality("application/json") > 0


def check_media_type(environ: Mapping[str, Any]) -> None:
    """Refuse a body that is not JSON by its head (RFC 9110, section 15.5.16).

    Raises HeadgateError for another type or a compressed body.
    """
    kind, encoding = environ.get("CONTENT_TYPE", ""), environ.get("HTTP_CONTENT_ENCODING", "identity")
    if kind.partition(";")[0].strip().lower() != "application/json" or encoding.lower() != "identity":
        raise problems.http_refusal(415, "expected a body of type application/json, without a Content-Encoding")


def _answered(operation: Operation, services: Services, reads: SharedRates, names: Mapping[str, str]) -> Response:
    acts = operation.method != "GET"
    services = services.acts if acts else services
    call = Call(services, *_caller(operation, services), names, request.environ)
    # A debt from searches does not block acts.
    account = account_of(call.identity, request.environ, services.settings.proxies) + ("\0acts" if acts else "")
    if operation.scope != ANYONE:
        _check_scope(operation, call, is_read=False)
        if wait_s := reads.spend(account, time.monotonic()):
            raise problems.RateReached("read_per_s", reads.per_s, reads.burst, wait_s)
    began_s = time.monotonic()
    call.query, body = read_query(operation, request.args), read_body(operation)
    if time.monotonic() - began_s > SLOW_BODY_S:
        call.identity, call.namespace = _caller(operation, services)
    _check_scope(operation, call, is_read=True)
    assert operation.answer is not None
    try:
        with services.searches.lend(account) if operation.searches else nullcontext():
            value, status = operation.answer(call, **_parameters(operation, call.query, body)), operation.status
    finally:
        # One read is already paid for; the rest is charged now.
        if call.looked_at and (owed := -(-call.looked_at // operation.cost.units) - 1):
            reads.charge(account, time.monotonic(), owed)
    if members := operation.members.split():
        value = dict(zip(members, value if len(members) > 1 else (value,), strict=True))
    elif isinstance(value, tuple):
        value, status = value
    return _empty({}) if status == 204 else as_response(encoded_answer(status, _encode(value) + b"\n"))


def _parameters(operation: Operation, *structs: msgspec.Struct | None) -> dict[str, Any]:
    """Return the parameters for an operation, None for a missing one. The namespace of most is in the call."""
    given = {name: getattr(each, name) for each in structs if each is not None for name in each.__struct_fields__}
    if operation.in_namespace:
        del given["namespace"]
    return {name: None if value is msgspec.UNSET else value for name, value in given.items()}


def _caller(operation: Operation, services: Services) -> tuple[Identity, str]:
    """Return the caller, and the namespace of its request."""
    settings = services.settings
    if operation.scope == ANYONE:
        return _NOBODY, settings.namespaces[0]
    if operation.in_namespace:
        namespace = request.args.get("namespace", settings.namespaces[0]).removeprefix("/")
        return caller(services.gate, namespace, request.environ), settings.served(namespace)
    handshake, identity = first_known(services.gate, settings.namespaces, request.environ)
    return identity, handshake.namespace


def _check_scope(operation: Operation, call: Call, *, is_read: bool) -> None:
    """Check the scope of an operation, completely or, before the request is read, as far as possible."""
    wanted = operation.scope
    if wanted in OPEN:
        return
    if wanted not in WITH_PATTERN:
        call.need(wanted)
    elif not is_read:
        if not may_some(call.identity, wanted, call.services.settings):
            call.refuse(problems.scope_missing(f"{wanted}:…"))
    elif operation.pattern:  # otherwise the subject is not known yet, so the operation checks it
        value = check_pattern(getattr(call.query, operation.pattern))
        call.need(f"{wanted}:{value}")
        call.services.gate.check_authorized(call.identity, value, ACTIONS[wanted])


def read_query(operation: Operation, given: MultiDict[str, str]) -> Any:
    """Read the parameters according to the row. Raises InvalidRequest for an unknown, repeated or unexpected one."""
    for name in given:
        if len(given.getlist(name)) > 1:
            raise InvalidRequest(f"the parameter {name[:40]!r} is there more than once")
    try:
        return msgspec.convert(given.to_dict(), operation.query, strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        known = [each.encode_name for each in msgspec.structs.fields(operation.query)]
        hint = f"; known: {', '.join(known) or 'none'}" if set(given) - set(known) else ""
        raise InvalidRequest(f"parameters: {error}{hint}") from error


def read_body(operation: Operation) -> Any:
    """Return the body, read according to the row. Waits for it.

    Raises:
        HeadgateError: as `check_media_type`.
        PayloadTooLarge, RequestEntityTooLarge: it is larger than the application allows.
        InvalidRequest: it is not JSON.
        BodyFault: it is unexpected JSON.
    """
    if operation.body is None:
        return None
    check_media_type(request.environ)
    limit = request.max_content_length or MAX_BODY_BYTES  # the application's, for an event with its envelope
    if (request.content_length or 0) > limit:
        raise PayloadTooLarge(request.content_length or 0, limit, "http")
    request.max_content_length = limit
    return decode(read_whole(), partial(msgspec.json.decode, type=operation.body))


def read_whole() -> bytes:
    """Return the body of a Flask request. werkzeug would cut a chunked body at its limit without an error."""
    body = request.get_data(cache=False)
    if request.content_length is None and request.environ["wsgi.input"].read(1):
        raise RequestEntityTooLarge
    return body


def json_object() -> dict[str, Any]:
    """Return the JSON object that one of our pages sent with a Flask request. Only its `data` may hold any text.

    Raises InvalidRequest for any other body.
    """
    try:
        body = request.get_json(silent=True) if request.mimetype == "application/json" else None
    except RecursionError as error:
        raise InvalidRequest("JSON that is nested too deeply") from error
    if not isinstance(body, dict):
        raise InvalidRequest("expected a JSON object of type application/json")
    check_text({name: value for name, value in body.items() if name != "data"})
    return body


def decode(body: bytes, decoder: Any) -> Any:
    """Decode a JSON body. A number such as 27.0 is an integer.

    Raises:
        InvalidRequest: it is not JSON.
        BodyFault: it is JSON that the decoder does not expect.
    """
    try:
        try:
            return decoder(body)
        except msgspec.ValidationError as error:
            pointer, fault = pointer_of(str(error))
            whole = _with_whole(body, pointer[1:]) if "got `float`" in fault else None
            if whole is not None:
                return decode(whole, decoder)
            raise problems.BodyFault([(pointer, InvalidRequest(fault))]) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:  # perhaps behind the fault that was met first
        raise InvalidRequest(f"the body is not JSON: {json_reason(error, body)}") from error


def _with_whole(body: bytes, name: str) -> bytes | None:
    """Replace 27.0 by 27 in a member of a body, as in JSON Schema (2020-12, section 4.2.3). Others stay as sent.

    Returns None if the body has no such member.
    """
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw]) if name else {}
    value = msgspec.json.decode(members[name]) if name in members else None
    if not isinstance(value, float) or not value.is_integer() or abs(value) > MAX_OFFSET:
        return None
    return msgspec.json.encode(members | {name: int(value)})


def pointer_of(message: str) -> tuple[str, str]:
    """Return the place of msgspec's fault as a JSON Pointer, and the fault. Its message ends in "- at `$.events[3].topic`"."""
    text, _, path = message.rpartition(" - at `$")
    pointer = path.rstrip("`").replace(".", "/").replace("[...]", "/*").replace("[", "/").replace("]", "") if text else ""
    field = _FIELD.search(text or message)
    return pointer + (f"/{field[1].replace('~', '~0').replace('/', '~1')}" if field else ""), text or message


def _empty(headers: Mapping[str, str]) -> Response:
    response = Response(status=204, headers={"Cache-Control": "no-store", **headers})
    del response.headers["Content-Type"]
    return response
