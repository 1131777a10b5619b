"""From a value to JSON: as it is, or an error."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import re
import uuid
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import NotSerializable
from headgate.event import MAX_DEPTH, check_json
from headgate.json_data import encode_data


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
        (datetime.datetime(2026, 11, 21, 6, 30, tzinfo=datetime.UTC), b'"2026-11-21T06:30:00Z"'),
        (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.50"), b'"1.50"'),
        (Order(1, 2.5), b'{"number":1,"price":2.5}'),
        ([Line("a")], b'[{"name":"a"}]'),
        (Colour.RED, b'"red"'),
        ((1, "é"), '[1,"é"]'.encode()),
        (b"\0", b'"AA=="'),
        (msgspec.Raw(b' {"a" : 1} '), b' {"a" : 1} '),
    ],
)
def test_a_value_that_msgspec_knows_is_encoded(value: Any, text: bytes) -> None:
    """Dates, UUIDs, Decimals, dataclasses, structs, enums and bytes as msgspec writes them; Raw as it is."""
    assert encode_data(value) == text


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        [{"a": [math.nan]}],
        (math.inf,),
        Order(1, math.nan),
        {"order": Order(1, {"x": math.inf})},
        Colour.NOTHING,
        Decimal("NaN"),
        Order(1, Decimal("Infinity")),
        {1: "a"},
        {"a": {True: 1}},
        {None: 1},
        {1.5: 1},
        Order(1, {2: 3}),
        {datetime.date(2026, 1, 1): 1},
        object(),
        [object()],
        "\ud800",
        {"\udfff": 1},
        1j,
        print,
        msgspec.Raw(b"nope"),
        msgspec.Raw(b'"\xff"'),
        [msgspec.Raw(b"1")],
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),
)
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
    """Python itself will not write such a number."""
    with pytest.raises(NotSerializable):
        encode_data(10**5000)
