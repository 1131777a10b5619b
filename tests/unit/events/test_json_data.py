"""From a value to JSON: as it is, or an error."""

import collections
import dataclasses
import datetime
import enum
import json
import math
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.local import LocalProxy

from headgate import NotSerializable
from headgate.events.event import MAX_DEPTH, check_json
from headgate.events.json_data import encode_data


class Colour(enum.Enum):
    RED = "red"
    NOTHING = math.nan


@dataclasses.dataclass
class Order:
    number: int
    price: Any


class Line(msgspec.Struct):
    name: str


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_values_survive(value: Any) -> None:
    """A value that JSON has is encoded as strict JSON and read back as it was."""
    payload = encode_data(value)

    check_json(payload)
    assert json.loads(payload) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([Line("a")], b'[{"name":"a"}]'),
        ((1, "é"), '[1,"é"]'.encode()),
        (msgspec.Raw(b' {"a" : 1} '), b' {"a" : 1} '),
    ],
)
def test_a_value_that_msgspec_knows_is_encoded(value: Any, text: bytes) -> None:
    """Structs and text as msgspec writes them, Raw as it is; docs/data.md has the other types."""
    assert encode_data(value) == text


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -math.inf, [{"a": [math.nan]}], (math.inf,), Order(1, math.nan), {"order": Order(1, {"x": math.inf})},
        Colour.NOTHING, Decimal("NaN"), Decimal("sNaN"), [Decimal("1e400"), object()], Order(1, Decimal("Infinity")),
        {1: "a"}, {"a": {True: 1}}, {None: 1}, {1.5: 1}, Order(1, {2: 3}), {datetime.date(2026, 1, 1): 1},
        object(), [object()], "\ud800", {"\udfff": 1}, 1j, print,
        msgspec.Raw(b"nope"), msgspec.Raw(b'"\xff"'), [msgspec.Raw(b"1")],
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),
)  # fmt: skip
def test_data_that_is_not_json_is_refused(value: Any) -> None:
    """Nothing is silently turned into null, into a string, or left out."""
    with pytest.raises(NotSerializable):
        encode_data(value)


def test_nesting_is_limited_exactly() -> None:
    """As deep as every receiver accepts, and no deeper; a cycle is just very deep."""
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    check_json(encode_data(deep))
    cycle: list[Any] = []
    cycle.append({"again": cycle})

    for value in ([deep], {"a": deep}, cycle):
        with pytest.raises(NotSerializable, match="nested deeper"):
            encode_data(value)


def test_a_large_number_of_digits_is_refused_not_crashed() -> None:
    """Python itself will not write such a number. The path leads to it."""
    with pytest.raises(NotSerializable, match=r"at \$\.a\[1\]: an integer with more digits than Python writes") as refused:
        encode_data({"a": [1, 10**5000]})
    assert refused.value.parts["path"] == "$.a[1]"


# -- the tables of docs/data.md -----------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "data.md").read_text()
CODE = r"`([^`]+)`"
PUBLISHED = re.findall(rf"^\| {CODE} \| {CODE} \|", PAGE.partition("| refused |")[0], re.MULTILINE)
REFUSED = re.findall(rf"^\| {CODE}[^|]*\| (.+) \|$", PAGE.partition("| refused |")[2], re.MULTILINE)


@dataclasses.dataclass
class Lines:
    number: int
    lines: list[str]


def names() -> dict[str, Any]:
    """The names in the expressions of the tables. numpy and pydantic are the real ones."""
    pydantic = import_module("pydantic")
    model = pydantic.create_model("Model", a=int)
    plain = {"UTC": datetime.UTC, "Order": Lines, "Point": collections.namedtuple("Point", "x y"), "Model": model}
    here = (datetime.datetime, datetime.date, datetime.timedelta, uuid.UUID, Decimal, Colour, PurePosixPath, Fraction)
    named = {each.__name__: each for each in (*here, IPv4Address)}
    return {**plain, **named, "MappingProxyType": MappingProxyType, "numpy": import_module("numpy"), "msgspec": msgspec}


def test_the_page_has_both_tables() -> None:
    assert (len(PUBLISHED), len(REFUSED)) == (15, 14)


@pytest.mark.parametrize(("expression", "text"), PUBLISHED)
def test_a_value_is_published_as_the_page_says(expression: str, text: str) -> None:
    assert encode_data(eval(expression, names())).decode() == text


@pytest.mark.parametrize(("expression", "instead"), REFUSED)
def test_a_value_is_refused_with_the_place_and_the_cure_that_the_page_says(expression: str, instead: str) -> None:
    """The error leads to the value, and its replacement can be published."""
    value = eval(expression, names())
    with pytest.raises(NotSerializable) as refused:
        encode_data({"orders": [{"total": value}]})
    error = refused.value
    assert error.path == "$.orders[0].total"
    assert error.to_wire()["path"] == error.path
    cure = re.sub("keys as |`|, or.*", "", instead)
    assert f"publish {cure}" in error.message
    if "key" not in cure:
        encode_data(eval(cure, {"value": value}))


def test_the_path_leads_into_objects_and_odd_names() -> None:
    """Fields of dataclasses and Structs, keys that no identifier has, and heirs of containers."""
    for data, path in (
        ({"order": Order(1, [0, math.nan])}, "$.order.price[1]"),
        ([Line(object())], "$[0].name"),  # type: ignore[arg-type]
        ({"a b": {"c": object()}}, "$['a b'].c"),
        (collections.OrderedDict(a=collections.Counter({1: 1})), "$.a"),
        (object(), "$"),
        ([1, [2, (3, {"x": Colour.NOTHING})]], "$[1][1][1].x"),
        ([Decimal("1e400"), Decimal("sNaN")], "$[1]"),
    ):
        with pytest.raises(NotSerializable) as refused:
            encode_data(data)
        assert refused.value.path == path


@pytest.mark.parametrize(
    ("members", "cure"),
    [
        ({"_asdict": None}, "value._asdict()"),
        ({"_meta": None}, "django.forms.models.model_to_dict(value)"),
        ({"__iter__": None, "values": None}, "list(value.values())"),
        ({"iterrows": None, "__iter__": None}, 'value.to_dict("records")'),
        ({"__str__": lambda self: ""}, "str(value)"),
        ({}, "a dict of what the receiver needs"),
    ],
)
def test_the_cure_is_what_a_type_can_do(members: dict[str, Any], cure: str) -> None:
    """Rows of SQLAlchemy, models and QuerySets of Django, DataFrames of pandas, and objects of an application."""
    methods = {name: value or (lambda self: iter(())) for name, value in members.items()}
    with pytest.raises(NotSerializable, match=re.escape(f"publish {cure}") + "$"):
        encode_data([type("Odd", (), methods)()])


@pytest.mark.parametrize(
    ("value", "cure"),
    [({"a": 1}, "dict(value)"), ("ana", "str(value)"), (7, "int(value)"), (Decimal(1), "str(value)"), (Line("a"), "a dict of")],
)
def test_a_proxy_is_named_with_the_cure_of_what_it_stands_for(value: object, cure: str) -> None:
    """Such as `session` of Flask, `current_user` of Flask-Login and `request.user` of Django."""
    reason = f"at $.by: a value of type werkzeug.local.LocalProxy; publish {cure}"
    with pytest.raises(NotSerializable, match=re.escape(reason)):
        encode_data({"by": LocalProxy(lambda: value)})


def test_a_missing_value_of_pandas_is_none() -> None:
    """The text of its NaT is no time."""
    with pytest.raises(NotSerializable, match=r"publish None$"):
        encode_data([type("NaTType", (datetime.datetime,), {})(1, 1, 1)])


def test_the_heirs_of_json_types_are_what_they_inherit_from() -> None:
    """Markup that Django calls safe is text; a float that is not finite is refused all the same."""
    text, number, real = type("Safe", (str,), {}), type("Count", (int,), {}), type("Real", (float,), {})
    assert encode_data({text("a"): [text("b"), number(2), real(1.5)]}) == b'{"a":["b",2,1.5]}'
    with pytest.raises(NotSerializable, match=r"at \$\[0\]: nan is not a JSON number"):
        encode_data([real("nan")])


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_word_that_is_a_number_elsewhere_is_named_in_text(word: str) -> None:
    """As Python's json.dumps writes it by default."""
    with pytest.raises(NotSerializable, match=f"{word.lstrip('-')} at byte .* is not a JSON number; write null or a string"):
        encode_data(msgspec.Raw(f'{{"a": {word}}}'.encode()))
