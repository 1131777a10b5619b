"""Verified tokens and their identities, cached for callers that send a token with every request. No I/O.

In: a token, and the keys in use. Out: the identity that the token proved with these keys. The cache holds only what cannot
change, signature and claims. The caller checks expiry and revocation each time.

The cache key is the token's SHA-256, so tokens cannot be read from it and lookup times reveal nothing about them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from .identity import Identity
from .tokens import MAX_TOKEN_BYTES

# Each holds at most MAX_TOKEN_BYTES of grants. The oldest is evicted first.
MAX_PROVEN = 1024


class ProvenTokens:
    def __init__(self) -> None:
        self._keys: object = None
        self._identities: OrderedDict[bytes, Identity] = OrderedDict()

    def get(self, token: str, keys: object) -> Identity | None:
        """Return the identity of a token that was added with these keys."""
        if keys is not self._keys or len(token) > MAX_TOKEN_BYTES:
            return None
        return self._identities.get(_digest(token))

    def add(self, token: str, keys: object, identity: Identity) -> None:
        """Cache what a token proved with these keys. Other keys empty the cache."""
        if keys is not self._keys:
            self._identities.clear()
            self._keys = keys
        self._identities[_digest(token)] = identity
        if len(self._identities) > MAX_PROVEN:
            self._identities.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
