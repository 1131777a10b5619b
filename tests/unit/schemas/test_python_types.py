"""The Python of schemas: it can be imported, and decodes and encodes again whatever the schemas let through."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidSchema
from headgate.json_data import encode_data
from headgate.schemas.catalogue import read_catalogue
from headgate.schemas.documents import read_folder
from headgate.schemas.python_types import Kind, python_types
from tests.support.random_frames import NIGHTLY
from tests.support.schema_files import GOLDEN, catalogue

_numbers = count()


@contextmanager
def imported(text: str) -> Iterator[ModuleType]:
    """The module of a text."""
    module = ModuleType(f"topics_{next(_numbers)}")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, module.__name__, "exec"), module.__dict__)
        yield module
    finally:
        del sys.modules[module.__name__]


def there_and_back(text: str, pattern: str, value: object) -> Any:
    """Decode a value with the type of a pattern, encode it again, and return the value of that."""
    with imported(text) as module:
        return json.loads(msgspec.json.encode(msgspec.json.decode(json.dumps(value), type=module.TOPICS[pattern], strict=False)))


def test_the_golden_folder_has_its_golden_types() -> None:
    """The same text for the same schemas; `headgate types --python --schemas tests/golden/schemas -o …` writes it."""
    assert python_types(read_catalogue(read_folder(str(GOLDEN / "schemas")))) == (GOLDEN / "topics.py").read_text()


SHIPPED = {
    "carrier": None,
    "to": {"street": "Long Street", "zip": "12345"},
    "lines": [{"sku": "a", "count": 1}],
    "weight-kg": 1.5,
    "from": None,
}
VALUES = [
    ("orders.*.shipped", SHIPPED),
    ("orders.*.paid", {"amount": 5, "by": {"kind": "card", "last4": "1234"}}),
    ("refunds.#", {"amount": 5, "by": {"kind": "cash"}}),
    ("tree.#", [["a"], "b", [[]]]),
    (
        "odd",
        {"class": True, "msgspec": 1, "__init__": "x", "a b": [1, None], "pair": [1.5, "x"], "counts": {"a": 1}, "needed": 0},
    ),
    ("odd", {"either": {"x": 1, "y": "more"}, "more": {"id": "1", "other": [1]}, "anything": None, "needed": {}}),
]


@pytest.mark.parametrize(("pattern", "value"), VALUES)
def test_a_value_of_the_golden_schemas_survives(pattern: str, value: object) -> None:
    """Names that are none in Python, unions by tag, members that are null or missing."""
    found = read_catalogue(read_folder(str(GOLDEN / "schemas")))
    assert found.validators[found.topics[pattern]].fault(value) is None
    assert there_and_back((GOLDEN / "topics.py").read_text(), pattern, value) == value


def test_a_value_that_a_type_refuses_is_refused() -> None:
    """Closed objects, tags, literals and missing members."""
    text = (GOLDEN / "topics.py").read_text()
    for pattern, value in (
        ("orders.*.shipped", {**SHIPPED, "carier": "UPS"}),
        ("orders.*.shipped", {**SHIPPED, "carrier": "FedEx"}),
        ("orders.*.shipped", {"carrier": None}),
        ("orders.*.paid", {"amount": 5, "by": {"kind": "gold"}}),
        ("odd", {"needed": 1, "msgspec": 2}),
    ):
        with pytest.raises(msgspec.ValidationError):
            there_and_back(text, pattern, value)


def test_dataclasses_do_the_same_where_names_allow_it() -> None:
    """A member that is missing stays missing."""
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "null"}}}},
        },
    }
    text = python_types(catalogue({"orders.json": schema}), Kind.DATACLASS)
    assert "@dataclasses.dataclass(kw_only=True)\nclass Orders:\n" in text
    for value in ({"id": 1}, {"id": 1, "lines": [{}, {"n": None}]}):
        assert there_and_back(text, "orders", value) == value


@pytest.mark.parametrize("kind", Kind)
def test_an_object_of_a_type_can_be_published(kind: Kind) -> None:
    """The publisher encodes it as the JSON that the schema is about."""
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "by": {"type": "string"}}}
    with imported(python_types(catalogue({"orders.json": schema}), kind)) as module:
        assert encode_data(module.Orders(id=1)) == b'{"id":1}'


def test_a_name_that_a_dataclass_cannot_have_is_refused_with_what_to_do() -> None:
    """The file and the way out are named."""
    with pytest.raises(InvalidSchema, match=r"^schema a\.json: a dataclass has no member 'b c', .*: leave out --dataclasses$"):
        python_types(catalogue({"a.json": {"type": "object", "properties": {"b c": True}}}), Kind.DATACLASS)


def test_words_of_a_schema_end_no_text_and_begin_no_line() -> None:
    """A description may hold anything."""
    hostile = 'x"""\nimport nothing\\\n\r\x00\u2028raise SystemExit'
    named = {"type": "object", "description": hostile, "properties": {"b": {"const": hostile, "description": hostile}}}
    odd = {"type": "object", "properties": {hostile: {"type": "integer"}}}
    text = python_types(catalogue({"a.json": named, "o.json": odd}))
    assert there_and_back(text, "a", {"b": hostile}) == {"b": hostile}
    assert there_and_back(text, "o", {hostile: 1}) == {hostile: 1}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": [2**63, -(2**63), "a"]}, 2**63),
        ({"title": " ", "description": "\n", "type": "object", "properties": {"a": {"title": "\t"}}}, {"a": 1}),
        ({"type": "array", "items": {"$ref": "#"}}, [[[]]]),
        ({"anyOf": [{"type": "array", "items": {"const": 1}}, {"type": "array", "items": {"const": "a"}}]}, ["a"]),
        (
            {"anyOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}, {"const": {"k": "b"}}]},
            {"k": "b"},
        ),
    ],
)
def test_corners_of_schemas_have_types_that_hold(schema: object, value: object) -> None:
    """Numbers beyond 64 bits, titles of nothing, a type in itself, unions that msgspec cannot tell apart."""
    assert there_and_back(python_types(catalogue({"a.json": schema})), "a", value) == value


def test_an_object_of_several_parts_has_the_members_of_all() -> None:
    """Of members that only some options have, no type is promised that another option does not keep."""
    schema = {
        "allOf": [{"$ref": "base.json"}, {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}],
        "anyOf": [
            {"type": "object", "properties": {"c": {"type": "integer"}}, "required": ["c"]},
            {"type": "object", "properties": {"d": {"type": "string"}}, "required": ["d"]},
        ],
    }
    found = catalogue(
        {"t.json": schema, "base.json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    )
    text = python_types(found)
    for value in ({"a": 1, "b": "x", "c": 2}, {"a": 1, "b": "x", "d": "y", "c": "not its business"}):
        assert found.validators["t.json"].fault(value) is None
        assert there_and_back(text, "t", value) == value
    assert "    a: int\n    b: str\n" in text


NAMES = st.sampled_from(["id", "class", "a b", "str", "Item", "msgspec", "x1", "é", "_y", "type"])


@st.composite
def schemas_with_values(draw: st.DrawFn, depth: int = 3) -> tuple[dict[str, Any], Any]:
    """A schema, and a value that it lets through."""
    kinds = ["null", "boolean", "integer", "number", "string", "const", "enum"]
    kind = draw(st.sampled_from([*kinds, *(["array", "tuple", "object", "map", "anyOf", "allOf"] if depth else [])]))
    inner = schemas_with_values(depth - 1) if depth else st.nothing()
    if kind in ("null", "boolean", "integer", "number", "string"):
        values = {
            "null": st.none(),
            "boolean": st.booleans(),
            "integer": st.integers(-(2**53), 2**53) | st.integers(-(2**53), 2**53).map(float),
            "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
            "string": st.text(max_size=5),
        }
        return {"type": kind}, draw(values[kind])
    if kind in ("const", "enum"):
        leaves = (
            st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.just([1]) | st.just({"a": 1}) | st.just(0.5)
        )
        options = draw(st.lists(leaves, min_size=1, max_size=3, unique_by=json.dumps))
        value = draw(st.sampled_from(options))
        return ({"const": value} if kind == "const" else {"enum": options}), value
    if kind == "array":
        schema, value = draw(inner)
        return {"type": "array", "items": schema}, [value] * draw(st.integers(0, 2))
    if kind == "tuple":
        pairs = draw(st.lists(inner, min_size=1, max_size=2))
        needed = draw(st.integers(0, len(pairs)))
        schema = {"type": "array", "prefixItems": [each for each, _ in pairs], "minItems": needed}
        if draw(st.booleans()):
            schema["items"] = False
        return schema, [value for _, value in pairs[: draw(st.integers(needed, len(pairs)))]]
    if kind == "map":
        schema, value = draw(inner)
        return {"type": "object", "additionalProperties": schema}, dict.fromkeys(draw(st.lists(NAMES, max_size=2)), value)
    if kind == "anyOf":
        pairs = draw(st.lists(inner, min_size=1, max_size=3))
        return {"anyOf": [each for each, _ in pairs]}, draw(st.sampled_from(pairs))[1]
    members = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = [name for name in members if draw(st.booleans())]
    value = {name: found for name, (_, found) in members.items() if name in required or draw(st.booleans())}
    parts: list[dict[str, Any]] = [
        {
            "type": "object",
            "properties": {name: members[name][0] for name in names},
            "required": [name for name in required if name in names],
        }
        for names in ([list(members)] if kind == "object" else [list(members)[::2], list(members)[1::2]])
    ]
    if kind == "object":
        if draw(st.booleans()):
            parts[0]["additionalProperties"] = False
        return parts[0], value
    return {"allOf": parts}, value


@given(schemas_with_values())
@settings(max_examples=2000 if NIGHTLY else 40, deadline=None)
def test_whatever_a_schema_lets_through_survives_its_type(found: tuple[dict[str, Any], Any]) -> None:
    """Every value can be decoded, and is the same value when it is encoded again."""
    schema, value = found
    held = catalogue({"t.json": schema})
    assert held.validators["t.json"].fault(value) is None
    assert there_and_back(python_types(held), "t", value) == value


@pytest.mark.parametrize("kind", Kind)
def test_an_integer_may_be_written_with_a_fraction_of_zero(kind: Kind) -> None:
    """JSON Schema has it so (2020-12, section 4.2.3): the check takes it, and so does the type; 27.5 neither."""
    found = catalogue({"t.json": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}})
    assert found.validators["t.json"].fault({"n": 27.0}) is None
    assert found.validators["t.json"].fault({"n": 27.5}) is not None
    assert there_and_back(python_types(found, kind), "t", {"n": 27.0}) == {"n": 27}
    with pytest.raises(msgspec.ValidationError):
        there_and_back(python_types(found, kind), "t", {"n": 27.5})
