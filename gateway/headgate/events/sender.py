"""The sender of an event, as a word in the log and in a message header. No I/O.

In: the user for whom a trusted process publishes, never part of a payload. Out: a word of printable ASCII. A word that begins
with SHOWN may be shown to clients as the event's `by`. Any other is only for operators (`headgate trace`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from headgate.errors import InvalidRequest
from headgate.events.topic import NAME_PATTERN

MAX_LENGTH = 128
# `quote` never writes this character.
SHOWN = "="

_NAME = re.compile(NAME_PATTERN)
_SHOWN_WORD = re.compile(rf"{SHOWN}[!-~]{{1,{MAX_LENGTH - 1}}}", re.ASCII)


def sender_word(user: object, *, shown: bool) -> str:
    """Return the word of a user, whose name may have any characters and any length.

    It is cut to MAX_LENGTH. A cut word is not shown, since it might equal another user's. Neither is the account of an API key,
    which is not a user.

    Raises InvalidRequest: `user` is not text, or has a lone surrogate.
    """
    if not isinstance(user, str):
        raise InvalidRequest(f"by: expected text, got {type(user).__name__}")
    return _word(user, shown)


@lru_cache(maxsize=1024)  # a publishing service is usually one user
def _word(user: str, shown: bool) -> str:
    try:
        word = quote(user, safe="@")
    except UnicodeEncodeError:
        raise InvalidRequest("by: expected characters of Unicode, without lone surrogates") from None
    return SHOWN + word if shown and len(word) < MAX_LENGTH and _NAME.fullmatch(user) else word[:MAX_LENGTH]


def read_sender(word: str | None) -> str | None:
    """Return the user that clients may see, or None."""
    return unquote(word[1:]) if word is not None and _SHOWN_WORD.fullmatch(word) else None


def operators_name(word: str) -> str:
    """Return the user of any word. Cuts a long name."""
    return unquote(word.removeprefix(SHOWN))
