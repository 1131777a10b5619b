"""The watch on process statistics. While a console watches, this process shares its statistics each second, and puts those of all
processes combined for the console pages connected here.

In: requests of those pages (`answer`) and notices of processes with such pages (`on_notice`), each of which keeps the watch going
for WATCHED_S. Out: these notices; this process's statistics, through the shared table; a frame (process_stats.py).

Rules. 1. Without a console nothing is done, and the event path never does more. Counters are read, and clients are walked as for
/metrics. 2. That walk takes WALK_SHARE of the time at most, so with very many clients its numbers are some seconds old. 3. Only
an identity with the mark `admin` is answered. All others are refused, whatever their grants.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import msgspec
import structlog

from headgate.auth.identity import Identity
from headgate.errors import Forbidden, HeadgateError
from headgate.installation import __version__
from headgate.node.health import State
from headgate.node.namespace import Namespace
from headgate.redis.loads import process_name
from headgate.redis.shared_table import NOTHING, Fields, SharedTable
from headgate.runtime import metrics
from headgate.runtime.loop import Signal
from headgate.runtime.periodic import PeriodicTask

from .process_stats import STATED, CombinedStats, NamespaceStats, ProcessStats

log = structlog.get_logger("headgate.vitals")

# The notice of a watching console, and its use of the shared table, which has one field.
KIND, _REPORT = "vitals", "report"
# Between two turns while a console watches, and otherwise; a page or a notice comes sooner.
EVERY_S, REST_S = 1.0, 3600.0
WATCHED_S = 5
# Share of the processor for walking the clients.
WALK_SHARE = 0.02
# How long a page waits for the first frame.
FIRST_FRAME_S = 3.0


_BALANCED = ("routed", "from_log", "sent", "discarded", "conflated", "gone", "catching_up", "waiting", "queued_bytes", "fullest")
_COUNTERS: dict[str, metrics.Totalled] = {
    "received": metrics.EVENTS, "repaired": metrics.REPAIRED, "joins": metrics.JOINS, "refused": metrics.REFUSED,
}  # fmt: skip


class ProcessStatsWatch:
    """See the module.

    Args:
        state: returns the state of the process. It must not wait.
        announce: sends the notice to all processes. Waits for Redis.
        now_s: monotonic; cpu_s: processor time of this process.
    """

    kind = KIND

    def __init__(
        self,
        table: SharedTable,
        namespaces: Mapping[str, Namespace],
        state: Callable[[], State],
        announce: Callable[[], object],
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._table, self._namespaces, self._state, self._announce = table, namespaces, state, announce
        self._now_s, self._cpu_s = now_s, cpu_s
        self._began_ms = round(time.time() * 1000)
        self._balances: dict[str, Any] = {}
        self._walk_at_s = -inf
        self._asked_s = self._received_s = -inf  # time of the last page here, and of the last notice
        self._own: ProcessStats | None = None
        self._is_new = self._has_written = False
        self._combined = CombinedStats()
        self._frame: dict[str, Any] | None = None
        self._framed = Signal()
        self._hurry = table.add(self)
        self._task = PeriodicTask(self.turn, lambda: log.exception("vitals failed"), EVERY_S)
        self.start, self.close = self._task.start, self._task.close

    def answer(self, identity: Identity, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the newest frame to a page of the console; wait for the first one.

        Raises Forbidden: it is not from the console.
        """
        if identity.admin is None:
            raise Forbidden("see", "vitals")
        was_watched, self._asked_s = self._watching, self._now_s()
        if not was_watched:
            self._frame = None
            self._framed.clear()
            self._task.hurry()
        if self._frame is None:
            self._framed.wait(FIRST_FRAME_S)
        return {"frame": self._frame}

    def on_notice(self) -> None:
        """Take a notice. Never waits."""
        if not self._is_watched:  # otherwise the next turn is scheduled already
            self._task.hurry()
        self._received_s = self._now_s()

    def turn(self) -> float:
        """Measure this process if a console watches, and send a notice if its page is here. Waits for Redis.

        Returns the seconds until the next turn.
        """
        self._own = self.measure() if self._is_watched else None
        if self._own is None:
            if self._has_written:
                self._hurry()
            return REST_S
        self._is_new = True
        self._hurry()
        if self._watching:
            error = self._table.fault
            try:
                self._announce()
            except HeadgateError as failure:
                error = failure.message
            if error:  # a page gets the numbers of this process alone, with the reason
                self._show(error, {})
        return EVERY_S

    def measure(self) -> ProcessStats:
        """Return the statistics of this process. With many clients it lets the loop run."""
        if (began_s := self._now_s()) >= self._walk_at_s:
            began_cpu_s = self._cpu_s()
            self._balances = {name: namespace.balance() for name, namespace in self._namespaces.items()}
            # The work of other greenlets during the walk is included, so the walk's share is smaller rather than larger.
            self._walk_at_s = began_s + (self._cpu_s() - began_cpu_s) / WALK_SHARE
        counted = {each: metrics.totals(metric) for each, metric in _COUNTERS.items()}
        state = self._state()
        return ProcessStats(
            name=process_name(),
            version=__version__,
            began_ms=self._began_ms,
            at_s=self._now_s(),
            cpu_s=self._cpu_s(),
            memory_bytes=_memory_bytes(),
            stalls=round(sum(metrics.totals(metrics.LOOP_STALLS).values())),
            **{each: getattr(state, each) for each in STATED},
            lag=metrics.LOOP_LAG.of().counts,
            redis=metrics.REDIS_ROUND_TRIPS.of().counts,
            namespaces={name: self._namespace(name, namespace, counted) for name, namespace in self._namespaces.items()},
        )

    def _namespace(self, name: str, namespace: Namespace, counted: Mapping[str, Mapping[str, float]]) -> NamespaceStats:
        bus, balance = namespace.bus, self._balances[name]
        return NamespaceStats(
            bus_up=bus.up,
            epoch=bus.epoch,
            head=max(bus.head, bus.reached),
            **{each: round(values.get(name, 0)) for each, values in counted.items()},
            **{each: getattr(balance, each) for each in _BALANCED},
            clients=len(namespace.clients),
            subscriptions=namespace.subscriptions.count,
            oldest_s=0.0 if balance.oldest_ms is None else max(0.0, time.time() - balance.oldest_ms / 1000),
            log_events=max(0, bus.head - bus.first + 1),
            log_bytes=round(metrics.totals(metrics.LOG_BYTES).get(name, 0)),
            log_oldest_s=metrics.totals(metrics.LOG_OLDEST_SECONDS).get(name, 0.0),
            fence_age_s=bus.fence_age_s,
            error="" if bus.last_error is None else bus.last_error.message,
            latency=metrics.PUBLISH_TO_SOCKET.of(name).counts,
            log_retention_s=0.0 if namespace.retention_s == inf else namespace.retention_s,
        )

    def fields(self, *, whole_row: bool) -> dict[str, bytes | None]:
        """Return the statistics of this process while a console watches."""
        had_written, self._has_written = self._has_written, self._own is not None
        if self._own is not None:
            return {_REPORT: msgspec.msgpack.encode(self._own)}
        return {_REPORT: None} if had_written and not whole_row else {}

    def wanted_fields(self) -> Sequence[str] | None:
        """Ask for the statistics of the others if a page is here."""
        return None if self._watching else NOTHING

    def receive(self, others: Mapping[str, Fields], *, lost: bool) -> None:
        """Make a frame of the statistics of all processes, once for each turn."""
        if self._watching and self._is_new:
            self._show("", others)

    @property
    def _watching(self) -> bool:
        return self._now_s() - self._asked_s < WATCHED_S

    @property
    def _is_watched(self) -> bool:
        return self._now_s() - max(self._asked_s, self._received_s) < WATCHED_S

    def _show(self, error: str, others: Mapping[str, Fields]) -> None:
        assert self._own is not None
        self._is_new = False
        reports = {self._table.id: self._own}
        for process, fields in others.items():
            with suppress(msgspec.DecodeError, ValueError):  # of another version
                reports[process] = _decode(fields.get(_REPORT) or b"")
        frame = self._combined.frame(reports, self._now_s())
        self._frame = {"at": round(time.time() * 1000), "own": self._table.id, **({"error": error} if error else {}), **frame}
        self._framed.set()


_decode = msgspec.msgpack.Decoder(ProcessStats).decode
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _memory_bytes() -> int:
    """Return the memory of this process; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
