"""The push to StatsD of the counts since the last push, every ten seconds. Off unless a server is named.

In: the families of metrics. Out: in few datagrams (runtime/statsd.py), a count for each risen counter, and each bucket
of our histograms as a timing, with a sample rate for the number of values. Each worker of a gateway pushes separately, and StatsD
adds them up. Gauges are not pushed, because those of several workers would overwrite each other.

Names: the prefix, the name of the metric without `headgate_` and `_total`, and the values of its labels, joined by dots. The
dropped events, for example, are `headgate.outcomes.notifications.discarded`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import structlog

from headgate.runtime.histogram import limit_of
from headgate.runtime.metrics import HISTOGRAMS, STATSD_FAULTS, Family, Histograms, families
from headgate.runtime.periodic import PeriodicTask
from headgate.runtime.statsd import Statsd, Timing

log = structlog.get_logger("headgate.statsd")

EVERY_S = 10.0
# Label sets are bounded elsewhere. This is a second bound.
MAX_NAMES = 4096
_OURS = "headgate_"
# The first word of every name in StatsD.
PREFIX = "headgate"
_ODD = re.compile(r"[^A-Za-z0-9_-]")


class StatsdPush:
    """See the module. `place` is host and port; `read` returns the families of metrics."""

    def __init__(self, place: tuple[str, int], read: Callable[[], Iterable[Family]] = families) -> None:
        self._read = read
        self._sender = Statsd(place, lambda error: STATSD_FAULTS.inc())
        self._pushed: dict[str, float] = {}
        self._task = PeriodicTask(self.push, lambda: log.exception("the push to StatsD failed"), EVERY_S)

    def start(self) -> None:
        """Start. Idempotent."""
        if not self._task.begun:
            self._sender.start()
            self._task.start()

    def close(self) -> None:
        """Push the rest, and stop. Idempotent."""
        if self._task.close():
            self.push()
            self._sender.close()

    def push(self) -> float:
        """Push the changes since the last push; return the seconds until the next one."""
        counts, timings = changes(self._pushed, self._read(), HISTOGRAMS)
        self._sender.send(counts, {}, timings)
        return EVERY_S


def changes(
    pushed: dict[str, float], read: Iterable[Family], histograms: Iterable[Histograms] = ()
) -> tuple[dict[str, int], list[Timing]]:
    """Return the counts and timings since the last call. The first call returns all since the start.

    `pushed` has the values that StatsD has, by name; the call brings it up to date.
    """
    counts: dict[str, int] = {}
    timings: list[Timing] = []
    for name, kind, _, samples in read:
        if not name.startswith(_OURS) or kind != "counter":
            continue
        for sample, labels, value in samples:
            if sample.endswith("_total"):
                at = _name(sample.removesuffix("_total"), labels)
                if new := _new(pushed, at, value):
                    counts[at] = new
    for each in histograms:
        for labels, histogram in each.labelled():
            at = _name(each.name.removesuffix("_seconds"), labels)
            for bucket, value in histogram.counts.items():
                if new := _new(pushed, f"{at} {bucket}", value):
                    timings.append((at, limit_of(bucket), new))
    return counts, timings


def _new(pushed: dict[str, float], name: str, value: float) -> int:
    if name not in pushed and len(pushed) >= MAX_NAMES:
        return 0
    before = pushed.get(name, 0.0)
    if value < before:  # the counter has restarted
        before = 0.0
    # The rest of a fraction (of seconds, for example) goes with the next push.
    new = int(value - before)
    pushed[name] = before + new
    return new


def _name(name: str, labels: Mapping[str, str]) -> str:
    namespace_first = sorted(labels, key=lambda label: (label != "namespace", label))
    return ".".join([PREFIX, name.removeprefix(_OURS), *(_ODD.sub("_", labels[label]) or "_" for label in namespace_first)])
