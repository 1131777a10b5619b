"""Numbers from an application: an invalid one is refused with one clear error, before anything is sent."""

import math
from typing import Any

import pytest

from headgate.errors import InvalidRequest
from headgate.events.numbers import check_seconds, check_whole, is_number, is_whole
from headgate.services.subscriber import Subscriber

NO_NUMBERS = ["1", b"1", True, None, math.nan, [1], 1j]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_no_number_is_in_a_range(value: Any) -> None:
    assert not is_whole(value, -5, 5)
    assert not is_number(value, -5, 5)
    with pytest.raises(InvalidRequest, match="limit: expected a whole number of items from 1 to 5"):
        check_whole(value, "limit", 1, 5, "items")
    with pytest.raises(InvalidRequest, match=r"wait_s=.*: expected 0 to 5 seconds"):
        check_seconds(value, "wait_s", 5)


def test_the_ends_of_a_range_belong_to_it() -> None:
    assert [value for value in range(-1, 5) if is_whole(value, 0, 3)] == [0, 1, 2, 3]
    assert [value for value in (-0.1, 0.0, 3.0, 3.1, math.inf) if is_number(value, 0, 3)] == [0.0, 3.0]
    assert not is_whole(1.0, 0, 3)
    assert check_seconds(2, "wait_s", 2) == 2.0


@pytest.mark.parametrize("option", ["wait_s", "patience_s"])
@pytest.mark.parametrize("value", [value for value in NO_NUMBERS if value is not None])
def test_a_subscriber_refuses_them(option: str, value: Any) -> None:
    """Calls of the other services: tests/unit/services/test_arguments.py."""
    with pytest.raises(InvalidRequest, match=f"{option}=.*: expected"):
        Subscriber("redis://127.0.0.1:1", "a.#", **{option: value})
