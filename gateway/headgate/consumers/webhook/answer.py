"""The meaning of a receiver's answer, after the Standard Webhooks specification. No I/O.

In: a status and a `Retry-After`. Out: nothing for a 2xx (done); `Reject` for 410 Gone, as the receiver wants no more events;
`Retry` for everything else, including redirects, and 404, which a receiver may answer during its deployment.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from headgate.consumers.base import Reject, Retry

GONE = 410
# Longest Retry-After that counts; a longer one would put the next attempt after the runner has given up.
MAX_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of an answer, and the seconds of its `Retry-After` (None: missing or invalid)."""

    status: int
    retry_after_s: float | None


def judge(answer: Answer, origin: str) -> None:
    """Return if the event is done.

    Args:
        origin: name of the receiver in reasons.

    Raises:
        Reject: 410 Gone.
        Retry: any other answer except a 2xx, with the requested pause, at most MAX_PAUSE_S.
    """
    if 200 <= answer.status < 300:
        return
    reason = f"{origin} answered {answer.status}"
    if answer.status == GONE:
        raise Reject(f"{reason}: it wants no more events")
    raise Retry(reason, None if answer.retry_after_s is None else min(answer.retry_after_s, MAX_PAUSE_S))


def read_retry_after(text: str, now_s: float) -> float | None:
    """Return the seconds of a `Retry-After` (RFC 9110, section 10.2.3: seconds or a date), or None if it is neither.

    `now_s` is the time since 1970.
    """
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None
