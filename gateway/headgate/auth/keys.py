"""Keys for tokens, each with its one algorithm, and sets of them. Those with public keys are in public_keys.py.

In: the settings with the operator's keys, and the bytes of an issuer's set (JWKS, RFC 7517) from jwks.py. Out: lists of
`TokenKey` with distinct ids, which verify signatures and, if they are secrets, sign; or errors that name each invalid key by its
id and never show any part of a key. A weak key, a private key in place of a public one, or a key of another kind than its
algorithm is rejected. tokens.py selects a key. The only I/O is reading the file, at start and at the operator's request.
"""

from __future__ import annotations

import json
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from hmac import compare_digest
from importlib import import_module
from pathlib import Path
from typing import Any

from headgate.errors import SettingsError
from headgate.settings.settings import PREFIX, STRONG_SECRET, Settings, is_weak_secret

SECRET_ALGORITHM = "HS256"
ALGORITHMS = (SECRET_ALGORITHM, "RS256", "ES256", "EdDSA")
# (kty, crv) of an entry → its algorithm. Without secrets (`oct`), with which every reader of the set could sign.
_JWK_ALGORITHMS: Mapping[tuple[str, str], str] = {("RSA", ""): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
PUBLIC_ALGORITHMS = tuple(_JWK_ALGORITHMS.values())
MAX_KEY_ID_CHARACTERS = 255
MAX_KEYS = 64
MAX_KEYS_FILE_BYTES = 256 * 1024
# The key id of HEADGATE_TOKEN_SECRET, needed only together with other keys.
SECRET_KEY_ID = "default"
_BLOCK_BYTES = 64  # of SHA-256


@cache
def _public_keys() -> Any:
    """Import public_keys.py for the first public key. Its libraries take 10 MB and a tenth of the start."""
    return import_module(".public_keys", __package__)


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One verification key with its one algorithm. `material` is a secret (HS256) or a public key."""

    key_id: str
    algorithm: str
    material: Any = field(repr=False)
    # Of a public key. Takes the signed bytes and a signature.
    _is_signature: Callable[[bytes, bytes], bool] = field(init=False, repr=False, compare=False)
    # For a secret, HMAC's hashes after reading the key (RFC 2104). Copying them takes half the time of `hmac.digest`.
    _inner: Any = field(init=False, repr=False, compare=False)
    _outer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.algorithm != SECRET_ALGORITHM:
            object.__setattr__(self, "_is_signature", _public_keys().verifier(self.algorithm, self.material))
            return
        secret = self.material
        block = (secret if len(secret) <= _BLOCK_BYTES else sha256(secret).digest()).ljust(_BLOCK_BYTES, b"\0")
        object.__setattr__(self, "_inner", sha256(bytes(byte ^ 0x36 for byte in block)))
        object.__setattr__(self, "_outer", sha256(bytes(byte ^ 0x5C for byte in block)))

    def proves(self, signed: bytes, signature: bytes) -> bool:
        """Return whether this key made a signature. HMACs are compared in constant time."""
        if self.algorithm != SECRET_ALGORITHM:
            return self._is_signature(signed, signature)
        return compare_digest(self._hmac(signed), signature)

    def sign(self, payload: bytes, *, name_key: bool) -> str:
        """Return a token with this payload, signed with a secret. `name_key` puts the key id into the header."""
        header = {"alg": self.algorithm, "typ": "JWT"} | ({"kid": self.key_id} if name_key else {})
        signed = b"%b.%b" % (_encoded(json.dumps(header).encode()), _encoded(payload))
        return (b"%b.%b" % (signed, _encoded(self._hmac(signed)))).decode()

    def _hmac(self, signed: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(signed)
        outer.update(inner.digest())
        return outer.digest()  # type: ignore[no-any-return]

    @classmethod
    def from_text(cls, key_id: str, algorithm: str, text: str) -> TokenKey:
        """Return a configured key from a PEM public key, or for HS256 from a secret (settings.STRONG_SECRET).

        Raises ValueError with the requirement not met and without any part of the key.
        """
        if algorithm not in ALGORITHMS:
            raise ValueError(f"alg: expected one of {', '.join(ALGORITHMS)}")
        if algorithm != SECRET_ALGORITHM:
            return cls(key_id, algorithm, _public_keys().from_pem(algorithm, text))
        secret = text.encode(errors="surrogateescape")
        if is_weak_secret(secret):
            raise ValueError(f"expected {STRONG_SECRET}")
        return cls(key_id, algorithm, secret)

    @classmethod
    def from_jwk(cls, entry: object) -> TokenKey | None:
        """Return a key of an issuer's set if it is public, named, and for signatures of one algorithm; None otherwise."""
        if not isinstance(entry, dict):
            return None
        key_id, operations = entry.get("kid"), entry.get("key_ops")
        algorithm = _JWK_ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))))
        if algorithm is None or entry.get("alg", algorithm) != algorithm or entry.get("use", "sig") != "sig" or "d" in entry:
            return None
        if not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_KEY_ID_CHARACTERS:
            return None
        if operations is not None and not (isinstance(operations, list) and "verify" in operations):
            return None
        material = _public_keys().from_jwk(algorithm, entry)
        return None if material is None else cls(key_id, algorithm, material)


def _encoded(part: bytes) -> bytes:
    """Return a part of a token in base64url without padding (RFC 7515, section 2)."""
    return urlsafe_b64encode(part).rstrip(b"=")


def configured_keys(settings: Settings) -> list[TokenKey]:
    """Read the keys in HEADGATE_TOKEN_KEYS and HEADGATE_TOKEN_SECRET.

    Raises SettingsError if the file cannot be read or holds an invalid key.
    """
    keys = read_keys(settings.token_keys) if settings.token_keys else []
    if settings.token_jwks_url is not None:
        _public_keys()  # the issuer's keys come when clients are connected, who would wait for the import
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
            keys.append(_checked_key(key_id, entry))
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


def _checked_key(key_id: str, entry: object) -> TokenKey:
    if not isinstance(entry, dict) or set(entry) != {"alg", "key"} or not all(isinstance(part, str) for part in entry.values()):
        raise ValueError("expected {alg, key}, both text")
    return TokenKey.from_text(key_id, entry["alg"], entry["key"])
