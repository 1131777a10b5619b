"""Publishes how much callers have spent here, and receives how much they have spent at the other processes.

In: shared rates (runtime/shared_rates.py). Out: the spending, soon after, through the shared table (redis/shared_table.py,
which has the rules), as fields `<rate>:<caller>` with `<spent> <missing>`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.redis.shared_table import Fields, SharedTable
from headgate.runtime.shared_rates import SharedRates, Spending
from headgate.settings.settings import Settings


class RatesWatch:
    """See the module."""

    kind = "rates"

    def __init__(self, table: SharedTable) -> None:
        self._rates: dict[str, SharedRates] = {}
        self._hurry = table.add(self)

    def apply(self, settings: Settings) -> None:
        """Apply the settings to all rates."""
        for label, rates in self._rates.items():
            if label == "publish":
                rates.apply(settings.publish_per_s, settings.publish_burst)
            elif label.partition(":")[0] in ("read", "replay"):
                rates.apply(settings.read_per_s, settings.read_burst)

    def share(self, rates: SharedRates) -> None:
        """Share a rate with all processes. Each has its own label."""
        self._rates[rates.label] = rates
        rates.wanted = self._hurry

    def fields(self, *, whole_row: bool) -> dict[str, str | None]:
        """Return the amounts spent since the last turn, or all."""
        fields: dict[str, str | None] = {}
        for label, rates in self._rates.items():
            for name, each in rates.changes(whole_row=whole_row).items():
                fields[f"{label}:{name}"] = None if each is None else "{} {}".format(*each)
        return fields

    def wanted_fields(self) -> None:
        """Ask for everything."""

    def receive(self, others: Mapping[str, Fields], *, lost: bool) -> None:
        """Subtract the amounts that the other processes let callers spend."""
        for label, rates in self._rates.items():
            by_process = {process: _rate_usage(f"{label}:", fields) for process, fields in others.items()}
            rates.received(len(others) + 1, by_process, lost=lost)


def _rate_usage(start: str, fields: Fields) -> dict[str, Spending]:
    spent_by: dict[str, Spending] = {}
    for name, value in fields.items():
        if name.startswith(start) and value is not None and len(value) <= 40:
            spent, _, missing = value.partition(b" ")
            if spent.isdigit() and missing.isdigit():
                spent_by[name.removeprefix(start)] = int(spent), int(missing)
    return spent_by
