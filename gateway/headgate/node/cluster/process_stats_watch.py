"""The watch on process statistics. While a console watches, this process writes its statistics each second, and puts those of all
processes together for the console pages connected here.

In: requests of those pages (`answer`), each of which keeps the watch going for WATCHED_S, and the notices of processes with such
pages (`on_notice`), which do so too. Out: these notices; this process's statistics to Redis; a frame (process_stats.py).

Rules. 1. Nothing on the event path does more than without a console. Counters are read, and clients are walked as for /metrics.
2. That walk takes WALK_SHARE of the time at most, so with very many clients its numbers are some seconds old. 3. Without a
console nothing is done. 4. Only an identity with the mark `admin` is answered. All others are refused, whatever their grants.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import msgspec
import structlog

from headgate.auth.identity import Identity
from headgate.errors import Forbidden, HeadgateError
from headgate.installation import __version__
from headgate.node.health import State
from headgate.node.namespace import Namespace
from headgate.redis.client import Client
from headgate.redis.loads import process_name
from headgate.redis.questions import announce
from headgate.redis.reports import KIND, exchange, forget
from headgate.runtime import metrics
from headgate.runtime.loop import Signal
from headgate.runtime.periodic import Rounds

from .process_stats import FORGOTTEN_S, STATED, NamespaceStats, ProcessStats, Together

log = structlog.get_logger("headgate.vitals")

# Between two turns while a console watches, and otherwise; a page or a notice comes sooner.
EVERY_S, REST_S = 1.0, 3600.0
WATCHED_S = 5
# Share of the processor for walking the clients.
WALK_SHARE = 0.02
# How long a page waits for the first frame.
FIRST_FRAME_S = 3.0


class Measure:
    """Reads the statistics of this process.

    Args:
        state: returns the state of the process. It must not wait.
        now_s: monotonic; cpu_s: processor time of this process.
    """

    def __init__(
        self,
        namespaces: Mapping[str, Namespace],
        state: Callable[[], State],
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._namespaces, self._state = namespaces, state
        self._now_s, self._cpu_s = now_s, cpu_s
        self._began_ms = round(time.time() * 1000)
        self._balances: dict[str, Any] = {}
        self._walk_at_s = -inf

    def read(self) -> ProcessStats:
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


_BALANCED = ("routed", "from_log", "sent", "discarded", "conflated", "gone", "catching_up", "waiting", "queued_bytes", "fullest")
_COUNTERS: dict[str, metrics.Totalled] = {
    "received": metrics.EVENTS, "repaired": metrics.REPAIRED, "joins": metrics.JOINS, "refused": metrics.REFUSED,
}  # fmt: skip


class ProcessStatsWatch:
    """See the module. `now_s` is monotonic."""

    def __init__(self, client: Client, measure: Measure, now_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._measure, self._now_s = measure, now_s
        self._id = ""
        self._asked_s = self._received_s = -inf  # time of the last page here, and of the last notice
        self._seen: dict[str, tuple[bytes, float]] = {}
        self._together = Together()
        self._frame: dict[str, Any] | None = None
        self._framed = Signal()
        self._rounds = Rounds(self.turn, lambda: log.exception("vitals failed"), EVERY_S)
        self._has_written = False

    def start(self) -> None:
        """Start. Idempotent."""
        # Made here, because another process may have made the gateway before a fork.
        self._id = self._id or secrets.token_hex(6)
        self._rounds.start()

    def close(self) -> None:
        """Stop, and remove this process from Redis. Idempotent. Waits for Redis."""
        self._rounds.close()
        if self._has_written:
            self._has_written = False
            try:
                forget(self._client, [self._id])
            except HeadgateError:
                log.debug("vitals not taken out")  # they expire with the lease

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
            self._rounds.hurry()
        if self._frame is None:
            self._framed.wait(FIRST_FRAME_S)
        return {"frame": self._frame}

    def on_notice(self) -> None:
        """Take a notice. Never waits."""
        if not self._is_watched:  # otherwise the next turn is scheduled already
            self._rounds.hurry()
        self._received_s = self._now_s()

    def turn(self) -> float:
        """Write this process's statistics if a console watches; make a frame if its page is here. Waits for Redis.

        Returns the seconds until the next turn.
        """
        self._has_written = self._is_watched
        if not self._is_watched:
            return REST_S
        own, watching = self._measure.read(), self._watching
        try:
            if watching:
                announce(self._client, KIND)
            written = exchange(self._client, self._id, msgspec.msgpack.encode(own), read=watching)
            if watching:
                self._put_together(written, own)
        except HeadgateError as error:
            if watching:  # a page gets the numbers of this process alone, with the reason
                frame = self._together.frame({self._id: own}, self._now_s())
                self._show({"error": error.message, **frame})
        return EVERY_S

    @property
    def _watching(self) -> bool:
        return self._now_s() - self._asked_s < WATCHED_S

    @property
    def _is_watched(self) -> bool:
        return self._now_s() - max(self._asked_s, self._received_s) < WATCHED_S

    def _put_together(self, written: Mapping[str, bytes], own: ProcessStats) -> None:
        now_s = self._now_s()
        reports: dict[str, ProcessStats] = {self._id: own}
        for process, report in written.items():
            if self._seen.get(process, (b"", 0.0))[0] != report:
                self._seen[process] = (report, now_s)
            try:
                reports.setdefault(process, _decode(report))
            except (msgspec.DecodeError, ValueError):
                continue  # of another version
        gone = [process for process, (_, at_s) in self._seen.items() if now_s - at_s > FORGOTTEN_S]
        for process in gone:
            del self._seen[process]
            reports.pop(process, None)
        forget(self._client, [process for process in gone if process in written])
        frame = self._together.frame(reports, now_s)
        self._show(frame)

    def _show(self, frame: Mapping[str, Any]) -> None:
        self._frame = {"at": round(time.time() * 1000), "own": self._id, **frame}
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
