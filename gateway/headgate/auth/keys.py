"""A key for tokens, with its one algorithm. The only file that imports jwt and cryptography. No I/O.

In: the text of a configured key, or an entry of an issuer's set (RFC 7517). Out: a `TokenKey`, which verifies signatures and,
if it is a secret, signs. A weak key, a private key in place of a public one, or a key of another kind than its algorithm is
rejected. key_sets.py reads files and sets; tokens.py selects a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headgate.settings.settings import STRONG_SECRET, is_weak_secret

SECRET_ALGORITHM = "HS256"
ALGORITHMS = (SECRET_ALGORITHM, "RS256", "ES256", "EdDSA")
# (kty, crv) of an entry → its algorithm. Without secrets (`oct`), with which every reader of the set could sign.
_JWK_ALGORITHMS: Mapping[tuple[str, str], str] = {("RSA", ""): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
PUBLIC_ALGORITHMS = tuple(_JWK_ALGORITHMS.values())
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
MAX_KEY_ID_CHARACTERS = 255
_BLOCK_BYTES = 64  # of SHA-256
_EXPECTED = {
    "RS256": f"an RSA public key of at least {MIN_RSA_BITS} bits, at most {MAX_RSA_BITS},",
    "ES256": "a P-256 public key",
    "EdDSA": "an Ed25519 public key",
}

_jws = jwt.PyJWS(algorithms=list(ALGORITHMS))


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One verification key with its one algorithm. `material` is a secret (HS256) or a public key."""

    key_id: str
    algorithm: str
    material: Any = field(repr=False)
    # PyJWT's algorithm and prepared material. None if they do not fit, so that the key verifies nothing.
    _algorithm: Any = field(init=False, repr=False, compare=False)
    _prepared: Any = field(init=False, repr=False, compare=False)
    # For a secret, HMAC's hashes after reading the key (RFC 2104). Copying them takes half the time of `hmac.digest`.
    _inner: Any = field(init=False, repr=False, compare=False)
    _outer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        algorithm = _jws.get_algorithm_by_name(self.algorithm)
        try:
            prepared = algorithm.prepare_key(self.material)
        except (jwt.PyJWTError, ValueError, TypeError):
            prepared = None
        object.__setattr__(self, "_algorithm", algorithm)
        object.__setattr__(self, "_prepared", prepared)
        if self.algorithm == SECRET_ALGORITHM and prepared is not None:
            block = (prepared if len(prepared) <= _BLOCK_BYTES else sha256(prepared).digest()).ljust(_BLOCK_BYTES, b"\0")
            object.__setattr__(self, "_inner", sha256(bytes(byte ^ 0x36 for byte in block)))
            object.__setattr__(self, "_outer", sha256(bytes(byte ^ 0x5C for byte in block)))

    def proves(self, signed: bytes, signature: bytes) -> bool:
        """Return whether this key made a signature. HMACs are compared in constant time."""
        if self._prepared is None:
            return False
        if self.algorithm == SECRET_ALGORITHM:
            inner, outer = self._inner.copy(), self._outer.copy()
            inner.update(signed)
            outer.update(inner.digest())
            return compare_digest(outer.digest(), signature)
        try:
            return bool(self._algorithm.verify(signed, self._prepared, signature))
        except (jwt.PyJWTError, ValueError):
            return False

    def sign(self, payload: bytes, *, name_key: bool) -> str:
        """Return a token with this payload, signed with a secret. `name_key` puts the key id into the header."""
        headers = {"kid": self.key_id} if name_key else None
        return _jws.encode(payload, self.material, algorithm=self.algorithm, headers=headers)

    @classmethod
    def from_text(cls, key_id: str, algorithm: str, text: str) -> TokenKey:
        """Return a configured key from a PEM public key, or for HS256 from a secret (settings.STRONG_SECRET).

        Raises ValueError with the requirement not met and without any part of the key.
        """
        if algorithm not in ALGORITHMS:
            raise ValueError(f"alg: expected one of {', '.join(ALGORITHMS)}")
        if algorithm == SECRET_ALGORITHM and is_weak_secret(text.strip().encode(errors="replace")):
            raise ValueError(f"expected {STRONG_SECRET}")
        try:
            # HS256 rejects PEM text, because a public key is not a secret.
            material: Any = _jws.get_algorithm_by_name(algorithm).prepare_key(text)
        except (jwt.PyJWTError, ValueError, TypeError):
            raise ValueError(f"its key does not fit {algorithm}") from None  # the cause may quote the key
        if algorithm == SECRET_ALGORITHM and text != text.strip():  # checked last, because PEM text ends with a newline
            raise ValueError(f"expected {STRONG_SECRET}")
        if algorithm != SECRET_ALGORITHM and not _fits(algorithm, material):
            raise ValueError(f"expected {_EXPECTED[algorithm]} in PEM")
        return cls(key_id, algorithm, material)

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
        try:
            material = _jws.get_algorithm_by_name(algorithm).from_jwk(entry)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            return None
        return cls(key_id, algorithm, material) if _fits(algorithm, material) else None


def _fits(algorithm: str, material: object) -> bool:
    """Return whether material is a public key for the algorithm, strong enough and not excessively large."""
    match algorithm:
        case "RS256":
            return isinstance(material, rsa.RSAPublicKey) and MIN_RSA_BITS <= material.key_size <= MAX_RSA_BITS
        case "ES256":
            return isinstance(material, ec.EllipticCurvePublicKey) and isinstance(material.curve, ec.SECP256R1)
    return isinstance(material, ed25519.Ed25519PublicKey)
