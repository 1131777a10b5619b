"""Functions that a configuration may name as `wants`."""

from headgate.consumers.base import Delivery


def even(user: str, event: Delivery, channel: str) -> bool:
    """Want the events with even data."""
    return bool(event.value() % 2 == 0)


def broken(user: str, event: Delivery, channel: str) -> bool:
    """Have a bug."""
    raise KeyError(user)
