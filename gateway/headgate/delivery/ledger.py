"""The ledger of one namespace sums up the fate of events over all clients, present and past. No I/O.

In: the counters of clients (client.py) and router. Out: a `DeliveryCounts`. The sum closes whenever nothing is under way:

    routed + from_log = sent + discarded + conflated + left_to_log + gone + waiting
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from .client import Client
from .fanout import Router
from .log_readers import LogReaders
from .state import Phase

# Clients after which the loop may run. They take less than a millisecond.
_STRIDE = 1024
_CAUGHT_UP = (Phase.ARRIVING, Phase.LIVE, Phase.LEFT)


@dataclass(slots=True)
class DeliveryCounts:
    """Counts of one event for one client, then present figures."""

    routed: int = 0  # handed to a client by the router
    from_log: int = 0  # read from the log by a client
    sent: int = 0  # written to a socket, or handed to a poll
    discarded: int = 0  # left out by a full queue, and reported
    conflated: int = 0  # replaced by a newer one of the same topic
    left_to_log: int = 0  # skipped live, or returned; they come again in `from_log`, or as a gap
    gone: int = 0  # came after the connection broke, or waited when the client left
    waiting: int = 0  # in a queue
    catching_up: int = 0  # clients that read the log
    queued: int = 0  # frames in queues, notices included
    queued_bytes: int = 0
    fullest: float = 0.0  # how full the fullest queue is, 0 to 1
    oldest_ms: int | None = None  # time of the oldest waiting event

    @property
    def open(self) -> int:
        """How many events are under way."""
        ended = self.sent + self.discarded + self.conflated + self.left_to_log + self.gone
        return self.routed + self.from_log - ended - self.waiting


class Ledger:
    """See the module. `clients` has the present clients."""

    def __init__(self, clients: Mapping[str, Client], router: Router, readers: LogReaders) -> None:
        self._clients, self._router, self._readers = clients, router, readers
        self._departed = DeliveryCounts()

    def depart(self, client: Client) -> None:
        """Count a client that has left for good and is no longer in `clients`. Its waiting events are gone."""
        _add(self._departed, client)
        self._departed.gone += self._departed.waiting
        self._departed.waiting = 0

    def walk(self) -> Generator[None, None, DeliveryCounts]:
        """Add everything up; yields where the loop may run. Counts never decrease from one walk to the next.

        A client that leaves during the walk still counts as present.
        """
        balance = replace(self._departed)
        for count, client in enumerate(tuple(self._clients.values()), 1):
            _add(balance, client)
            _add_present(balance, client)
            if not count % _STRIDE:
                yield
        balance.routed = self._router.routed
        balance.gone += self._readers.late
        return balance


def _add(balance: DeliveryCounts, client: Client) -> None:
    balance.from_log += client.from_log
    balance.sent += client.direct + client.sent
    balance.discarded += client.discarded
    balance.conflated += client.conflated
    balance.left_to_log += client.left_to_log
    balance.gone += client.gone
    balance.waiting += client.offered - client.sent - client.discarded - client.conflated


def _add_present(balance: DeliveryCounts, client: Client) -> None:
    balance.catching_up += client.state.phase not in _CAUGHT_UP
    queue = client.connection.queue
    if not queue.frames:
        return
    balance.queued += queue.frames
    balance.queued_bytes += queue.bytes
    balance.fullest = max(balance.fullest, queue.level)
    oldest_ms = queue.oldest_ms
    if oldest_ms is not None and (balance.oldest_ms is None or oldest_ms < balance.oldest_ms):
        balance.oldest_ms = oldest_ms
