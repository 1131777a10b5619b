"""The OpenAPI 3.1 document, generated from the table.

msgspec turns the types that check requests into JSON Schemas. Each operation has its answers, and its refusals as
`application/problem+json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headgate.auth.scopes import WITH_PATTERN
from headgate.events.event import ID_CHARACTERS
from headgate.installation import __version__

from .operation import ANYONE, OPEN, Cost, Operation
from .problems import MEDIA_TYPE, ROOT, Problem

_JSON = "application/json"
_REFERENCE = "#/components/schemas/{name}"
ABOUT = (
    "Publish events and read them, list present users, operate gateways. A caller has an API key (`headgate keys create`) or, "
    "for events and presence, a user's token: `Authorization: Bearer …`. Refusals are problems (RFC 9457) with the codes of "
    "docs/protocol.md."
)
MEANINGS: Mapping[int, str] = {
    400: "The request cannot be read.",
    401: "No valid credentials.",
    403: "The scope named by `scope` is missing.",
    404: "There is nothing with that name.",
    406: "The caller does not accept JSON.",
    408: "The body took too long.",
    409: "A limit is reached and waiting does not help, or the state does not allow it.",
    413: "The body is too large.",
    415: "The body is not JSON by its type.",
    422: "The body requests something impossible; `errors` has the places.",
    429: "Too fast, or too many failed logins; try again after `Retry-After`.",
    500: "The server failed.",
    502: "Redis refused.",
    503: "Redis cannot be reached, or an operator has paused this; try again after `Retry-After`.",
}
SUCCESS: Mapping[int, str] = {
    200: "The answer.",
    201: "Done.",
    204: "Done.",
    207: "Some of the events were refused.",
    503: "It does not work now.",
}


def document(table: Sequence[Operation]) -> dict[str, Any]:
    """Return the document of a table."""
    types = dict.fromkeys([*(each for operation in table for each in _types(operation)), Problem])
    shown, schemas = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schema_of = dict(zip(types, shown, strict=True))
    schemas["Problem"]["additionalProperties"] = True
    for each in types:
        if isinstance(each, type) and not each.__doc__:
            schema_of[each] = schemas.pop(each.__name__)
    for schema in schemas.values():
        schema["description"] = " ".join(schema.get("description", "").removeprefix("See the module. ").split())
    paths: dict[str, dict[str, Any]] = {}
    for operation in table:
        paths.setdefault(ROOT + operation.path, {})[operation.method.lower()] = _operation(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "The gateway that this document is from."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name} for name in dict.fromkeys(operation.group for operation in table)],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`hgk_…`), the admin key, or a user's token.",
                }
            },
            "schemas": {name: schemas[name] for name in sorted(schemas)},
        },
    }


def refusals(operation: Operation) -> list[int]:
    """Return the statuses of the problems of an operation."""
    statuses = {400, 406, 500, *operation.problems}
    if operation.scope != ANYONE:
        statuses |= {401, 403, 429, 503}
    if operation.in_namespace:
        statuses.add(404)
    if operation.body is not None:
        statuses |= {408, 413, 415, 422}
    if operation.answer is not None and operation.scope != ANYONE:
        statuses.add(502)
    return sorted(statuses - operation.also.keys())


def scope_words(operation: Operation) -> str:
    """Return the rights that a caller needs, in words."""
    if operation.scope in OPEN:
        return operation.scope
    if operation.scope == "send":
        return "`send:PATTERN`"
    if operation.scope in WITH_PATTERN:
        return f"`{operation.scope}:PATTERN`, or a token that grants it"
    return f"`{operation.scope}`" + (", or a token that grants `#`" if operation.scope == "trace" else "")


def cost_words(operation: Operation) -> str:
    """Return the cost of a request in words, unless it is one read."""
    return "" if operation.cost in (Cost.NOTHING, Cost.REQUEST) else f"Costs {operation.cost.value}."


def parameters(operation: Operation) -> list[dict[str, Any]]:
    """Return the parameters of an operation in path, query and header."""
    rows: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in operation.names
    ]
    schema = msgspec.json.schema(operation.query)
    shape = schema["$defs"][operation.query.__name__]
    for name, each in shape.get("properties", {}).items():
        plain = {key: value for key, value in each.items() if key not in ("default", "description")}
        if each.get("default") is not None:
            plain["default"] = each["default"]
        described = {"description": each["description"]} if "description" in each else {}
        if name == "namespace" and operation.in_namespace:
            described = {"description": "The namespace; not given: the first."}
        rows.append({"name": name, "in": "query", "required": name in shape.get("required", ()), **described, "schema": plain})
    for name, (about, max_length) in operation.fields.items():
        key = {"type": "string", "minLength": 1, "maxLength": max_length, "pattern": f"^{ID_CHARACTERS}+$"}
        rows.append({"name": name, "in": "header", "required": False, "description": about, "schema": key})
    return rows


def _operation(operation: Operation, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
        "description": " ".join(
            each for each in (operation.about, cost_words(operation), f"Needs {scope_words(operation)}.") if each
        ),
        "parameters": parameters(operation),
        "responses": _responses(operation, schema_of),
    }
    if operation.scope == ANYONE:
        described["security"] = []
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema_of[operation.body]}}}
    return described


def _responses(operation: Operation, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, returns in {operation.status: operation.returns, **operation.also}.items():
        content = {} if returns is None else {"content": {_JSON: {"schema": schema_of[returns]}}}
        responses[str(status)] = {"description": SUCCESS[status], **content}
    for status in refusals(operation):
        problem = {"description": MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema_of[Problem]}}}
        if status in (429, 503):
            problem["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait."}}
        responses[str(status)] = problem
    return dict(sorted(responses.items()))


def _types(operation: Operation) -> list[Any]:
    return [each for each in (operation.returns, operation.body, *operation.also.values()) if each is not None]
