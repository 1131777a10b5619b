"""Maintains the logs of a gateway's namespaces, every few seconds, off the hot path, in one greenlet.

In: the clock. Out: to Redis, the time that it gave before, so that ages in the log do not depend on its wall clock
(redis/clock.lua), and room when it is full. Events beyond the limits of age and number go at once, although every publish is
refused. To the metrics and the namespaces: the size of the log, its age, how long ids count, and how long it keeps an event at
the present rate, with a warning if a client takes longer than that to come back.

Rules. 1. A refusal costs a log line and nothing else. 2. Each call to trim is short, and the loop runs between two.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from headgate.errors import BusRefused, BusUnavailable
from headgate.node.namespace import Namespace
from headgate.redis.client import Client, is_full
from headgate.redis.log import RECONNECT_S, EventLog
from headgate.redis.time_watch import WATCH_EVERY_S, TimeWatch
from headgate.runtime.loop import sleep
from headgate.runtime.metrics import CONSUMERS_ELSEWHERE, ID_HOLD_SECONDS, LOG_BYTES, LOG_OLDEST_SECONDS, LOG_RETENTION_SECONDS
from headgate.runtime.periodic import PeriodicTask
from headgate.settings.settings import Settings

log = structlog.get_logger("headgate.upkeep")

# Every n-th tick counts consumers, at some round trips each.
COUNT_CONSUMERS_EVERY = 6


def maintenance(client: Client, settings: Settings, namespaces: Mapping[str, Namespace]) -> PeriodicTask:
    """Return the maintenance of the logs of these namespaces, not started."""
    logs = [LogMaintenance(name, EventLog(name, client, settings.max_payload_bytes), TimeWatch()) for name in namespaces]

    def turn() -> float:
        for each in logs:
            if not task.ended and (retention_s := each.turn()) is not None:
                namespaces[each.namespace].retention_s = retention_s
        return WATCH_EVERY_S

    task = PeriodicTask(turn, lambda: log.exception("upkeep failed"), WATCH_EVERY_S)
    return task


class LogMaintenance:
    """The maintenance of one namespace's log. `refusal` is why the last tick had to make room, if so."""

    def __init__(self, namespace: str, log: EventLog, watch: TimeWatch) -> None:
        self.namespace = namespace
        self.refusal: BusRefused | None = None
        self._log, self._watch = log, watch
        self._epoch, self._clock_ms = "", 0
        self._measurements = 0
        self._measured = "", 0, 0  # epoch, clock and newest offset at the last measurement
        self._is_short = False
        self._logged = ""

    def turn(self) -> float | None:
        """Tick and measure. Returns for how many seconds the log keeps an event; None if unknown. Logs failures."""
        retention_s = None
        try:
            trimmed = self.tick()
            retention_s = self.measure()
        except BusUnavailable:
            pass  # the bus reports it
        except BusRefused as error:
            self._log_once(error)
        except Exception:
            # After our own fault the other logs must still have their turn.
            log.exception("upkeep failed", namespace=self.namespace)
        else:
            self._log_once(self.refusal, trimmed=trimmed)
        return retention_s

    def tick(self) -> int | None:
        """Write the clock and read the state; return how many events were trimmed, or None if Redis is not full.

        Raises BusUnavailable, BusRefused: as `redis.client.call`.
        """
        self.refusal = None
        try:
            self._note_time(*self._log.tick(*self._words()))
            return None
        except BusRefused as error:
            if not is_full(error):
                raise
            self.refusal = error
        total, trimmed = 0, 1
        while trimmed:
            epoch, clock, trimmed = self._log.trim(*self._words())
            self._note_time(epoch, clock)
            total += trimmed
            sleep()
        return total

    def _words(self) -> tuple[str | int, ...]:
        words = self._watch.words()
        return (self._epoch, *words) if words else ()

    def _note_time(self, epoch: str, clock_ms: int) -> None:
        self._epoch, self._clock_ms = epoch, clock_ms
        self._watch.observe(clock_ms)

    def measure(self) -> float | None:
        """Set the metrics of the log's size and, now and then, of the consumers on another server.

        Returns for how many seconds the log keeps an event; None if unknown. Raises BusUnavailable and BusRefused as
        `redis.client.call`.
        """
        extent = self._log.extent()
        LOG_BYTES.labels(self.namespace).set(extent.bytes)
        age_ms = self._clock_ms - extent.first_ms if extent.bytes and self._clock_ms and extent.first_ms else 0
        LOG_OLDEST_SECONDS.labels(self.namespace).set(max(0, age_ms) / 1000)
        ID_HOLD_SECONDS.labels(self.namespace).set(extent.id_hold_s)
        if self._measurements % COUNT_CONSUMERS_EVERY == 0:
            CONSUMERS_ELSEWHERE.labels(self.namespace).set(self._log.consumers_elsewhere())
        self._measurements += 1
        (epoch, clock_ms, offset), self._measured = self._measured, (self._epoch, self._clock_ms, extent.offset)
        if not self._epoch or epoch != self._epoch or clock_ms >= self._clock_ms:
            return None
        retention_s = extent.retention_s((extent.offset - offset) * 1000 / (self._clock_ms - clock_ms))
        LOG_RETENTION_SECONDS.labels(self.namespace).set(retention_s)
        if retention_s < RECONNECT_S and not self._is_short:
            log.warning("log too short", namespace=self.namespace, retention_s=round(retention_s, 1), needed_s=RECONNECT_S)
        # Logged once until it is at least twice as long as needed.
        self._is_short = retention_s < (2 * RECONNECT_S if self._is_short else RECONNECT_S)
        return retention_s

    def _log_once(self, error: BusRefused | None, **more: int | None) -> None:
        """Log an error with its remedy, unless it is the same as the one before."""
        trouble = "; ".join(error.lines()) if error is not None else ""
        if trouble and trouble != self._logged:
            log.warning("Redis refuses writes", namespace=self.namespace, error=trouble, **more)
        self._logged = trouble
