"""Numbers from an application: an invalid one is refused with one clear error, before anything is sent."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headgate.errors import HeadgateError, InvalidRequest, SettingsError
from headgate.events.numbers import check_seconds, check_whole, is_number, is_whole
from headgate.services.clients import Clients
from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from headgate.services.subscriber import Subscriber

NO_SERVER = "redis://127.0.0.1:1"
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


@pytest.mark.parametrize("value", [value for value in NO_NUMBERS if value is not None])
def test_a_publisher_refuses_them(value: Any) -> None:
    for option in ("timeout_s", "max_payload_bytes"):
        with pytest.raises(SettingsError, match=f"{option}=.*: expected"):
            Publisher(NO_SERVER, **{option: value})


@pytest.mark.parametrize("value", [value for value in NO_NUMBERS if value is not None])
def test_what_asks_refuses_them(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"within_s=.*: expected"):
        Clients(NO_SERVER, within_s=value)
    for option in ("wait_s", "patience_s"):
        with pytest.raises(InvalidRequest, match=f"{option}=.*: expected"):
            Subscriber(NO_SERVER, "a.#", **{option: value})
    with Publisher(NO_SERVER) as publisher:
        calls: list[Any] = [
            lambda: Inbox(publisher).page("kim", limit=value),
            lambda: publisher.presence_page("room", limit=value),
            lambda: publisher.publish("a", {}, "an-id", id_for_s=value),
            lambda: publisher.publish("a", {}, durable=value),
            lambda: publisher.revoke(user="kim", for_s=value),
        ]
        for call in calls:
            with pytest.raises(HeadgateError, match="expected"):
                call()
