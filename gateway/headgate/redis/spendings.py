"""Spendings in Redis: what each process of a database has let callers spend of their rates, under a lease.

In: a process's own spendings (node/rates_watch.py). Out: how many processes live, and what the others have told.

In Redis (leased.py): the processes in SPENDERS, and the hash `spendings_key(id)` of each: `<rate>:<caller>` → `<spent> <missing>`
(runtime/shared_rates.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headgate.runtime.shared_rates import Spending

from .client import Client, call_all
from .keys import SPENDERS, spendings_key
from .leased import LEASE_S, Leased

__all__ = ["LEASE_S", "Look", "leave", "look"]

_SPENDINGS = Leased(SPENDERS, spendings_key)


class Look(NamedTuple):
    """How many processes live, this one among them; what the others have told; whether Redis still had this one's lease."""

    processes: int
    others: dict[str, dict[str, Spending]]
    known: bool


def look(client: Client, process_id: str, told: Mapping[str, Spending | None], *, anew: bool = False) -> Look:
    """Tell spendings (None: none any more), renew the lease, and read those of the others. Three round trips, two when alone.

    `anew`: these are all that there are, in place of what Redis has.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`; it may be told in part. Tell all anew.
    """
    fields = {name: None if each is None else f"{each.spent} {each.missing}" for name, each in told.items()}
    elsewhere, known = _SPENDINGS.tell(client, process_id, fields, anew=anew)
    found = call_all(client, [("HGETALL", spendings_key(each)) for each in elsewhere]) if elsewhere else []
    others = {each: _read(said.items()) for each, said in zip(elsewhere, found, strict=True)}
    return Look(len(elsewhere) + 1, others, known)


leave = _SPENDINGS.leave


def _read(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, Spending]:
    found: dict[str, Spending] = {}
    for name, value in fields:
        spent, _, missing = value.partition(b" ")
        if spent.isdigit() and missing.isdigit() and len(value) <= 40:
            found[name.decode("utf-8", "replace")] = Spending(int(spent), int(missing))
    return found
