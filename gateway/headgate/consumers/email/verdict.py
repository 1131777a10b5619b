"""The meaning of a mail server's answers. No I/O.

In: the stage of a mail, and the code and text of an answer. Out: nothing on success; else a `Reject` (a permanent refusal of this
mail), a `Retry` (a temporary one), or `RefusesUs` (the set-up is at fault, and no event is rejected).
"""

from __future__ import annotations

import re
from enum import Enum

from headgate.consumers.base import Reject, Retry

SHOWN_CHARACTERS = 200
_AGREED = frozenset({250, 251, 252})
_CLOSING, _TOO_LARGE = 421, 552
# The login is missing, too weak or refused (RFC 4954, section 6), at any stage.
_LOGIN = frozenset({530, 534, 535, 538})


class Stage(Enum):
    """The stages of handing over one mail."""

    SENDER = "the sender"
    RECIPIENT = "the recipient"
    MESSAGE = "the message"


class RefusesUs(Exception):
    """A refusal, or a missing capability, that no change of the mail would change; one line."""


def judge(stage: Stage, code: int, answer: bytes | str) -> None:
    """Return on success.

    Raises:
        Retry: a temporary refusal (4xx), or an answer that is not SMTP.
        Reject: a permanent refusal of this mail (5xx).
        RefusesUs: the answer refuses us rather than this mail.
    """
    if code in _AGREED:
        return
    line = first_line(answer)
    # Every mail has the same sender, so the event causes no refusal of the sender, except by the size that MAIL announces.
    if code in _LOGIN or code == _CLOSING or (stage is Stage.SENDER and code >= 500 and code != _TOO_LARGE):
        raise RefusesUs(answered(stage.value, code, line))
    reason = f"the mail server answered {code} to {stage.value}: {line}"
    raise (Reject if 500 <= code <= 599 else Retry)(reason)


def answered(stage: str, code: int, line: str = "") -> str:
    """Describe an answer to a stage in one line."""
    return f"it answered {code} to {stage}" + (f": {line}" if line else "")


def first_line(answer: bytes | str) -> str:
    """Return the first line of an answer, printable and short enough for a log."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    first = text.splitlines()[0] if text else ""
    return re.sub(r"[^\x20-\x7e]", "?", first)[:SHOWN_CHARACTERS]
