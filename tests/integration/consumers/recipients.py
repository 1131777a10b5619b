"""Functions that a configuration may name, as `to_function` or `wants`."""

from typing import Any

from headgate.consumers.base import Delivery


def listed(delivery: Delivery) -> Any:
    """Return the addresses that the event is a list of."""
    return delivery.value()


def even(user: str, event: Delivery, channel: str) -> bool:
    """Want the events with even data."""
    return bool(event.value() % 2 == 0)


def broken(user: str, event: Delivery, channel: str) -> bool:
    """Have a bug."""
    raise KeyError(user)
