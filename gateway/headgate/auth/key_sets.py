"""Reads sets of keys, the operator's from settings and a file, and an issuer's (JWKS, RFC 7517).

In: the settings, and the bytes fetched by jwks.py. Out: lists of `TokenKey` with distinct ids, or errors that name each invalid
key by its id and never show any part of a key. The only I/O is reading the file, at start and at the operator's request.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from headgate.errors import SettingsError
from headgate.settings.settings import PREFIX, Settings

from .keys import PUBLIC_ALGORITHMS, SECRET_ALGORITHM, TokenKey

MAX_KEYS = 64
MAX_KEYS_FILE_BYTES = 256 * 1024
# The key id of HEADGATE_TOKEN_SECRET, needed only together with other keys.
SECRET_KEY_ID = "default"


def configured_keys(settings: Settings) -> list[TokenKey]:
    """Read the keys in HEADGATE_TOKEN_KEYS and HEADGATE_TOKEN_SECRET.

    Raises SettingsError if the file cannot be read or holds an invalid key.
    """
    keys = read_keys(settings.token_keys) if settings.token_keys else []
    if settings.token_secret is not None:
        if any(key.key_id == SECRET_KEY_ID for key in keys):
            raise SettingsError(
                [f"{PREFIX}TOKEN_KEYS: key {SECRET_KEY_ID!r} is {PREFIX}TOKEN_SECRET's name; give it another or set only one"]
            )
        keys.append(TokenKey(SECRET_KEY_ID, SECRET_ALGORITHM, settings.token_secret.encode(errors="surrogateescape")))
    return keys


def read_keys(path: str) -> list[TokenKey]:
    """Return the keys of a JSON or .toml file, `{<key id>: {"alg": …, "key": …}}`; `key` as in `TokenKey.from_text`.

    Raises SettingsError: lists every fault, without any part of a key.
    """
    setting = f"{PREFIX}TOKEN_KEYS={path}"
    try:
        if Path(path).stat().st_size > MAX_KEYS_FILE_BYTES:
            raise SettingsError([f"{setting}: expected a file of at most {MAX_KEYS_FILE_BYTES} bytes"])
        text = Path(path).read_text("utf-8-sig")
        entries: Any = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except OSError as error:
        raise SettingsError([f"{setting}: {error.strerror or 'cannot be read'}"]) from error
    except (ValueError, RecursionError):
        # Not `from error`, because its text may quote the file.
        raise SettingsError([f"{setting}: expected JSON, or TOML in a file whose name ends in .toml"]) from None
    if not isinstance(entries, dict) or not 1 <= len(entries) <= MAX_KEYS:
        raise SettingsError([f"{setting}: expected 1 to {MAX_KEYS} keys, each {{alg, key}} under its key id"])
    keys, faults = [], []
    for key_id, entry in entries.items():
        try:
            keys.append(_key(key_id, entry))
        except ValueError as fault:
            faults.append(f"{setting}: key {key_id[:80]!r}: {fault}")
    if faults:
        raise SettingsError(faults)
    return keys


def read_jwks(text: bytes) -> list[TokenKey]:
    """Return the keys of an issuer's set that can verify tokens here (`TokenKey.from_jwk`).

    Skips others, because an issuer may have keys for other purposes. Raises ValueError if it is not a JWKS or has no usable
    key.
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    entries = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise ValueError(f"the answer is no JWKS with at most {MAX_KEYS} keys")
    keys: dict[str, TokenKey] = {}
    for key in map(TokenKey.from_jwk, entries):
        if key is not None:
            keys.setdefault(key.key_id, key)
    if not keys:
        raise ValueError(f"the answer has no public key with a `kid` for one of {', '.join(PUBLIC_ALGORITHMS)}")
    return list(keys.values())


def _key(key_id: str, entry: object) -> TokenKey:
    if not isinstance(entry, dict) or set(entry) != {"alg", "key"} or not all(isinstance(part, str) for part in entry.values()):
        raise ValueError("expected {alg, key}, both text")
    return TokenKey.from_text(key_id, entry["alg"], entry["key"])
