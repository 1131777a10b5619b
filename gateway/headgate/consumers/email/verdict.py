"""The meaning of a mail server's answers, and how long a server without service is left alone. No I/O.

In: the stage of a mail, the code and text of an answer, and times. Out: nothing where the server agreed; else a `Reject` (the
server will never take this mail), a `Retry` (it may later), or `RefusesUs`: the set-up is at fault, and no event is rejected.
"""

from __future__ import annotations

import re
from enum import Enum

from headgate.consumers.base import Reject, Retry

# Between attempts while there is no service; never shorter than the last attempt took.
PAUSE_LAST_S = 60.0
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


class Pause:
    """How long the next mails wait without an attempt, after attempts that failed whatever the mail. Times are monotonic seconds.

    The first failure in a row pauses for as long as it took, as the connection may have broken by chance. Each further one pauses
    for 1, 2, 4 … PAUSE_LAST_S seconds, and no shorter than it took: a server that hangs costs half of a consumer's time at most.
    """

    def __init__(self) -> None:
        self._failures, self._until_s, self._trouble = 0, 0.0, ""

    def check(self, now_s: float) -> None:
        """Return if an attempt may be made.

        Raises:
            Retry: the server is to be left alone for longer, with the trouble that the last attempt found.
        """
        if now_s < self._until_s:
            raise Retry(self._trouble, after_s=self._until_s - now_s)

    def begin(self, began_s: float, now_s: float, trouble: str) -> Retry:
        """Note an attempt that failed between these times, and return the Retry for its mail."""
        took_s = now_s - began_s
        self._failures += 1
        pause_s = max(took_s, min(2.0 ** min(self._failures - 2, 10), PAUSE_LAST_S)) if self._failures > 1 else took_s
        self._until_s, self._trouble = now_s + pause_s, trouble
        return Retry(trouble, after_s=pause_s)

    def end(self) -> None:
        """Note that the server gives service."""
        self._failures = 0
