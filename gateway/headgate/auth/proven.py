"""Proven tokens: the identities of tokens that were verified before, for callers that send one with every request. No I/O.

In: a token, and the keys in use. Out: the identity that the token proved with these keys. Only what cannot change is kept:
signature and claims. The caller looks each time at what can: whether it has expired, or was revoked.

A token is kept as its SHA-256, so it cannot be read here, and the time of a look-up tells nobody how much of one was guessed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from .identity import Identity
from .tokens import MAX_TOKEN_BYTES

# Of at most MAX_TOKEN_BYTES of grants each. The one that was added first goes first.
MAX_PROVEN = 1024


class ProvenTokens:
    """See the module."""

    def __init__(self) -> None:
        self._keys: object = None
        self._identities: OrderedDict[bytes, Identity] = OrderedDict()

    def get(self, token: str, keys: object) -> Identity | None:
        """Return the identity of a token that was added with these keys."""
        if keys is not self._keys or len(token) > MAX_TOKEN_BYTES:
            return None
        return self._identities.get(_digest(token))

    def add(self, token: str, keys: object, identity: Identity) -> None:
        """Keep what a token has proved with these keys; what was proved with others is forgotten."""
        if keys is not self._keys:
            self._identities.clear()
            self._keys = keys
        self._identities[_digest(token)] = identity
        if len(self._identities) > MAX_PROVEN:
            self._identities.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
