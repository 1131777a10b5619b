"""The watch on rates: it tells the other processes what callers have spent here, and hears what they have spent there.

In: rates that are shared (runtime/shared_rates.py). Out: a look at Redis (redis/spendings.py) soon after a caller has spent
something, in the rounds of a telling (node/telling.py, which has the rules).
"""

from __future__ import annotations

from headgate.redis.client import Client
from headgate.redis.spendings import leave, look
from headgate.runtime.shared_rates import SharedRates, Spending
from headgate.settings import Settings

from .telling import Telling


class RatesWatch:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self._rates: dict[str, SharedRates] = {}
        self._telling = Telling(client, "rates", self.look, leave)

    def use(self, settings: Settings) -> None:
        """Let all rates go on as the settings say."""
        for label, rates in self._rates.items():
            if label == "publish":
                rates.use(settings.publish_per_s, settings.publish_burst)
            elif label.partition(":")[0] in ("read", "replay"):
                rates.use(settings.read_per_s, settings.read_burst)

    def share(self, rates: SharedRates) -> None:
        """Let a rate hold over all processes. Each has a label of its own."""
        self._rates[rates.label] = rates
        rates.wanted = self._telling.hurry

    def start(self) -> None:
        """Begin. Idempotent."""
        self._telling.start()

    def close(self) -> None:
        """Take this process out. Idempotent. Waits for Redis."""
        self._telling.close()

    def look(self) -> None:
        """Look once; a fault is logged once. Waits for Redis."""
        told: dict[str, Spending | None] = {}
        for label, rates in self._rates.items():
            told |= {f"{label}:{name}": each for name, each in rates.told(anew=self._telling.anew).items()}
        heard = self._telling.ask(lambda client, process_id, anew: look(client, process_id, told, anew=anew))
        if heard is None:
            return
        for label, rates in self._rates.items():
            start = f"{label}:"
            others = {
                process: {name.removeprefix(start): each for name, each in fields.items() if name.startswith(start)}
                for process, fields in heard.found.others.items()
            }
            rates.heard(heard.found.processes, others, lost=heard.lost)
