"""The registry has the schemas of a namespace's topics in Redis, for publishers on all machines.

In: documents from `headgate schemas push`. Out: the same documents for every publisher set to use it. In Redis it is a hash
with two fields, `schemas_key(N)`: `documents`, a JSON object from file name to schema, and `version`, their hash. Both are
written in one step, and only over the version that the writer has read, so concurrent writers do not undo each other's work.

The key does not expire. An emptied Redis has no schemas until they are pushed again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headgate.errors import BusUnavailable, InvalidSchema
from headgate.redis.client import Client, call
from headgate.redis.keys import schemas_key

from .documents import MAX_BYTES, Documents, documents

# How often a writer in conflict with others tries.
_TRIES = 5
_NONE = documents({})
# The names around the texts, and JSON's punctuation.
_MAX_PACKED_BYTES = MAX_BYTES + 256 * 300
_STRANGE = "is not what `headgate schemas push` writes"
_REPLACE = """\
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'documents', ARGV[3])
return 1
"""


def read_version(client: Client, namespace: str) -> str | None:
    """Return the version of a namespace's schemas, or None if none were pushed. One round trip.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    (version,) = call(client, "HMGET", schemas_key(namespace), "version")
    return None if version is None else version.decode("ascii", "replace")


def read_registry(client: Client, namespace: str) -> Documents | None:
    """Return a namespace's schemas, or None if none were pushed. One round trip.

    Raises BusUnavailable and BusRefused as `redis.client.call`, and InvalidSchema if the key holds something else.
    """
    version, packed = _fields(client, namespace)
    return None if version is None and packed is None else _unpacked(schemas_key(namespace), version, packed)


def change_registry(
    client: Client, namespace: str, change: Callable[[Documents], Documents], *, replaces_invalid: bool = False
) -> tuple[Documents, Documents]:
    """Apply `change` to a namespace's schemas; return the old and the new ones.

    Args:
        client: for writing. Its user needs `+eval` in addition to `+hmget`, `+hget` and `+hset`.
        change: returns the new schemas for the current ones. May be called again.
        replaces_invalid: treat contents that are not a registry as empty.

    Raises:
        BusUnavailable: as `redis.client.call`, or after too many conflicts.
        BusRefused, InvalidSchema: as `read_registry`, and whatever `change` raises.
    """
    for _ in range(_TRIES):
        version, packed = _fields(client, namespace)
        before = _NONE
        try:
            if packed is not None or version is not None:
                before = _unpacked(schemas_key(namespace), version, packed)
        except InvalidSchema:
            if not replaces_invalid:
                raise
        after = change(before)
        text = msgspec.json.encode({name: msgspec.Raw(text) for name, text in after.texts.items()})
        if call(client, "EVAL", _REPLACE, 1, schemas_key(namespace), version or b"", after.version, text):
            return before, after
    raise BusUnavailable("others write the schemas at the same moment: try again")


def _fields(client: Client, namespace: str) -> tuple[bytes | None, bytes | None]:
    version, packed = call(client, "HMGET", schemas_key(namespace), "version", "documents")
    return version, packed


def _unpacked(where: str, version: bytes | None, packed: bytes | None) -> Documents:
    if packed is None or len(packed) > _MAX_PACKED_BYTES:
        raise InvalidSchema(where, _STRANGE)
    try:
        texts = documents({name: bytes(text) for name, text in msgspec.json.decode(packed, type=dict[str, msgspec.Raw]).items()})
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidSchema(where, f"{_STRANGE}: {error}") from error
    if version is None or texts.version != version.decode("ascii", "replace"):
        raise InvalidSchema(where, f"{_STRANGE}: version {version!r}, expected {texts.version!r}")
    return texts
