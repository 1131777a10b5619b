"""Checks of values that a request or an application passes: numbers in a range (no bool, text or NaN), flags, and lists.

No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard, TypeVar

from headgate.errors import InvalidRequest

T = TypeVar("T")


def check_items(value: Iterable[T], name: str, what: str) -> Iterable[T]:
    """Return several values. Text and mappings are none, as their characters or keys would pass for the values.

    Raises InvalidRequest: it is none; the message has the name, and what is expected in the list.
    """
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InvalidRequest(f"{name}: expected a list of {what}, got {type(value).__name__}")
    return value


def check_flag(value: object, name: str) -> bool:
    """Return True or False. Anything else is none, as the text "false" would pass for True.

    Raises InvalidRequest: it is none; the message has the name.
    """
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name}: expected True or False, got {type(value).__name__}")
    return value


def is_whole(value: object, low: int, high: int) -> TypeGuard[int]:
    """Return whether it is a whole number from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object, low: float, high: float) -> TypeGuard[float]:
    """Return whether it is a number from `low` to `high`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def check_whole(value: object, name: str, low: int, high: int, unit: str = "") -> int:
    """Return a whole number from `low` to `high`.

    Raises InvalidRequest: it is none; the message has the name, the range and the unit.
    """
    if not is_whole(value, low, high):
        raise InvalidRequest(f"{name}: expected a whole number{unit and f' of {unit}'} from {low} to {high}")
    return value


def check_seconds(value: object, name: str, high_s: float, low_s: float = 0.0) -> float:
    """Return a number of seconds from `low_s` to `high_s`.

    Raises InvalidRequest: it is none; the message has the name, the value and the range.
    """
    if not is_number(value, low_s, high_s):
        raise InvalidRequest(f"{name}={repr(value)[:80]}: expected {low_s:g} to {high_s:g} seconds")
    return float(value)
