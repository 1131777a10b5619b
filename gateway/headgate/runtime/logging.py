"""The log of the gateway: one line per event, past tense, with fields. `headgate serve` configures it once.

docs/logs.md has the schema and all events.

Lines that clients can cause at will are throttled (log_throttle.py). `wire_form` logs the private details of an error and
removes them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

import msgspec
import structlog

from headgate.errors import HeadgateError

from . import operator_lines
from .log_throttle import LogThrottle
from .operator_lines import wants_no_colour

# Members of every line, in their order at the start of a JSON line.
FIRST = ("timestamp", "level", "logger", "event")
# The least time between two lines of one event of a consumer, because its troubles last.
CONSUMER_EVERY_S = 60.0

_log = structlog.get_logger("headgate.refusals")
_log_throttle = LogThrottle()


def wire_form(error: HeadgateError) -> dict[str, Any]:
    """Return the wire form of an error for clients. Private details and the remedy go to the log, throttled."""
    if error.public is not None:
        log_refusal(error)
    return error.to_wire()


def log_refusal(error: HeadgateError) -> None:
    """Log a refusal that the operator can end, throttled by its code."""
    if (left_out := _log_throttle.due(error.code)) is not None:
        _log.warning("refused", code=error.code, reason="; ".join(error.lines()), left_out=left_out)


def configure(level: str, worker: int | None = None, form: str = "auto") -> None:
    """Write log lines of at least `level` to standard error, all in one schema (docs/logs.md).

    Args:
        level: the least severe level written; `set_level` changes it later.
        worker: the number of this process among several with the same output; added to each line.
        form: console for people, logfmt or json for programs; auto means console on a terminal, otherwise logfmt.
    """
    set_level(level)

    def with_origin(logger: Any, _method: str, fields: Any) -> Any:
        fields.setdefault("logger", getattr(logger, "name", "headgate"))
        return fields if worker is None else {**fields, "worker": worker}

    if form == "auto":
        form = "console" if sys.stderr.isatty() else "logfmt"
    operator_lines.as_json = form == "json"
    processors = [
        _least_severe,
        structlog.processors.add_log_level,
        with_origin,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        partial(few_tracebacks, LogThrottle()),
        structlog.processors.format_exc_info,
        _renderer(form),
    ]
    wrapper = structlog.make_filtering_bound_logger(logging.DEBUG)
    structlog.configure(processors=processors, wrapper_class=wrapper, logger_factory=_Lines, cache_logger_on_first_use=True)
    # For modules that applications use without structlog: the publisher and the schema check.
    logging.getLogger("headgate").handlers = [
        _Passed(lambda name: structlog.wrap_logger(_Lines(name), processors, wrapper_class=wrapper))
    ]


def set_level(level: str) -> None:
    """Change the least severe level that is written."""
    global _level
    _level = getattr(logging, level.upper())


_level = logging.INFO


class _Lines:
    """A named logger that writes each line at once, so that lines of several threads do not mix.

    structlog's own ones take a lock first. A callback of the loop must not wait for the thread that has it.
    """

    def __init__(self, name: str = "headgate") -> None:
        self.name, self._stream = name, sys.stderr

    def msg(self, line: str) -> None:
        """Write a line."""
        self._stream.write(line + "\n")
        self._stream.flush()

    log = debug = info = warn = warning = error = err = exception = failure = fatal = critical = msg


class _Passed(logging.Handler):
    """Passes lines of the standard library's loggers on, in our schema.

    If an application has configured that logging, its handlers receive them, as from any library. `get_logger` returns ours by
    its name, because the application may configure structlog to write to the standard library, which would lead back here.
    """

    def __init__(self, get_logger: Callable[[str], Any]) -> None:
        super().__init__()
        self.get_logger = get_logger

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.get_logger(record.name).log(record.levelno, "told", message=record.getMessage())


def _least_severe(_logger: Any, method: str, fields: Any) -> Any:
    if structlog.processors.NAME_TO_LEVEL[method] < _level:
        raise structlog.DropEvent
    return fields


def _renderer(form: str) -> Any:
    if form == "console":
        return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and not wants_no_colour())
    if form == "json":
        return structlog.processors.JSONRenderer(_json_text)
    return structlog.processors.LogfmtRenderer()


def _json_text(fields: dict[str, Any], **_: Any) -> str:
    """Return a line that starts with the same members as every other. A value without a JSON form is written as text."""
    first = {name: fields.pop(name) for name in FIRST if name in fields}
    return msgspec.json.encode({**first, **fields}, enc_hook=str).decode()


def few_tracebacks(throttle: LogThrottle, _logger: Any, _method: str, fields: Any) -> Any:
    """Pass one line with a traceback per EVERY_S and event, so that a client that triggers a fault cannot fill the log."""
    if fields.get("exc_info") or "traceback" in fields:
        left_out = throttle.due(str(fields.get("event")))
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            fields["left_out"] = left_out
    return fields


def throttled(write: Callable[..., object], now_s: Callable[[], float] = time.monotonic) -> Callable[..., None]:
    """Return the log of a consumer, which passes an event with its fields to `write` when it is due. Thread-safe."""
    throttle, lock = LogThrottle(now_s, every_s=CONSUMER_EVERY_S), Lock()

    def log(event: str, **fields: object) -> None:
        with lock:
            left_out = throttle.due(event)
        if left_out is not None:
            write(event, **fields, **({"left_out": left_out} if left_out else {}))

    return log
