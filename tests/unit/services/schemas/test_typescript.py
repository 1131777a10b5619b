"""The TypeScript of schemas: the text of each keyword, and no schema that can break out of it.

web/test/types.test.js compiles the golden text with the oldest and the newest TypeScript.
"""

from typing import Any

import pytest

from headgate.errors import InvalidSchema
from headgate.services.schemas.catalogue import read_catalogue
from headgate.services.schemas.documents import read_folder
from headgate.services.schemas.typescript import typescript
from tests.support.schema_files import GOLDEN, catalogue


def type_of(schema: object, **others: object) -> str:
    """The text of the type of a topic `t` without the words around it."""
    text = typescript(catalogue({"t.json": schema, **{f"{name}.json": other for name, other in others.items()}}))
    line = next(line for line in text.splitlines() if line.startswith("export type T "))
    return line.removeprefix("export type T = ").removesuffix(";")


def test_the_golden_folder_has_its_golden_types() -> None:
    """The same text for the same schemas; `headgate types --schemas tests/golden/schemas -o tests/golden/topics.ts` writes it."""
    assert typescript(read_catalogue(read_folder(str(GOLDEN / "schemas")))) == (GOLDEN / "topics.ts").read_text()


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (True, "unknown"),
        (False, "never"),
        ({}, "unknown"),
        ({"type": "integer"}, "number"),
        ({"type": ["null", "boolean", "string"]}, "boolean | string | null"),
        ({"type": ["integer", "number"]}, "number"),
        ({"const": {"a": [1, "x", None]}}, '{"a": [1, "x", null]}'),
        ({"type": "string", "enum": ["a", 1, "*/"]}, '"a" | "*/"'),
        ({"type": "array"}, "unknown[]"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "(string | null)[]"),
        ({"type": "array", "items": False}, "[]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}, "[string?, number?, ...unknown[]]"),
        (
            {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": ["null", "number"]}],
                "minItems": 1,
                "items": {"const": 1},
            },
            "[string, (number | null)?, ...1[]]",
        ),
        ({"type": "array", "prefixItems": [{"type": "string"}], "minItems": 1, "maxItems": 1}, "[string]"),
        ({"type": "object"}, "{ [name: string]: unknown }"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "{ [name: string]: number }"),
        ({"type": "object", "additionalProperties": False}, "{ [name: string]: never }"),
        ({"anyOf": [{"type": "string"}, {"oneOf": [{"type": "null"}, {"type": "string"}]}]}, "string | null"),
        ({"anyOf": [{"type": "string"}, {}]}, "unknown"),
        ({"allOf": [{"type": "string"}, {"pattern": "^a"}]}, "string"),
        ({"type": "string", "anyOf": [{"pattern": "^a"}, {"minLength": 3}]}, "string"),
        ({"not": {"type": "string"}}, "unknown"),
        ({"$ref": "u.json", "description": "same"}, "U"),
    ],
)
def test_a_schema_has_its_type(schema: object, text: str) -> None:
    """As much of it as a type can say, and never less than the schema lets through."""
    assert type_of(schema, u={"type": "string"}) == text


def test_words_of_a_schema_end_no_comment_and_begin_no_line() -> None:
    """A description may hold anything."""
    hostile = "*/ export const x = 1; /*\n\u2028 second \x00 line\u202e"
    text = typescript(
        catalogue({"t.json": {"type": "object", "description": hostile, "properties": {'a"b\n': {"title": hostile}}}})
    )
    assert text.count("*/") == text.count("/**")
    assert "\u2028" not in text
    assert '"a\\"b\\n"?: unknown;' in text


def test_names_come_from_titles_definitions_patterns_and_places() -> None:
    inner: dict[str, Any] = {"type": "object", "properties": {"b c": {"type": "object", "properties": {"d": True}}}}
    text = typescript(
        catalogue(
            {
                "a.*.made.json": {"title": "Made it", "$ref": "#/$defs/part", "$defs": {"part": inner}},
                "a.*.gone.json": {"$ref": "#/$defs/part", "$defs": {"part": inner}},
                "9.json": {"title": "Topics", "type": "string"},
                "#.json": {"title": "An essay about what may be in such an event, which is no name for it", "type": "null"},
            }
        )
    )
    names = [line.split()[2] for line in text.splitlines() if line.startswith("export ")]
    assert names == ["Topics", "AGone", "AGonePart", "AGonePartBC", "AMadePart", "AMadePartBC", "MadeIt", "Topic", "TopicsData"]


def test_an_object_that_may_be_null_has_the_name_of_its_place() -> None:
    """At the top of a file that is the name of the union, so the object has one more word."""
    maybe = {"type": ["object", "null"], "properties": {"b": True}}
    text = typescript(catalogue({"a.json": {**maybe, "properties": {"to": maybe}}}))
    assert "export type A = AObject | null;" in text
    assert "export interface AObject {\n  to?: ATo | null;\n}" in text
    assert "export interface ATo {" in text


def test_two_types_of_one_name_are_refused_with_what_to_do() -> None:
    """A number after a name would move when a file is added."""
    with pytest.raises(
        InvalidSchema, match=r"^schema a_b\.json: its type would be named ABAB, as that of a\.b\.json; give one a title$"
    ):
        typescript(catalogue({"a.b.json": True, "a_b.json": True}))


@pytest.mark.parametrize(("keyword", "value", "wanted"), [("properties", {}, "object"), ("minItems", 1, "array")])
def test_keywords_of_one_type_need_the_type(keyword: str, value: object, wanted: str) -> None:
    """Without it the schema lets every other value through, which is never meant."""
    with pytest.raises(InvalidSchema, match=rf'^schema a\.json: {keyword} without a type lets .*; write "type": "{wanted}"$'):
        typescript(catalogue({"a.json": {keyword: value}}))
