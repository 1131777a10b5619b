"""The watch on rates: it tells the other processes what callers have spent here, and hears what they have spent there.

In: rates that are shared (runtime/shared_rates.py). Out: what is told (redis/rate_usage.py) soon after a caller has spent
something, as a part of the telling (node/cluster/telling.py, which has the rules).
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.redis.client import Client
from headgate.redis.keys import rate_usage_key
from headgate.redis.rate_usage import read_others, text_of
from headgate.runtime.shared_rates import SharedRates
from headgate.settings import Settings

from .telling import Telling


class RatesWatch:
    """See the module."""

    def __init__(self, telling: Telling) -> None:
        self._rates: dict[str, SharedRates] = {}
        self._hurry = telling.add(self)

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

    def key(self, process_id: str) -> str:
        """Return the key of a process's hash."""
        return rate_usage_key(process_id)

    def tell(self, *, anew: bool) -> dict[str, str | None]:
        """Return what has been spent since the last look, or all."""
        told: dict[str, str | None] = {}
        for label, rates in self._rates.items():
            for name, each in rates.told(anew=anew).items():
                told[f"{label}:{name}"] = None if each is None else text_of(each)
        return told

    def hear(self, client: Client, others: Sequence[str], *, lost: bool) -> None:
        """Take off what the others have let callers spend. Waits for Redis."""
        found = read_others(client, others)
        for label, rates in self._rates.items():
            start = f"{label}:"
            by_process = {
                process: {name.removeprefix(start): each for name, each in fields.items() if name.startswith(start)}
                for process, fields in found.items()
            }
            rates.heard(len(others) + 1, by_process, lost=lost)
