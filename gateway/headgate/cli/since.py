"""Since: a position in the log as people write it: an offset, an age, or a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click

from .options import seconds

if TYPE_CHECKING:
    from headgate.redis.log_range import LogRange

EXPECTED = "an offset such as 1200, a time ago such as 10m, or a time such as 2026-11-23T09:00 (UTC: …Z)"


@dataclass(frozen=True, slots=True)
class Since:
    """An offset, or a time in milliseconds since 1970; one of the two."""

    offset: int | None = None
    time_ms: int | None = None

    def first(self, log: LogRange) -> int:
        """Return the offset of the first event from that position. Waits for Redis."""
        if self.offset is not None:
            return max(self.offset, 1)
        assert self.time_ms is not None
        return log.first_since(self.time_ms)


def read_since(text: str, now_s: float) -> Since:
    """Return the position in a text; a time without a zone is local time.

    Raises:
        click.BadParameter: the text is no position.
    """
    if re.fullmatch(r"[0-9]{1,15}", text):
        return Since(offset=int(text))
    if re.fullmatch(r"[0-9]{1,9}[smhd]", text):
        return Since(time_ms=round((now_s - seconds(text)) * 1000))
    try:
        return Since(time_ms=round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r}: expected {EXPECTED}") from None
