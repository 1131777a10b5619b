"""Checks of the numbers that a request or an application passes: no bool, no text, no NaN, and within a range. No I/O."""

from __future__ import annotations

from typing import TypeGuard

from headgate.errors import InvalidRequest


def is_whole(value: object, low: int, high: int) -> TypeGuard[int]:
    """Return whether it is a whole number from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object, low: float, high: float) -> TypeGuard[float]:
    """Return whether it is a number from `low` to `high`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def check_whole(value: object, name: str, low: int, high: int, unit: str = "") -> int:
    """Return a whole number from `low` to `high`.

    Raises:
        InvalidRequest: it is none; the message has the name, the range and the unit.
    """
    if not is_whole(value, low, high):
        raise InvalidRequest(f"{name}: expected a whole number{unit and f' of {unit}'} from {low} to {high}")
    return value


def check_seconds(value: object, name: str, high_s: float, low_s: float = 0.0) -> float:
    """Return a number of seconds from `low_s` to `high_s`.

    Raises:
        InvalidRequest: it is none; the message has the name, the value and the range.
    """
    if not is_number(value, low_s, high_s):
        raise InvalidRequest(f"{name}={repr(value)[:80]}: expected {low_s:g} to {high_s:g} seconds")
    return float(value)
