"""The sender of an event, as an entry of the log and the header of a message name it. No I/O.

In: the user on whose behalf a trusted process publishes, never anything out of a payload. Out: a word of printable ASCII. A word
that begins with SHOWN may be shown to clients as the event's `by`; any other is for operators alone (`headgate trace`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from headgate.events.topic import NAME_PATTERN

MAX_LENGTH = 128
# `quote` writes no such character.
SHOWN = "="

_NAME = re.compile(NAME_PATTERN)
_WORD = re.compile(rf"{SHOWN}[!-~]{{1,{MAX_LENGTH - 1}}}", re.ASCII)


@lru_cache(maxsize=1024)  # a service that publishes is one user
def sender_word(user: str, *, shown: bool) -> str:
    """Return the word of a user, whose name may have any characters and any length.

    It is cut to MAX_LENGTH. A word that would be cut is not shown, as it could be another user's, and neither is the account of
    an API key, which is no user.
    """
    word = quote(user, safe="@")
    return SHOWN + word if shown and len(word) < MAX_LENGTH and _NAME.fullmatch(user) else word[:MAX_LENGTH]


def read_sender(word: str | None) -> str | None:
    """Return the user whom clients may be shown; None: there is none."""
    return unquote(word[1:]) if word is not None and _WORD.fullmatch(word) else None


def operators_name(word: str) -> str:
    """Return the user of a word, shown to clients or not, as far as it was not cut."""
    return unquote(word.removeprefix(SHOWN))
