"""The `traceparent` of an event names its trace (W3C Trace Context, level 2). No I/O.

In: text from a publisher, an HTTP header, a message or an entry of the log. Out: the same as version 00, or None. A malformed
one is dropped and counted by its source, and the event continues without it.
"""

from __future__ import annotations

import re
from collections import Counter

# The length of version 00. A later version may be longer, up to our bound.
LENGTH, MAX_LENGTH = 55, 512
SAMPLED, RANDOM = 1, 2

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_ZEROS = "0" * 32

DROPPED: Counter[str] = Counter()
"""How many malformed ones this process dropped, by source (`publisher`, `http`, `bus` or `log`)."""


def read_traceparent(text: object, where: str) -> str | None:
    """Return a traceparent as version 00 with the flags of level 2, or None for None.

    Counts a malformed one and returns None. Reads only the parts of version 00 of a later version (section 4.3 of the
    standard).
    """
    if text is None:
        return None
    match = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_LENGTH else None
    if (
        match is None
        or match[1] == "ff"
        or (match[1] == "00" and match[5] is not None)
        or match[2] == _ZEROS
        or match[3] == _ZEROS[:16]
    ):
        DROPPED[where] += 1
        return None
    return f"00-{match[2]}-{match[3]}-{int(match[4], 16) & (SAMPLED | RANDOM):02x}"


def is_sampled(traceparent: str) -> bool:
    """Return whether the trace of a parsed traceparent is recorded."""
    return bool(int(traceparent[-2:], 16) & SAMPLED)


def ids_of(traceparent: str) -> tuple[int, int, int]:
    """Return trace id, span id and flags of a parsed traceparent."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return int(trace_id, 16), int(span_id, 16), int(flags, 16)
