"""Owners: the process that a session id names. No I/O.

A session id is 20 random letters, behind two letters for a worker's row where several share a port, behind six letters for a
gateway where gateways relay. An id claims its owner and proves nothing: it selects a row of this machine's board, or an entry of
the directory, and no address is ever read out of it.
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

# A row is two letters, of 32 each.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
_GATEWAY_LETTERS = 6
_OWNER = re.compile(rb"[?&]sid=([A-Za-z0-9_-]{6})?([A-Za-f]{2})[A-Za-z0-9_-]{20}[& ]")


class Owner(NamedTuple):
    """One process. `gateway` is empty where gateways do not relay; a gateway with one process has row 0."""

    gateway: str
    row: int

    @property
    def letters(self) -> str:
        """With what the ids of its sessions begin."""
        return f"{self.gateway}{_LETTERS[self.row // len(_LETTERS)]}{_LETTERS[self.row % len(_LETTERS)]}"


def new_gateway() -> str:
    """Return a name for a gateway: 36 random bits."""
    return secrets.token_urlsafe(_GATEWAY_LETTERS)[:_GATEWAY_LETTERS]


def owner_of(request: bytes) -> Owner | None:
    """Return the owner that a request's session id names, from the first line of the request; None when it names none."""
    line, _, _ = request.partition(b"\n")
    found = _OWNER.search(line)
    if found is None:
        return None
    letters = found[2].decode()
    return Owner((found[1] or b"").decode(), _LETTERS.index(letters[0]) * len(_LETTERS) + _LETTERS.index(letters[1]))


def asks_for_websocket(request: bytes | bytearray) -> bool:
    """Return whether a request asks for a WebSocket, by its first line."""
    line, _, _ = request.partition(b"\n")
    return b"transport=websocket" in line
