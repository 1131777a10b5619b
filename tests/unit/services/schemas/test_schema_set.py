"""A set of schemas: the rules for a topic, and how a violation is reported."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.events.topic import matches
from headgate.services.schemas import catalogue as module
from headgate.services.schemas.catalogue import read_catalogue
from tests.support.schema_files import texts


def test_the_schemas_of_all_patterns_that_match_must_hold() -> None:
    """`orders.#` has the common part of all orders."""
    found = read_catalogue(
        texts(
            {
                "orders.#.json": {"type": "object", "required": ["by"]},
                "orders.*.shipped.json": {"type": "object", "required": ["carrier"]},
                "#.json": {"maxProperties": 3},
            }
        )
    )
    assert found.violation("orders.7.shipped", b'{"by":1,"carrier":2}') is None
    assert found.violation("orders.7.paid", b'{"by":1}') is None
    assert found.violation("other", b"5") is None
    told = [found.violation("orders.7.shipped", data) for data in (b'{"by":1}', b'{"carrier":1}', b'{"a":1,"b":2,"c":3,"d":4}')]
    assert [error and (error.pattern, error.path, error.reason) for error in told] == [
        ("orders.*.shipped", "$", '"carrier" is a required property'),
        ("orders.#", "$", '"by" is a required property'),
        ("#", "$", "the value has more than 3 properties"),
    ]


def test_a_violation_names_topic_pattern_path_and_reason_and_no_value() -> None:
    """Values may be secrets, and the error travels and goes into logs."""
    found = read_catalogue(
        texts(
            {"a.*.json": {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string", "maxLength": 2}}}}}
        )
    )
    error = found.violation("a.b", b'{"l":["x","secret"]}')
    assert error is not None
    assert error.to_wire() == {
        "code": "schema_violation",
        "message": "data for topic 'a.b' breaks the schema of 'a.*' at $.l[1]: the value is longer than 2 characters",
        "retry": False,
        "topic": "a.b",
        "pattern": "a.*",
        "path": "$.l[1]",
        "reason": "the value is longer than 2 characters",
    }


@pytest.mark.parametrize(
    "schema",
    [
        *({"type": "integer"}, {"const": 1}, {"enum": [1, 2]}, {"pattern": "^a"}, {"format": "email"}, {"maxLength": 1}),
        {"not": {"type": "string"}},
        {"anyOf": [{"type": "integer"}, {"maxLength": 1}]},
        {"oneOf": [{"type": "string"}, {"minLength": 1}]},
        {"allOf": [{"if": {"type": "string"}, "then": {"const": 1}}]},
        False,
    ],
)
def test_no_reason_has_a_value_of_the_data(schema: object) -> None:
    """Whichever rule is broken, alone or in an array."""
    found = read_catalogue(
        texts({"a.json": schema, "b.json": {"type": "array", "items": schema}, "c.json": {"contains": schema}})
    )
    for topic, data in (("a", b'"s3cret"'), ("b", b'["s3cret"]'), ("c", b'["s3cret"]')):
        error = found.violation(topic, data)
        assert error is not None
        assert "s3cret" not in error.message


def test_formats_are_checked() -> None:
    """A team that writes one means it."""
    found = read_catalogue(texts({"a.json": {"type": "string", "format": "date-time"}}))
    assert found.violation("a", b'"2026-11-23T05:00:00Z"') is None
    assert found.violation("a", b'"yesterday"') is not None


WORDS = st.sampled_from(["a", "b", "c"])
TOPICS = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)


@given(PATTERNS, TOPICS)
def test_a_topic_has_the_schemas_of_the_patterns_that_match_it(pattern: str, topic: str) -> None:
    found = read_catalogue(texts({"x.json": {"x-topic": pattern, "not": {}}}))
    assert (found.violation(topic, b"1") is not None) == matches(pattern, topic)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STRICT = {
    "anyOf": [
        {"type": "number", "multipleOf": 0.1, "maximum": 5},
        {"type": "string", "format": "email", "maxLength": 9},
        {"type": "array", "uniqueItems": True, "contains": {"const": 10**30}},
        {"type": "object", "propertyNames": {"format": "regex"}, "patternProperties": {"^a": {"enum": [2**64, 1.5]}}},
    ]
}


@given(JSON)
def test_any_json_is_judged(value: object) -> None:
    """Numbers beyond 64 bits, any text. The answer is yes or no, and no exception of the library's."""
    error = read_catalogue(texts({"a.json": STRICT})).violation("a", msgspec.json.encode(value))
    assert error is None or error.path == "$"


def test_what_is_remembered_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application has a topic for each order."""
    monkeypatch.setattr(module, "MAX_TOPICS", 10)
    found = read_catalogue(texts({"orders.#.json": {"type": "integer"}}))
    for number in range(100):
        assert found.violation(f"orders.{number}", b"1") is None
        assert len(found._by_topic) <= 10
    assert found.violation("orders.1", msgspec.json.encode("x")) is not None


def test_the_same_documents_are_compiled_once() -> None:
    """Each publisher of a process has the same folder; the kept set is bounded."""
    one = {"a.json": {"type": "integer"}}
    assert read_catalogue(texts(one)) is read_catalogue(texts(one))
    assert read_catalogue.cache_info().maxsize == module.MAX_COMPILED


def test_a_deep_value_costs_no_search_for_the_place_of_its_fault() -> None:
    """Under a schema with two ways into itself the search would take years, and a gateway has one loop."""
    again = {"$ref": "#/$defs/list"}
    lists = {"$defs": {"list": {"type": "array", "items": {"anyOf": [again, again]}}}, **again}
    found = read_catalogue(texts({"a.json": lists})).violation("a", b"[" * 60 + b"1" + b"]" * 60)
    assert found is not None
    assert (found.parts["path"], found.parts["reason"][:18]) == ("$", "the value does not")
