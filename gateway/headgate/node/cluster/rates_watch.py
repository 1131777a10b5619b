"""The watch on rates: it tells the other processes what callers have spent here, and hears what they have spent there.

In: rates that are shared (runtime/shared_rates.py). Out: what is told soon after a caller has spent something, as a use of the
shared table (redis/shared_table.py, which has the rules): fields `<rate>:<caller>` with `<spent> <missing>`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.redis.shared_table import Fields, SharedTable
from headgate.runtime.shared_rates import SharedRates, Spending
from headgate.settings import Settings


class RatesWatch:
    """See the module."""

    kind = "rates"

    def __init__(self, table: SharedTable) -> None:
        self._rates: dict[str, SharedRates] = {}
        self._hurry = table.add(self)

    def apply(self, settings: Settings) -> None:
        """Let all rates go on as the settings say."""
        for label, rates in self._rates.items():
            if label == "publish":
                rates.use(settings.publish_per_s, settings.publish_burst)
            elif label.partition(":")[0] in ("read", "replay"):
                rates.use(settings.read_per_s, settings.read_burst)

    def share(self, rates: SharedRates) -> None:
        """Let a rate hold over all processes. Each has a label of its own."""
        self._rates[rates.label] = rates
        rates.wanted = self._hurry

    def fields(self, *, anew: bool) -> dict[str, str | None]:
        """Return what has been spent since the last turn, or all."""
        told: dict[str, str | None] = {}
        for label, rates in self._rates.items():
            for name, each in rates.told(anew=anew).items():
                told[f"{label}:{name}"] = None if each is None else f"{each.spent} {each.missing}"
        return told

    def asked(self) -> None:
        """Ask for everything."""

    def hear(self, others: Mapping[str, Fields], *, lost: bool) -> None:
        """Take off what the others have let callers spend."""
        for label, rates in self._rates.items():
            by_process = {process: _spendings(f"{label}:", fields) for process, fields in others.items()}
            rates.heard(len(others) + 1, by_process, lost=lost)


def _spendings(start: str, fields: Fields) -> dict[str, Spending]:
    found: dict[str, Spending] = {}
    for name, value in fields.items():
        if name.startswith(start) and value is not None and len(value) <= 40:
            spent, _, missing = value.partition(b" ")
            if spent.isdigit() and missing.isdigit():
                found[name.removeprefix(start)] = Spending(int(spent), int(missing))
    return found
