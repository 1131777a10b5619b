"""The meaning of a mail server's answers. No I/O.

In: the stage of a mail, and the code and text of an answer. Out: nothing where the server agreed; else a `Reject` (the
server will never take this mail), a `Retry` (it may later), or `RefusesUs`: the set-up is at fault, and no event is rejected.
"""

from __future__ import annotations

import re
from enum import Enum

from headgate.consumers.base import Reject, Retry

SHOWN_CHARACTERS = 200
_AGREED = frozenset({250, 251, 252})
_CLOSING, _TOO_LARGE = 421, 552
# Answers that say that the login is missing, too weak or refused (RFC 4954, section 6), wherever they come.
_LOGIN = frozenset({530, 534, 535, 538})


class Stage(Enum):
    """The parts of handing over one mail."""

    SENDER = "the sender"
    RECIPIENT = "the recipient"
    MESSAGE = "the message"


class RefusesUs(Exception):
    """An answer, or an offer that is missing, that no change of the mail would change: one line."""


def judge(stage: Stage, code: int, answer: bytes | str) -> None:
    """Return if the server agreed.

    Raises:
        Retry: the answer will pass (4xx), or is none of SMTP's.
        Reject: the server will never take this mail (5xx).
        RefusesUs: the answer is against us rather than this mail.
    """
    if code in _AGREED:
        return
    line = first_line(answer)
    # Every mail has the same sender, so a refusal of the sender is not the event's fault, but for the size that MAIL announces.
    if code in _LOGIN or code == _CLOSING or (stage is Stage.SENDER and code >= 500 and code != _TOO_LARGE):
        raise RefusesUs(answered(stage.value, code, line))
    reason = f"the mail server answered {code} to {stage.value}: {line}"
    raise (Reject if 500 <= code <= 599 else Retry)(reason)


def answered(stage: str, code: int, line: str = "") -> str:
    """Return an answer to a stage in one line."""
    return f"it answered {code} to {stage}" + (f": {line}" if line else "")


def first_line(answer: bytes | str) -> str:
    """Return the first line of an answer as it may stand in a log: printable, short."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    first = text.splitlines()[0] if text else ""
    return re.sub(r"[^\x20-\x7e]", "?", first)[:SHOWN_CHARACTERS]
