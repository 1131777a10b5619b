"""Figures for the fault tests, from the records of clients."""

from bisect import bisect_left
from itertools import islice

from tests.fault.checker import Noted, Record
from tests.fault.many_clients import Swarm


def first_noted(record: Record, what: str, after_s: float) -> float | None:
    """Return when a client first noted something after a time, or None."""
    entries = record.entries
    later = islice(entries, bisect_left(entries, after_s, key=lambda entry: entry.at_s), None)
    return next((entry.at_s for entry in later if isinstance(entry, Noted) and entry.what == what), None)


def since(record: Record, what: str, after_s: float) -> float:
    """Return how long after a time a client first noted something.

    Raises:
        AssertionError: it never did.
    """
    at_s = first_noted(record, what, after_s)
    assert at_s is not None, f"{record.name} never noted {what}"
    return at_s - after_s


def told_by_all(swarm: Swarm, what: str, after_s: float) -> bool:
    """Whether every client has noted something after a time."""
    return all(first_noted(record, what, after_s) is not None for record in swarm.records)


def disconnects(swarm: Swarm) -> list[str]:
    """Return the names of the clients that lost a connection."""
    return [record.name for record in swarm.records if any(isinstance(e, Noted) and e.what == "closed" for e in record.entries)]
