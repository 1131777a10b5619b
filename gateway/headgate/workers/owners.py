"""Owners: the worker that a session id names. No I/O.

Where several workers share a port, a session id is two letters for a worker's row and 20 random letters. An id proves nothing: it
selects a row of this machine's board, and contains no address.
"""

from __future__ import annotations

import re

# A row is two letters, of 32 each.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
_OWNER = re.compile(rb"[?&]sid=([A-Za-f]{2})[A-Za-z0-9_-]{20}[& ]")


def letters_of(row: int) -> str:
    """Return the first letters of the ids of a worker's sessions."""
    return _LETTERS[row // len(_LETTERS)] + _LETTERS[row % len(_LETTERS)]


def owner_of(request: bytes) -> int | None:
    """Return the row in the session id of a request, from its first line; None without one."""
    line, _, _ = request.partition(b"\n")
    match = _OWNER.search(line)
    if match is None:
        return None
    letters = match[1].decode()
    return _LETTERS.index(letters[0]) * len(_LETTERS) + _LETTERS.index(letters[1])
