# Written by `headgate types --python` from the schemas of topics. Do not edit.
# JSON Schema counts 27.0 as an integer: decode with msgspec.json.decode(…, strict=False), which does too.
from __future__ import annotations

import typing

import msgspec


class Address(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A place on a street."""

    # minLength: 1
    street: str
    # pattern: ^[0-9]{5}$
    zip: str | msgspec.UnsetType = msgspec.UNSET


class Odd(msgspec.Struct, kw_only=True, rename={"class_": "class", "msgspec_": "msgspec", "init__": "__init__", "a_b": "a b"}):
    """also checked: if"""

    class_: bool | msgspec.UnsetType = msgspec.UNSET
    msgspec_: typing.Literal[1] | msgspec.UnsetType = msgspec.UNSET
    init__: typing.Literal["x"] | msgspec.UnsetType = msgspec.UNSET
    # minItems: 1
    a_b: list[float | str | None] | msgspec.UnsetType = msgspec.UNSET
    # minItems: 2
    pair: tuple[float, str] | msgspec.UnsetType = msgspec.UNSET
    counts: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    either: typing.Any | msgspec.UnsetType = msgspec.UNSET
    more: dict[str, typing.Any] | msgspec.UnsetType = msgspec.UNSET
    anything: typing.Any | msgspec.UnsetType = msgspec.UNSET
    needed: typing.Any


class OddEitherOption1(msgspec.Struct, kw_only=True):
    """OddEitherOption1."""

    x: float


class OddEitherOption2(msgspec.Struct, kw_only=True):
    """OddEitherOption2."""

    y: float


class Paid(msgspec.Struct, kw_only=True):
    """Paid."""

    amount: int
    by: PaidByCard | PaidByCash


class PaidByCard(msgspec.Struct, kw_only=True, tag_field="kind", tag="card"):
    """Card"""

    last4: str


class PaidByCash(msgspec.Struct, kw_only=True, tag_field="kind", tag="cash"):
    """Cash"""


class Shipped(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"weight_kg": "weight-kg", "from_": "from"}):
    """An order has left the house."""

    carrier: typing.Literal["UPS", "DHL"] | None
    to: Address
    # minItems: 1
    lines: list[ShippedLinesItem]
    # With the box. */ No comment ends here.
    # exclusiveMinimum: 0
    weight_kg: float | msgspec.UnsetType = msgspec.UNSET
    from_: str | msgspec.UnsetType | None = msgspec.UNSET
    # format: uri
    # @deprecated
    tracking: str | msgspec.UnsetType = msgspec.UNSET


class ShippedLinesItem(msgspec.Struct, kw_only=True):
    """ShippedLinesItem."""

    sku: str
    count: int


Tree = list[typing.Any]

TOPICS: dict[str, typing.Any] = {
    "odd": Odd,
    "orders.*.paid": Paid,
    "orders.*.shipped": Shipped,
    "refunds.#": Paid,
    "tree.#": Tree,
}
