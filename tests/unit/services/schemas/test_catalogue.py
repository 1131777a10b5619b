"""The catalogue: which file is for which pattern, the targets of references, and one clear error for each fault of a file."""

import socket
from typing import NoReturn

import pytest

from headgate.errors import InvalidSchema
from headgate.services.schemas.validation import fault_of
from tests.support.schema_files import catalogue


def test_a_file_is_for_the_pattern_of_its_name_or_those_that_it_names() -> None:
    """A file that begins with `_`, or that names no pattern, has definitions only."""
    found = catalogue(
        {
            "orders.*.shipped.json": True,
            "paid.json": {"x-topic": ["orders.*.paid", "refunds.#"]},
            "one.json": {"x-topic": "two"},
            "none.json": {"x-topic": None},
            "_common.json": {"$defs": {"a": True}},
        }
    )
    assert found.topics == {
        "orders.*.paid": "paid.json",
        "orders.*.shipped": "orders.*.shipped.json",
        "refunds.#": "paid.json",
        "two": "one.json",
    }


@pytest.mark.parametrize(
    "reference",
    [
        "_c.json#/$defs/a~1b",
        "_c.json#/$defs/a~1b/allOf/0",
        "_c.json#word",
        "https://example.com/ids/c#word",
        "#/$defs/own",
        "users.%23.json",
    ],
)
def test_a_reference_leads_to_a_schema_of_the_folder(reference: str) -> None:
    """By file name, by $id, by anchor, in the same file; its target is checked."""
    found = catalogue(
        {
            "_c.json": {"$defs": {"a/b": {"allOf": [{"type": "integer"}]}, "w": {"$anchor": "word", "type": "integer"}}},
            "_d.json": {"$id": "https://example.com/ids/c", "$defs": {"w": {"$anchor": "word", "type": "integer"}}},
            "users.#.json": {"type": "integer"},
            "t.json": {"type": "object", "properties": {"n": {"$ref": reference}}, "$defs": {"own": {"type": "integer"}}},
        }
    )
    validator = found.validators["t.json"]
    assert fault_of(validator, {"n": 1}) is None
    fault = fault_of(validator, {"n": "1"})
    assert fault is not None
    path, reason = fault
    assert (list(path), reason) == (["n"], 'the value is not of type "integer"')


FAULTS: list[tuple[dict[str, object], str]] = [
    ({"a.json": b"{"}, r"^schema a\.json: is not JSON: .*; expected one JSON Schema$"),
    ({"a.json": b"\xff"}, r"^schema a\.json: is not JSON: not UTF-8 at byte 0; expected one JSON Schema$"),
    ({"a.json": b"[" * 99 + b"]" * 99}, r"^schema a\.json: is not JSON: nested deeper than 64 levels; expected one JSON Schema$"),
    ({"a.json": 5}, r'^schema a\.json: 5 is not of types "boolean", "object"$'),
    (
        {"a.json": {"properties": {"b": {"type": "strin"}}}},
        r"^schema a\.json at /properties/b/type: expected array, boolean, integer, null, number, object or string, "
        r"or a list of these$",
    ),
    ({"a.json": {"requierd": ["b"]}}, r"^schema a\.json: 'requierd' is no keyword of JSON Schema; did you mean required\?$"),
    ({"a.json": {"owner": 1}}, r"^schema a\.json: 'owner' is no keyword of JSON Schema; keywords of your own begin with x-$"),
    (
        {"a.json": {"items": {"additionalItems": False}}},
        r"^schema a\.json at /items: additionalItems is not supported; write items beside prefixItems$",
    ),
    ({"a.json": {"$dynamicRef": "#a"}}, r"^schema a\.json: \$dynamicRef is not supported; write \$ref$"),
    (
        {"a.json": {"$schema": "http://json-schema.org/draft-07/schema#"}},
        r"^schema a\.json at /\$schema: \$schema is 'http://json-schema\.org/draft-07/schema#'; "
        r"expected 'https://json-schema\.org/draft/2020-12/schema', or no \$schema$",
    ),
    ({"a.json": {"not": {"$id": "b"}}}, r"^schema a\.json at /not: \$id is allowed at the top of a file only$"),
    (
        {"a.json": {"$ref": "b.json"}},
        r"^schema a\.json: \$ref 'b\.json' leads to no file of the folder, and nothing is fetched; there are a\.json$",
    ),
    (
        {"a.json": {"not": {"$ref": "https://example.com/b"}}},
        r"^schema a\.json at /not: \$ref 'https://example\.com/b' leads to no file of the folder, "
        r"and nothing is fetched; there are a\.json$",
    ),
    ({"a.json": {"$ref": "#/$defs/b"}}, r"^schema a\.json: \$ref '#/\$defs/b' leads to no schema in a\.json$"),
    ({"a.json": {"$ref": "#b"}}, r"^schema a\.json: \$ref '#b' leads to no schema in a\.json$"),
    ({"a.json": {"$ref": "#/examples/0", "examples": [True]}}, r"leads to no schema in a\.json$"),
    ({"a.json": {"$ref": "#"}}, r"^schema a\.json: refers to itself about the same value, which says nothing$"),
    (
        {"a.json": {"anyOf": [{"$ref": "b.json"}]}, "b.json": {"not": {"$ref": "a.json"}}},
        r"refers to itself about the same value",
    ),
    (
        {"a.json": True, "b.json": {"x-topic": "a"}},
        r"^schema b\.json: the pattern 'a' has a schema already, in a\.json; expected one file for it$",
    ),
    (
        {"#.*.json": True, "b.json": {"x-topic": "*.#"}},
        r"^schema b\.json: the pattern '\*\.#' has a schema already, in #\.\*\.json",
    ),
    (
        {"a..b.json": True},
        r"^schema a\.\.b\.json: invalid pattern 'a\.\.b': words are .*; or name the pattern in the file: "
        r'"x-topic": "orders\.\*\.shipped"; definitions for other files begin with _$',
    ),
    ({"a.json": {"x-topic": ["b", "c*"]}}, r"^schema a\.json at /x-topic: invalid pattern 'c\*': words are "),
    ({"a.json": {"x-topic": 5}}, r"^schema a\.json at /x-topic: invalid pattern '5': expected a string, got int$"),
    ({"a.json": {"$id": "urn:x"}, "b.json": {"$id": "urn:x"}}, r"^schema b\.json at /\$id: has the same \$id as a\.json$"),
    (
        {"a.json": {"$defs": {"b": {"$anchor": "x"}, "c": {"$anchor": "x"}}}},
        r"^schema a\.json at /\$defs/c: \$anchor 'x' is there twice$",
    ),
    (
        {"a.json": {"type": "string", "pattern": "^(?=a)"}},
        r'^schema a\.json at /pattern: this is not a "regex"; a pattern may have neither look-around nor back-references$',
    ),
]


@pytest.mark.parametrize(("schemas", "told"), FAULTS, ids=[told[:40] for _, told in FAULTS])
def test_a_fault_is_one_error_that_names_the_file_and_what_is_allowed(schemas: dict[str, object], told: str) -> None:
    """The author finds the place in the file, and a replacement."""
    with pytest.raises(InvalidSchema, match=told):
        catalogue(schemas)


def chain(length: int, references: int) -> dict[str, object]:
    """So many schemas, each with so many references to the next one."""
    links = {f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * references} for number in range(length)}
    return {"a.json": {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": True}}}


def test_a_schema_that_would_take_for_ever_is_refused() -> None:
    """Thirty lines of references make a check of a billion steps, or a recursion without an end in sight."""
    catalogue(chain(20, 1))
    with pytest.raises(InvalidSchema, match=r"^schema a\.json at .*: more than 1000 schemas speak of the same value$"):
        catalogue(chain(30, 2))
    with pytest.raises(InvalidSchema, match=r"^schema a\.json at .*: more than 100 schemas refer to each other in a row$"):
        catalogue(chain(300, 1))


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema must not make a gateway open connections, so another dialect and an address elsewhere are refused unread."""

    def connect(*_: object) -> NoReturn:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for schema in (
        {"$schema": "http://127.0.0.1:9/dialect"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$id": "http://127.0.0.1:9/", "$ref": "x"},
    ):
        with pytest.raises(InvalidSchema, match=r"expected 'https://json-schema|nothing is fetched"):
            catalogue({"a.json": schema})


def test_a_pattern_that_would_take_for_ever_takes_linear_time() -> None:
    """`(a+)+$` on many letters stops a backtracking matcher for years, and an event must not stop a gateway."""
    validator = catalogue({"a.json": {"type": "string", "pattern": "^(a+)+$"}}).validators["a.json"]
    assert fault_of(validator, "a" * 60_000) is None
    assert fault_of(validator, "a" * 60_000 + "b") is not None
