"""The specification of one consumer, with its name, class and options, and the options of its runner. No I/O.

config.py reads it from TOML; runner.py runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate.consumers.base import Consumer, Delivery
from headgate.consumers.values import FUNCTION
from headgate.settings.options import integer, number, one_of, option, text

CONSUMER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
# Bytes of each consumer's dead letters. With the other limits' defaults, the private Redis has room for three consumers.
DEFAULT_MAX_DEAD_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """The options of every consumer besides those of its type."""

    start: str = option("new", one_of("new", "oldest"), "A new consumer begins with new events, or with the oldest of the log.")
    workers: int = option(1, integer(1, 64), "Threads per process. A killed process may repeat one task for each.")
    max_per_s: int = option(
        10000,
        integer(0, 1000000),
        "Most events that a process reads per second, so that a backlog leaves Redis to live delivery. 0: no limit.",
    )
    retry_first_s: float = option(
        1.0, number(0.01, 3600, "seconds"), "Longest wait before the first retry; each further retry doubles it."
    )
    retry_last_s: float = option(300.0, number(0.01, 86400, "seconds"), "Longest wait between two retries.")
    retry_for_s: float = option(
        86400.0, number(0, 30 * 86400, "seconds"), "A task is retried for this long after its first failure."
    )
    max_waiting: int = option(
        10000,
        integer(1, 1000000),
        "Most tasks that may wait (deferred, or to be retried); above it the consumer takes no new events.",
    )
    max_dead: int = option(
        10000, integer(1, 1000000), "Most dead letters that are kept; a new one replaces the oldest, which is counted."
    )
    max_dead_bytes: int = option(
        DEFAULT_MAX_DEAD_BYTES,
        integer(65536, 2**40, "bytes"),
        "Most bytes of dead letters that are kept, likewise; the newest one stays in any case.",
    )
    lease_s: float = option(
        30.0, number(0.1, 3600, "seconds"), "Time after the last heartbeat of a process until another one takes over its tasks."
    )
    unless_seen_s: float = option(
        0.0,
        number(0, 86400, "seconds"),  # SEEN_S of redis/inbox.py
        "Wait this long after an event of a user, and withdraw it if the user has read it or a page has shown it. 0: off.",
    )
    unless_read_s: float = option(
        0.0,
        number(0, 7 * 86400, "seconds"),
        "Wait this long after an item of an inbox, and withdraw it if the user has read or archived it. 0: off.",
    )
    seen_user: str | None = option(
        None,
        text("a template such as {{ event.data.user }}"),
        "The user whom an event is for. Not set: the user whose topic it is (users.<word>.…).",
    )
    channel: str | None = option(
        None,
        one_of("mail", "push", "none"),
        "The channel that it is for its users, who may mute it. Not set: `mail` (email) or `push` (apprise, webpush) where each "
        "user has an own address, else `none`.",
    )
    wants: Callable[[str, Delivery, str], bool] | None = option(
        None,
        FUNCTION,
        "A function of yours that gets the user, the delivery and the channel, and returns whether the user wants it.",
    )
    rate: int = option(
        0,
        integer(0, 10000),
        "Most notifications to a user (mail: to a recipient) in `rate_period_s`; further ones wait. 0: no limit.",
    )
    rate_period_s: float = option(3600.0, number(1, 7 * 86400, "seconds"), "The period of `rate`.")


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """One consumer. `consumer` is the class, `options` an instance of its `Options`, and `name` its group on the log."""

    name: str
    consumer: type[Consumer]
    options: Any
    patterns: tuple[str, ...]
    namespace: str
    runner: RunnerOptions = RunnerOptions()
