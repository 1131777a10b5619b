"""Decides when an alert rule fires and when it resolves, as a function of counts and times. No I/O.

A rule is judged as of a time (milliseconds since 1970, Redis' clock) up to which every event has been counted, never by a clock
of this process. So a backlog is judged as it happened, and silence is never a delay.

The record outlives the process. It stores a decision as a `notice` before publication. An instance that dies between publishing
and recording that finds the notice again, with the same number, and publishes it under the same id. Until its publication
(`notified`) a rule is not judged further, so notices of one rule alternate: firing, resolved, firing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from headgate.settings.options import PATTERN, TOPIC, USER, integer, matching, one_of, option, required

# Widths of buckets in seconds. A window has at most 60 of them, and the one in progress.
_WIDTHS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)
MAX_WINDOW_S = 86400
# A pause in judging of at most this time (or one window) changes nothing. After a longer one judging restarts.
PAUSE_MS = 30_000


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert rule: the events to count, the condition, the topic of the notice. One table of `alerts` in the configuration."""

    name: str = option(
        required(), matching(_NAME, "1 to 64 characters of [A-Za-z0-9_-]"), "Name of the alert, unique in its consumer."
    )
    pattern: str = option(required(), PATTERN, "The consumer's events that it counts.")
    kind: str = option(
        "rate", one_of("rate", "absence"), "`rate`: more than `above` events in `window_s`; `absence`: none in `window_s`."
    )
    above: int = option(0, integer(0, 10**9, "events"), "Most events in the window that are still normal (`rate`).")
    window_s: int = option(required(), integer(1, MAX_WINDOW_S, "seconds"), "Length of the window.")
    for_s: int = option(
        0,
        integer(0, 86400, "seconds"),
        "The condition must hold this long before the alert fires, and must be gone this long before it is over.",
    )
    topic: str | None = option(None, TOPIC, "Topic to publish it on. Not set: `alerts.<name>`.")
    user: str | None = option(None, USER, "The user who gets it, on a topic of the user's own. Not set: no user.")
    repeat_s: int = option(0, integer(0, 7 * 86400, "seconds"), "Publish it again at this interval while it fires. 0: never.")


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a rule, with start and current time of judging, the state, and since when the opposite condition holds.

    `number` counts the notices so far, and `repeats` those of an alert that still fires. `notice` is the count of events at the
    newest one, which has been decided but may not have been published.
    """

    began_ms: int
    judged_ms: int
    firing: bool = False
    turned_ms: int | None = None
    since_ms: int = 0
    number: int = 0
    repeats: int = 0
    noticed_ms: int = 0
    notice: int | None = None


def judge(rule: Rule, before: Record | None, at_ms: int, count: int) -> Record:
    """Return the record, perhaps with a new notice, after a count of `count` events in the window that ends at `at_ms`.

    A record with an unpublished notice is returned unchanged.
    """
    record = before or Record(at_ms, at_ms)
    if record.notice is not None:
        return record
    if not 0 <= at_ms - record.judged_ms <= max(rule.window_s * 1000, PAUSE_MS):
        # Judging paused, or the clock jumped, so the condition may have changed in between.
        record = replace(record, began_ms=at_ms, turned_ms=None)
    record = replace(record, judged_ms=at_ms)
    alarming = count > rule.above if rule.kind == "rate" else not count
    if alarming and rule.kind == "absence" and at_ms - record.began_ms < rule.window_s * 1000:
        return replace(record, turned_ms=None)  # no whole window of silence has been observed
    if alarming == record.firing:
        record = replace(record, turned_ms=None)
        if not record.firing or not rule.repeat_s or at_ms - record.noticed_ms < rule.repeat_s * 1000:
            return record
        return _noticed(replace(record, repeats=record.repeats + 1), count)
    turned_ms = at_ms if record.turned_ms is None else record.turned_ms
    if at_ms - turned_ms < rule.for_s * 1000:
        return replace(record, turned_ms=turned_ms)
    turned = replace(record, firing=alarming, turned_ms=None, since_ms=turned_ms, repeats=0)
    return _noticed(turned, count)


def notified(record: Record) -> Record:
    """Return the record after the publication of its notice."""
    return replace(record, notice=None)


def notice_data(rule: Rule, record: Record) -> dict[str, object]:
    """Return the data of the event for the notice of a record."""
    return {
        "alert": rule.name,
        "state": "firing" if record.firing else "resolved",
        "kind": rule.kind,
        "value": record.notice,
        "above": rule.above if rule.kind == "rate" else None,
        "window_s": rule.window_s,
        "since": record.since_ms,
        "pattern": rule.pattern,
        "repeats": record.repeats,
    }


def bucket_width_s(window_s: int) -> int:
    """Return the seconds per bucket of such a window."""
    return next(width for width in _WIDTHS_S if window_s <= 60 * width)


def bucket(window_s: int, time_ms: int) -> int:
    """Return the bucket that counts an event of this time."""
    return time_ms // (bucket_width_s(window_s) * 1000)


def window_buckets(window_s: int, at_ms: int) -> range:
    """Return the whole buckets of the window that ends at `at_ms`. They may begin up to one bucket early."""
    return range(bucket(window_s, at_ms - window_s * 1000), bucket(window_s, at_ms) + 1)


def _noticed(record: Record, count: int) -> Record:
    return replace(record, number=record.number + 1, noticed_ms=record.judged_ms, notice=count)
