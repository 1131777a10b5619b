"""Checks numbers in a range (no bool, text or NaN), flags and lists from a request or an application. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard, TypeVar

from headgate.errors import InvalidRequest

T = TypeVar("T")


def check_items(value: Iterable[T], name: str, what: str) -> Iterable[T]:
    """Return several values. Refuses text and mappings, because iterating would yield characters or keys.

    Raises InvalidRequest with the name and the expected values.
    """
    if isinstance(value, list):  # the usual case, because the abstract types below take 2 µs
        return value
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InvalidRequest(f"{name}: expected a list of {what}, got {type(value).__name__}")
    return value


def check_flag(value: object, name: str) -> bool:
    """Return True or False. Refuses anything else, because the text "false" would count as True.

    Raises InvalidRequest with the name.
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

    Raises InvalidRequest with the name, the range and the unit.
    """
    if not is_whole(value, low, high):
        raise InvalidRequest(f"{name}: expected a whole number{unit and f' of {unit}'} from {low} to {high}")
    return value


def check_seconds(value: object, name: str, high_s: float, low_s: float = 0.0) -> float:
    """Return a number of seconds from `low_s` to `high_s`.

    Raises InvalidRequest with the name, the value and the range.
    """
    if not is_number(value, low_s, high_s):
        raise InvalidRequest(f"{name}={repr(value)[:80]}: expected {low_s:g} to {high_s:g} seconds")
    return float(value)
