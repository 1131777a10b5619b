"""Owners: the worker that a session id names. No I/O.

Where several workers share a port, a session id begins with two letters for a worker's row; 20 random letters follow. An id
claims its owner and proves nothing: it selects a row of this machine's board, and no address is ever read out of it.
"""

from __future__ import annotations

import re

# A row is two letters, of 32 each.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
_OWNER = re.compile(rb"[?&]sid=([A-Za-f]{2})[A-Za-z0-9_-]{20}[& ]")


def letters_of(row: int) -> str:
    """Return the letters with which the ids of a worker's sessions begin."""
    return _LETTERS[row // len(_LETTERS)] + _LETTERS[row % len(_LETTERS)]


def owner_of(request: bytes) -> int | None:
    """Return the row that a request's session id names, from the first line of the request; None when it names none."""
    line, _, _ = request.partition(b"\n")
    match = _OWNER.search(line)
    if match is None:
        return None
    letters = match[1].decode()
    return _LETTERS.index(letters[0]) * len(_LETTERS) + _LETTERS.index(letters[1])
