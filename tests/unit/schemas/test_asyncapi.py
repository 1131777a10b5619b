"""The AsyncAPI document: it is one by AsyncAPI's own schema, and its payloads are the schemas. Needs `npm ci`."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from headgate.errors import InvalidRequest
from headgate.schemas.asyncapi import asyncapi
from headgate.schemas.catalogue import read_catalogue
from headgate.schemas.documents import read_folder
from tests.support.schema_files import GOLDEN, catalogue

SPECIFICATION = GOLDEN.parents[1] / "node_modules/@asyncapi/specs/schemas/3.0.0.json"
PLACE = {"url": "https://example.com", "namespace": "notifications", "title": "Events", "version": "1.0.0"}


def test_the_document_is_one_by_the_official_schema() -> None:
    """And the schema refuses what is none."""
    official = jsonschema_rs.Draft7Validator(json.loads(SPECIFICATION.read_text()), offline=True)
    document = asyncapi(read_catalogue(read_folder(str(GOLDEN / "schemas"))), **PLACE)
    assert [error.message for error in official.iter_errors(document)] == []
    document["channels"]["Shipped"]["addres"] = document["channels"]["Shipped"].pop("address")
    assert not official.is_valid(document)


def test_each_pattern_is_a_channel_of_the_namespace() -> None:
    """With a message that has the schema of its file."""
    document = asyncapi(read_catalogue(read_folder(str(GOLDEN / "schemas"))), **PLACE)
    assert {channel["address"]: list(channel["messages"]) for channel in document["channels"].values()} == {
        "odd": ["Odd"],
        "orders.*.paid": ["Paid"],
        "orders.*.shipped": ["Shipped"],
        "refunds.#": ["Paid"],
        "tree.#": ["Tree"],
    }
    assert document["servers"]["gateway"] == {
        "host": "example.com",
        "pathname": "/socket.io/",
        "protocol": "wss",
        "description": "The Socket.IO namespace /notifications.",
    }


def test_references_lead_to_the_same_schemas_inside_the_document() -> None:
    """A reader of the document alone can check a payload."""
    found = catalogue(
        {
            "a.json": {
                "type": "object",
                "properties": {"b": {"$ref": "_c.json#/$defs/d"}, "a": {"anyOf": [{"$ref": "#"}, True]}},
            },
            "_c.json": {"$defs": {"d": {"type": "integer"}}},
        }
    )
    document = asyncapi(found, **PLACE)
    resolved = jsonschema_rs.Draft202012Validator({**document, "$ref": "#/components/schemas/A/schema"}, offline=True)
    assert resolved.is_valid({"b": 1, "a": {"b": 2}})
    assert not resolved.is_valid({"b": "1"})
    assert found.schemas["a.json"]["properties"]["b"] == {"$ref": "_c.json#/$defs/d"}  # the schemas themselves stay


@pytest.mark.parametrize("url", ["example.com", "ftp://example.com", "https://ana:pw@example.com", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """With an example of one."""
    with pytest.raises(InvalidRequest, match="expected the gateway's, such as"):
        asyncapi(catalogue({"a.json": True}), **{**PLACE, "url": url})
