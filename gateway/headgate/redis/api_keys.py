"""API keys in Redis, in one hash for all gateways, with a field for each valid key. Redis holds only the SHA-256 of a key.

In: keys to add and to revoke, from the command line and the HTTP API. Out: the stored key of an id. A revoked key is removed at
once, but a process may remember it for the time given in auth/api_keys.py. A flush of Redis removes all keys.

All functions raise BusUnavailable and BusRefused as `redis.client.call`. Every call may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headgate.errors import LimitReached

from .budget import Budget
from .client import Client, call, call_all, place_of
from .keys import API_KEYS

# Some 400 bytes each. Concurrent calls at the limit may exceed it by a few.
MAX_KEYS = 1000


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored facts about a key. Times are seconds since 1970.

    The key is for `namespaces`, or for the first one of each gateway if None. `sha256` is the hexadecimal digest of the whole
    key as displayed.
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
    """Add a key. Two round trips. Raises LimitReached if MAX_KEYS exist already."""
    if int(call(client, "HLEN", API_KEYS)) >= MAX_KEYS:
        raise LimitReached("api_keys", MAX_KEYS)
    call(client, "HSET", API_KEYS, key.id, _encode(key).decode())


def find(client: Client, key_id: str) -> StoredKey | None:
    """Return a key, or None if it is unknown or revoked. One round trip."""
    return _read(call(client, "HGET", API_KEYS, key_id))


def find_within(client: Client, within_s: float, key_id: str) -> StoredKey | None:
    """Return a key as `find`, within a budget. Fails at once while publishes with that budget do (budget.py)."""
    with Budget(place_of(client, API_KEYS), within_s):
        return find(client, key_id)


def find_all(client: Client) -> list[StoredKey]:
    """Return all keys, oldest first. One round trip."""
    keys = (_read(each) for each in call(client, "HVALS", API_KEYS))
    return sorted((key for key in keys if key is not None), key=lambda key: (key.created_s, key.id))


def remove(client: Client, key_id: str) -> StoredKey | None:
    """Remove a key and return it, or None if it is unknown. One round trip."""
    was, _ = call_all(client, [("HGET", API_KEYS, key_id), ("HDEL", API_KEYS, key_id)])
    return _read(was)


def remove_again(client: Client, key_ids: Iterable[str]) -> None:
    """Remove keys that a failover may have brought back. One round trip."""
    call(client, "HDEL", API_KEYS, *key_ids)


def _read(value: bytes | None) -> StoredKey | None:
    """Return the key in a field, or None if the field is unreadable, for example if written by hand."""
    try:
        return None if value is None else _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
