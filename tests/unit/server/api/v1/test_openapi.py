"""The OpenAPI document: made from the table, served, and complete. test_api_v1_served.py tries whether it is true."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from flask.testing import FlaskClient

from headgate.auth.scopes import PLAIN, WITH_PATTERN
from headgate_server.api.v1.openapi import MEANINGS, refusals
from headgate_server.api.v1.operation import Operation, Who
from headgate_server.api.v1.table import OPERATIONS, openapi


def test_the_document_is_served_to_anyone(dev: FlaskClient) -> None:
    """As it was made."""
    answer = dev.get("/api/v1/openapi.json")
    assert (answer.status_code, answer.get_json()) == (200, openapi())


def test_each_row_is_in_the_document_and_each_has_a_name_of_its_own() -> None:
    """And nothing else is."""
    found = {(path, method) for path, methods in openapi()["paths"].items() for method in methods}
    assert found == {(f"/api/v1{row.path}", row.method.lower()) for row in OPERATIONS}
    assert len({row.name for row in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_a_row_asks_for_a_scope_that_there_is(row: Operation) -> None:
    """One word of the vocabulary, or nobody in particular; a change is never for one who may only look."""
    assert isinstance(row.scope, Who) or row.scope in (*PLAIN, *WITH_PATTERN)
    if row.method != "GET":
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
    """In its description, and that no credentials are needed where that is so."""
    paths = openapi()["paths"]
    assert paths["/api/v1/health"]["get"]["security"] == []
    assert "Needs `publish:PATTERN`" in paths["/api/v1/events"]["post"]["description"]
    assert "Needs `keys:write`" in paths["/api/v1/keys/{key}"]["delete"]["description"]
