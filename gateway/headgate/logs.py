"""How the gateway writes its log: one line per thing that happened, past tense, with fields. Set up once by `headgate serve`."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: str) -> None:
    """Write log lines of at least `level` to standard error: for people on a terminal, else as logfmt."""
    terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.LogfmtRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # One write per line: those of several threads do not run into each other.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
