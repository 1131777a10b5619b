"""How the gateway writes its log: one line per thing that happened, past tense, with fields. Set up once by `headgate serve`.

A line that clients can cause at will is written seldom (seldom.py). `told` keeps back what strangers are not to know of an
error, and writes it to the log instead.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from headgate.errors import HeadgateError

from .seldom import Seldom

_log = structlog.get_logger("headgate.refusals")
_seldom = Seldom()


def told(error: HeadgateError) -> dict[str, Any]:
    """Return the wire form of an error for strangers. The details that are kept back go to the log, seldom."""
    wire = error.to_wire()
    if error.public is not None and (left_out := _seldom.due(error.code)) is not None:
        _log.warning("refused", code=error.code, reason=error.message, left_out=left_out)
    return wire


def configure(level: str, worker: int | None = None) -> None:
    """Write log lines of at least `level` to standard error: for people on a terminal, else as logfmt.

    `worker` is the number of this process among several that write to the same place; each line tells it.
    """

    def told_worker(_logger: Any, _method: str, fields: Any) -> Any:
        return fields if worker is None else {**fields, "worker": worker}

    terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.LogfmtRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            told_worker,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            Tracebacks(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # One write per line: those of several threads do not run into each other.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


class Tracebacks:
    """Lets a line with a traceback through once in SELDOM_S for each event: a client that finds a fault must not fill the log."""

    def __init__(self, seldom: Seldom | None = None) -> None:
        self._seldom = seldom or Seldom()

    def __call__(self, logger: Any, method: str, fields: Any) -> Any:
        if fields.get("exc_info") or "traceback" in fields:
            left_out = self._seldom.due(str(fields.get("event")))
            if left_out is None:
                raise structlog.DropEvent
            if left_out:
                fields["left_out"] = left_out
        return fields
