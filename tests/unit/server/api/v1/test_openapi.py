"""The OpenAPI document: made from the table, served, and complete. test_api_v1_served.py compares it with the server."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from flask.testing import FlaskClient
from werkzeug.datastructures import MultiDict

from headgate.auth.api_keys import new_key
from headgate.auth.scopes import PLAIN, WITH_PATTERN, check_scope
from headgate.consumers.work.dead_letters import check_letter_id
from headgate.errors import HeadgateError, InvalidRequest
from headgate.events.event import check_event_id
from headgate.events.topic import check_namespace, check_pattern, check_topic
from headgate.transport.http_answers import STATUS_BY_CODE
from headgate_server.api.v1.clients import Namespace
from headgate_server.api.v1.consumers import LetterId
from headgate_server.api.v1.dispatch import read_query
from headgate_server.api.v1.keys import KeyName, KeyNamespace
from headgate_server.api.v1.openapi import MEANINGS, parameters, refusals
from headgate_server.api.v1.operation import OPEN, EventId, Operation, Pattern, Scope, Topic
from headgate_server.api.v1.problems import OF_HTTP, descriptions
from headgate_server.api.v1.publishing import MAX_BATCH_EVENTS
from headgate_server.api.v1.table import OPERATIONS, openapi


def test_the_document_is_served_to_anyone(dev: FlaskClient) -> None:
    """As it was made, with the address of its gateway for tools that read it."""
    answer = dev.get("/api/v1/openapi.json")
    assert (answer.status_code, answer.get_json()) == (200, openapi())
    assert openapi()["servers"] == [{"url": "/", "description": "The gateway that this document is from."}]


def test_each_row_is_in_the_document_and_each_has_a_name_of_its_own() -> None:
    """And nothing else is."""
    found = {(path, method) for path, methods in openapi()["paths"].items() for method in methods}
    assert found == {(f"/api/v1{row.path}", row.method.lower()) for row in OPERATIONS}
    assert len({row.name for row in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_a_row_asks_for_a_scope_that_there_is(row: Operation) -> None:
    """One word of the vocabulary, or any caller; a change is never for a viewer."""
    assert row.scope in (*OPEN, *PLAIN, *WITH_PATTERN)
    if row.method != "GET" and row.name != "changeInbox":  # the owner of the inbox decides: tests/integration/node/test_inbox.py
        assert isinstance(row.scope, str)
        assert row.scope.endswith(":write") or row.scope in ("publish", "send")
    assert not row.pattern or row.pattern in row.query.__struct_fields__
    assert set(refusals(row)) <= set(MEANINGS)


def test_every_reference_of_the_document_leads_somewhere() -> None:
    """To a schema, which is valid."""

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            return ([value["$ref"]] if "$ref" in value else []) + [each for inner in value.values() for each in references(inner)]
        return [each for inner in value for each in references(inner)] if isinstance(value, list) else []

    schemas = openapi()["components"]["schemas"]
    for reference in references(openapi()):
        name = re.fullmatch(r"#/components/schemas/(\w+)", reference)
        assert name is not None
        assert name[1] in schemas, reference
    for name in schemas:
        jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}})


def test_an_operation_says_what_it_needs() -> None:
    """In its description, and that no credentials are needed there."""
    paths = openapi()["paths"]
    assert paths["/api/v1/health"]["get"]["security"] == []
    assert "Needs `publish:PATTERN`" in paths["/api/v1/events"]["post"]["description"]
    assert "Needs `keys:write`" in paths["/api/v1/keys/{key}"]["delete"]["description"]


# -- limits and formats that the document and the code both have ---------------------------------------------------

CHARACTERS = ("a", "Z", "0", "_", "-", ".", ":", "~", "*", "#", "/", " ", "@", "+", "\u00e9", "\n", "\0")
LENGTHS = (36, 64, 65, 80, 81, 128, 129, 200, 201, 255, 256)
TEXTS = (
    "", *CHARACTERS, *(f"a{each}" for each in CHARACTERS), *(f"{each}a" for each in CHARACTERS),
    *(f"a{each}b" for each in CHARACTERS), *("a" * length for length in LENGTHS), *(".".join("a" * words) for words in (8, 9)),
    *(f"{'a' * 126}.{'b' * length}" for length in (128, 129)), "1-1", "1-", "-1", "1-1-1",
    "1" * 15 + "-1", "1" * 16 + "-1", "1-" + "1" * 16, *PLAIN, "publish",
    *(f"{kind}:{pattern}" for kind in WITH_PATTERN for pattern in ("a.#", "#", "", "a..b", "a" * 190, "a" * 200)),
)  # fmt: skip


def checked_key_name(name: str) -> object:
    return new_key(name, ("clients",), namespaces=(), ttl_s=None, by="", time_s=lambda: 0)


def checked_scope(text: str) -> object:
    """A key has short scopes; the code that reads a key's scopes again has no separate limit."""
    return check_scope(msgspec.convert(text, Scope))


def checked_namespace(name: str) -> object:
    """A query has it without the slash that Socket.IO gives it."""
    if name.startswith("/"):
        raise InvalidRequest("/")
    return check_namespace(name)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Topic, check_topic),
        (Pattern, check_pattern),
        (EventId, check_event_id),
        (Scope, checked_scope),
        (Namespace, checked_namespace),
        (KeyName, checked_key_name),
        (KeyNamespace, lambda name: name == "*" or check_namespace(name)),
        (LetterId, check_letter_id),
    ],
    ids=["topic", "pattern", "event id", "scope", "namespace", "name of a key", "namespace of a key", "dead letter"],
)
def test_a_format_of_the_document_is_that_of_the_code(kind: Any, check: Callable[[str], object]) -> None:
    """Of texts at the edges of a grammar, the schema allows exactly those that the code takes."""
    validator = jsonschema_rs.Draft202012Validator(msgspec.json.schema(kind))

    def takes(text: str) -> bool:
        try:
            check(text)
        except (HeadgateError, msgspec.ValidationError):
            return False
        return True

    assert {text for text in TEXTS if validator.is_valid(text)} == {text for text in TEXTS if takes(text)}


def beside(schema: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield texts for a parameter at each bound of its schema, and whether the schema allows them."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None:
        yield from ((str(low), True), (str(low - 1), False), (f"{low}.5", False))
    if high is not None:
        yield from ((str(high), True), (str(high + 1), False), (f"{high}.0", high <= 2**53))
    if schema.get("type") == "string" and "pattern" not in schema:
        yield from ((("a" * each), True) for each in (schema.get("minLength"), schema.get("maxLength")) if each)
        yield "", schema.get("minLength", 0) == 0
        if "maxLength" in schema:
            yield "a" * (schema["maxLength"] + 1), False
    yield from ((each, True) for each in schema.get("enum", ()))


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.query.__struct_fields__], ids=lambda row: row.name)
def test_the_bounds_of_a_parameter_are_those_of_the_code(row: Operation) -> None:
    """An allowed value of the schema is read, and one more or one less is refused."""
    asked = {each["name"]: each for each in parameters(row) if each["in"] == "query"}
    needed = {"topic": "a", "epoch": "0" * 16, "offset": "1"}
    for name, parameter in asked.items():
        for text, is_right in beside(parameter["schema"]):
            query = MultiDict({each: needed[each] for each in asked if asked[each]["required"]} | {name: text})
            try:
                read_query(row, query)
            except InvalidRequest:
                assert not is_right, (name, text)
            else:
                assert is_right, (name, text)


def test_no_empty_text_is_allowed_where_a_page_goes_on() -> None:
    """An empty `after` is no place in any list."""
    for row in OPERATIONS:
        for each in parameters(row):
            if each["name"] == "after":
                assert each["schema"].get("minLength", 0) == 1 or "pattern" in each["schema"], row.name


@pytest.mark.parametrize(("path", "suffix"), [("/events", ""), ("/events/batch", f".{MAX_BATCH_EVENTS - 1}")])
def test_an_idempotency_key_is_as_long_as_the_document_says(dev: FlaskClient, path: str, suffix: str) -> None:
    """So that the id of the last event of the largest batch still is one."""
    (field,) = [each for each in openapi()["paths"][f"/api/v1{path}"]["post"]["parameters"] if each["in"] == "header"]
    longest = field["schema"]["maxLength"]
    event = {"topic": "a", "data": 1}
    body = {"events": [event]} if suffix else event

    def status(key: str) -> int:
        return dev.post(f"/api/v1{path}", json=body, headers={"Idempotency-Key": key}).status_code

    assert [status("a" * longest), status(f'"{"a" * longest}"'), status("a" * (longest + 1))] == [201, 201, 400]
    assert check_event_id("a" * longest + suffix)
    with pytest.raises(HeadgateError):
        check_event_id("a" * (longest + 1) + suffix)


def test_every_status_that_the_code_answers_is_in_the_document() -> None:
    """421 comes before the API (an unknown host), and 405 is about a method that the document does not have."""
    answered = {*STATUS_BY_CODE.values(), *OF_HTTP, 429} - {421, 405}
    assert answered == set(MEANINGS)
    assert {status for status, _ in descriptions().values()} - {421, 405} <= set(MEANINGS)
