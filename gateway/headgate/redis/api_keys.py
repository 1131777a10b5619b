"""API keys in Redis: one hash for all gateways, with a field for each key that counts. A key itself is never there, only its
SHA-256.

In: new keys and ends of keys, from the command line and the HTTP API. Out: what is known of a key, by its id. A key that is
revoked is gone at once; a process may remember it for as long as auth/api_keys.py says. A flush ends all keys.

Raises (all functions): BusUnavailable, BusRefused: as `redis.client.call`. Every call may be repeated.
"""

from __future__ import annotations

import msgspec

from headgate.errors import LimitReached

from .client import Client, call, call_all
from .keys import API_KEYS

# Some 400 bytes each. Calls that race with each other at the limit may exceed it by a few.
MAX_KEYS = 1000


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a key. Times are seconds since 1970.

    `namespaces`: those that it is for; None: the first of each gateway. `sha256` is of the whole key as it is shown, in
    hexadecimal.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    sha256: str
    created_s: int
    created_by: str = ""
    namespaces: tuple[str, ...] | None = None
    expires_s: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoredKey).decode


def add(client: Client, key: StoredKey) -> None:
    """Let a new key count. Two round trips.

    Raises:
        LimitReached: there are MAX_KEYS.
    """
    if int(call(client, "HLEN", API_KEYS)) >= MAX_KEYS:
        raise LimitReached("api_keys", MAX_KEYS)
    call(client, "HSET", API_KEYS, key.id, _encode(key).decode())


def find(client: Client, key_id: str) -> StoredKey | None:
    """Return what is known of a key; None: it does not count (any more). One round trip."""
    return _read(call(client, "HGET", API_KEYS, key_id))


def find_all(client: Client) -> list[StoredKey]:
    """Return all keys, the oldest first. One round trip."""
    found = (_read(each) for each in call(client, "HVALS", API_KEYS))
    return sorted((key for key in found if key is not None), key=lambda key: (key.created_s, key.id))


def remove(client: Client, key_id: str) -> StoredKey | None:
    """End a key; return what was known of it, or None where it did not count. One round trip."""
    was, _ = call_all(client, [("HGET", API_KEYS, key_id), ("HDEL", API_KEYS, key_id)])
    return _read(was)


def _read(value: bytes | None) -> StoredKey | None:
    """Return what a field says. One that was put there by hand, and says nothing that we understand, is no key."""
    try:
        return None if value is None else _decode(value)
    except msgspec.DecodeError:
        return None
