"""How the gateway writes its log: one line per thing that happened, past tense, with fields. Set up once by `headgate serve`.

docs/logs.md has the schema, and every event.

A line that clients can cause at will is throttled (log_throttle.py). `told` keeps back what strangers are not to know of an
error, and writes it to the log instead.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

import msgspec
import structlog

from headgate.errors import HeadgateError
from headgate.settings import wants_no_colour

from . import operator_lines
from .log_throttle import LogThrottle

# The members that every line has, in the order in which a JSON line begins.
FIRST = ("timestamp", "level", "logger", "event")
# The least time between two lines of one event of a consumer, whose troubles last.
CONSUMER_EVERY_S = 60.0

_log = structlog.get_logger("headgate.refusals")
_log_throttle = LogThrottle()


def told(error: HeadgateError) -> dict[str, Any]:
    """Return the wire form of an error for strangers. The details that are kept back go to the log, seldom."""
    wire = error.to_wire()
    if error.public is not None and (left_out := _log_throttle.due(error.code)) is not None:
        _log.warning("refused", code=error.code, reason=error.message, left_out=left_out)
    return wire


def configure(level: str, worker: int | None = None, form: str = "auto") -> None:
    """Write log lines of at least `level` to standard error, each of the same schema (docs/logs.md).

    Args:
        level: see above; `set_level` changes it later.
        worker: the number of this process among several that write to the same place; each line tells it.
        form: console for people, logfmt or json for programs; auto is console on a terminal, and logfmt elsewhere.
    """
    set_level(level)

    def told_worker(_logger: Any, _method: str, fields: Any) -> Any:
        return fields if worker is None else {**fields, "worker": worker}

    if form == "auto":
        form = "console" if sys.stderr.isatty() else "logfmt"
    operator_lines.as_json = form == "json"
    structlog.configure(
        processors=[
            _least_severe,
            structlog.processors.add_log_level,
            _with_logger,
            told_worker,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            Tracebacks(),
            structlog.processors.format_exc_info,
            _renderer(form),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        # One write per line: those of several threads do not run into each other.
        logger_factory=_Written,
        cache_logger_on_first_use=True,
    )
    # Of modules that applications without structlog use as well: the publisher, the check of schemas.
    logging.getLogger("headgate").handlers = [_Passed()]


def set_level(level: str) -> None:
    """Write lines of at least this level from now on."""
    global _level
    _level = getattr(logging, level.upper())


_level = logging.INFO


class _Written(structlog.WriteLogger):
    """A logger that knows its name."""

    def __init__(self, name: str = "headgate") -> None:
        super().__init__(sys.stderr)
        self.name = name


class _Passed(logging.Handler):
    """Passes the lines of the standard library's loggers on, in the schema of the others.

    An application that has set up that logging itself gets them there, as those of all libraries.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            structlog.get_logger(record.name).log(record.levelno, "told", message=record.getMessage())


def _least_severe(_logger: Any, method: str, fields: Any) -> Any:
    if structlog.processors.NAME_TO_LEVEL[method] < _level:
        raise structlog.DropEvent
    return fields


def _with_logger(logger: Any, _method: str, fields: Any) -> Any:
    fields.setdefault("logger", getattr(logger, "name", "headgate"))
    return fields


def _renderer(form: str) -> Any:
    if form == "console":
        return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and not wants_no_colour())
    if form == "json":
        return structlog.processors.JSONRenderer(_json_text)
    return structlog.processors.LogfmtRenderer()


def _json_text(fields: dict[str, Any], **_: Any) -> str:
    """Return a line whose first members are the same in each; a value that JSON has not is its text."""
    first = {name: fields.pop(name) for name in FIRST if name in fields}
    return msgspec.json.encode({**first, **fields}, enc_hook=str).decode()


class Tracebacks:
    """Lets a line with a traceback through once in EVERY_S for each event: a client that finds a fault must not fill the log."""

    def __init__(self, log_throttle: LogThrottle | None = None) -> None:
        self._log_throttle = log_throttle or LogThrottle()

    def __call__(self, logger: Any, method: str, fields: Any) -> Any:
        if fields.get("exc_info") or "traceback" in fields:
            left_out = self._log_throttle.due(str(fields.get("event")))
            if left_out is None:
                raise structlog.DropEvent
            if left_out:
                fields["left_out"] = left_out
        return fields


class ThrottledLog:
    """The log of a consumer: passes events on to `write(event, **fields)` when they are due. Threads may share one."""

    def __init__(self, write: Callable[..., object], now_s: Callable[[], float] = time.monotonic) -> None:
        self._write, self._throttle = write, LogThrottle(now_s, every_s=CONSUMER_EVERY_S)
        self._lock = Lock()

    def __call__(self, event: str, **fields: object) -> None:
        """Write the event, if a line of that name is due."""
        with self._lock:
            left_out = self._throttle.due(event)
        if left_out is not None:
            self._write(event, **fields, **({"left_out": left_out} if left_out else {}))
