"""Encodes a Python value as the JSON text of an event, exactly or with an error.

In: data of an application. Out: compact, strict JSON. msgspec would write NaN as null and the key 1 as "1", so the page would get
other data than the application published. Such data is refused here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal

import msgspec

from headgate.errors import NotSerializable
from headgate.events.event import MAX_DEPTH, JsonText, check_json
from headgate.events.json_fault import find_fault


def _plain(value: object) -> object:
    """Return a value of a subclass of a JSON type as that type, such as text for Django's safe markup and a float for
    numpy.float64.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"a value of type {type(value).__qualname__}")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_LEAVES = frozenset((str, int, bool, type(None)))
_SEQUENCES = (list, tuple, set, frozenset)


def encode_data(data: object) -> bytes:
    """Return `data` as compact, strict JSON text; `msgspec.Raw` is checked and returned unchanged, `JsonText` returned.

    Raises NotSerializable: an unknown type, NaN or infinity, a key that is not a string, nesting deeper than MAX_DEPTH, a lone
    surrogate. `path` leads to it.
    """
    if type(data) is JsonText:
        return data
    if type(data) is msgspec.Raw:
        payload = bytes(data)
        check_json(payload)
        return payload
    try:
        _check_value(data, MAX_DEPTH)
        return _encode(data)
    except (NotSerializable, TypeError, ValueError, RecursionError, OverflowError) as error:
        fault = find_fault(data)
        if fault is not None:
            raise NotSerializable(fault.reason, fault.path) from error
        raise error if isinstance(error, NotSerializable) else NotSerializable(str(error)) from error


def _check_value(value: object, depth: int) -> None:
    """Check for values that msgspec would silently change. Depth counts lists and dicts, as in event.check_json."""
    kind = type(value)
    if kind in _LEAVES:
        return
    if type(value) is float:
        if not math.isfinite(value):
            raise NotSerializable(f"{value} is not a JSON number")
    elif isinstance(value, dict):
        _check_depth(depth)
        for key in value:
            if not isinstance(key, str):
                raise NotSerializable(f"a key is of type {type(key).__name__}, only strings are JSON")
        _check_items(value.values(), depth - 1)
    elif isinstance(value, _SEQUENCES):
        _check_depth(depth)
        _check_items(value, depth - 1)
    elif isinstance(value, Decimal):
        if not value.is_finite():
            raise NotSerializable(f"{value} is not a number in JSON")
    elif kind is msgspec.Raw:
        raise NotSerializable("msgspec.Raw inside other data; it may only be the whole")
    else:
        # Dataclasses, structs, dates and the like: check the result of msgspec, which raises TypeError for unknown types.
        plain = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=_plain)
        if type(plain) is not kind:
            _check_value(plain, depth)


def _check_items(items: Iterable[object], depth: int) -> None:
    """Check the items that need it. For most, their type is enough."""
    for item in items:
        kind = type(item)
        if kind in _LEAVES or (kind is float and math.isfinite(item)):  # type: ignore[arg-type]
            continue
        _check_value(item, depth)


def _check_depth(depth: int) -> None:
    if depth <= 0:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels")
