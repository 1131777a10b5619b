"""Rate usage in Redis: what each process of a database has let callers spend of their rates, under a lease.

In: a process's own spendings (node/cluster/rates_watch.py). Out: what the others have told. In Redis (leased.py): the hash
`rate_usage_key(id)` of each process: `<rate>:<caller>` → `<spent> <missing>` (runtime/shared_rates.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.runtime.shared_rates import Spending

from .client import Client, call_all
from .keys import rate_usage_key


def text_of(spending: Spending) -> str:
    """Return a spending as it is in Redis."""
    return f"{spending.spent} {spending.missing}"


def read_others(client: Client, processes: Sequence[str]) -> dict[str, dict[str, Spending]]:
    """Return what these processes have told. One round trip if there are any.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    found = call_all(client, [("HGETALL", rate_usage_key(each)) for each in processes]) if processes else []
    return {each: _read(said.items()) for each, said in zip(processes, found, strict=True)}


def _read(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, Spending]:
    found: dict[str, Spending] = {}
    for name, value in fields:
        spent, _, missing = value.partition(b" ")
        if spent.isdigit() and missing.isdigit() and len(value) <= 40:
            found[name.decode("utf-8", "replace")] = Spending(int(spent), int(missing))
    return found
