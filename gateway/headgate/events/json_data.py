"""Encodes a Python value as the JSON text of an event, exactly or with an error.

In: data of an application. Out: compact, strict JSON. msgspec would write NaN as null and the key 1 as "1", so the page would
get different data. This module refuses such data.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from headgate.errors import NotSerializable
from headgate.events.event import MAX_DEPTH, JsonText, check_json


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
    """Return `data` as compact, strict JSON text. Returns `msgspec.Raw` unchanged after a check, and `JsonText` without one.

    Raises NotSerializable for an unknown type, NaN or infinity, a key that is not a string, nesting deeper than MAX_DEPTH, or a
    lone surrogate. `path` leads to it.
    """
    if type(data) is JsonText:
        return data
    if type(data) is msgspec.Raw:
        payload = bytes(data)
        check_json(payload)
        return payload
    try:
        if _is_exact(data, MAX_DEPTH):
            return _encode(data)
        raise ValueError("JSON would change it")
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NotSerializable(*next(_faults(data, (), MAX_DEPTH), (str(error), None))) from error


def _is_exact(value: object, depth: int) -> bool:
    """Return whether msgspec writes a value without a silent change. Depth counts lists and dicts, as in event.check_json."""
    kind = type(value)
    if kind in _LEAVES:
        return True
    if type(value) is float:
        return math.isfinite(value)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return False
        return depth > 0 and _are_exact(value.values(), depth - 1)
    if isinstance(value, _SEQUENCES):
        return depth > 0 and _are_exact(value, depth - 1)
    if isinstance(value, Decimal):
        return value.is_finite()
    if kind is msgspec.Raw:
        return False
    # Dataclasses, structs, dates and the like: check the result of msgspec, which raises TypeError for unknown types.
    plain = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=_plain)
    return type(plain) is kind or _is_exact(plain, depth)


def _are_exact(items: Iterable[object], depth: int) -> bool:
    for item in items:
        kind = type(item)  # for most items, it is enough
        if not (kind in _LEAVES or (kind is float and math.isfinite(item)) or _is_exact(item, depth)):  # type: ignore[arg-type]
            return False
    return True


# Without the hook: the types that need no substitute.
_encode_known = msgspec.json.Encoder().encode


def _faults(value: Any, path: tuple[str | int, ...], depth: int) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield the faults of a value with their paths, in the order of the data. Called only for an invalid value."""
    if value.__class__ is not type(value):  # a proxy, such as `session` of Flask or `request.user` of Django
        yield f"a value of type {_name(type(value))}; publish {_cure(value)}", path
    elif isinstance(value, str):
        if not is_unicode(value):
            yield 'a string with a lone surrogate; publish value.encode("utf-8", "replace").decode()', path
    elif isinstance(value, float | Decimal):
        if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
            yield f"{value} is not a JSON number; publish None or a string", path
    elif isinstance(value, Enum):
        yield from _faults(value.value, path, depth)
    elif isinstance(value, msgspec.Raw):
        yield "msgspec.Raw inside other data; publish msgspec.json.decode(value)", path
    elif (parts := _parts(value)) is not None:
        if depth == 0:
            yield f"nested deeper than {MAX_DEPTH} levels", ()
            return
        for step, part in parts:
            if isinstance(step, str) and not is_unicode(step):
                yield "a key with a lone surrogate", path
            elif not isinstance(step, str) and isinstance(value, dict):
                cure = "key.decode()" if isinstance(step, bytes) else "key.value" if isinstance(step, Enum) else "str(key)"
                yield f"a key is of type {_name(type(step))}, and only strings are keys; publish {cure}", path
            else:
                yield from _faults(part, (*path, step), depth - 1)
    elif not _is_encoded(value):
        if isinstance(value, int):
            yield "an integer with more digits than Python writes; publish hex(value)", path
        else:
            yield f"a value of type {_name(type(value))}; publish {_cure(value)}", path


def _parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the parts of a container as the encoder sees it, each with its step; None for other values."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    kind = type(value)
    names: Iterable[str]
    if isinstance(value, msgspec.Struct):
        names = kind.__struct_fields__
    elif hasattr(kind, "__dataclass_fields__"):
        names = kind.__dataclass_fields__
    elif hasattr(kind, "__attrs_attrs__"):
        names = [each.name for each in kind.__attrs_attrs__]
    else:
        return None
    fields = [(name, getattr(value, name, msgspec.UNSET)) for name in names]
    return [each for each in fields if each[1] is not msgspec.UNSET]


def _cure(value: Any) -> str:
    """Return an expression that converts the value to JSON. Looks only at methods, because its library may not be imported."""
    kind = value.__class__
    for plain in (str, bool, int, float, dict, list):
        if issubclass(kind, plain):  # of a proxy
            return f"{plain.__name__}(value)"
    if kind.__name__ in ("NaTType", "NAType"):  # pandas
        return "None"
    if hasattr(kind, "model_dump"):  # pydantic
        return 'value.model_dump(mode="json")'
    if hasattr(kind, "tolist"):  # numpy, pandas, array
        return "value.tolist()"
    if isinstance(value, datetime.date | datetime.time):  # a subclass, such as pandas.Timestamp
        return "value.isoformat()"
    if isinstance(value, datetime.timedelta):
        return "value.total_seconds()"
    if hasattr(kind, "_asdict"):  # a row of SQLAlchemy
        return "value._asdict()"
    if hasattr(kind, "_meta"):  # Django
        return "django.forms.models.model_to_dict(value)"
    if issubclass(kind, Mapping):
        return "dict(value)"
    if hasattr(kind, "iterrows"):  # pandas.DataFrame
        return 'value.to_dict("records")'
    if issubclass(kind, Iterable) and not hasattr(kind, "encode"):  # not UserString or a Django translation
        return "list(value.values())" if hasattr(kind, "values") else "list(value)"
    if any("__str__" in vars(each) for each in kind.__mro__[:-1]):
        return "str(value)"
    return "a dict of what the receiver needs"


def is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8, without half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_encoded(value: Any) -> bool:
    try:
        _encode_known(value)
    except (TypeError, ValueError, OverflowError):
        return isinstance(value, int) and type(value) is not int and _is_encoded(int(value))  # the hook writes it as an int
    return True


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
