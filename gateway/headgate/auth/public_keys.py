"""Public keys for tokens. The only file that imports jwt and cryptography. No I/O.

In: a key as PEM or as an entry of a JWKS. Out: a key of exactly the kind that its algorithm needs, neither weak nor excessively
large, and a function that verifies its signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
_EXPECTED = {
    "RS256": f"an RSA public key of at least {MIN_RSA_BITS} bits, at most {MAX_RSA_BITS},",
    "ES256": "a P-256 public key",
    "EdDSA": "an Ed25519 public key",
}
_jws = jwt.PyJWS(algorithms=list(_EXPECTED))


def verifier(algorithm: str, material: object) -> Callable[[bytes, bytes], bool]:
    """Return a function of signed bytes and a signature, which returns whether a key made it."""
    return partial(_is_signature, _jws.get_algorithm_by_name(algorithm), material)


def from_pem(algorithm: str, text: str) -> object:
    """Return a key. Raises ValueError with the requirement not met and without any part of the key."""
    try:
        material = _jws.get_algorithm_by_name(algorithm).prepare_key(text)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise ValueError(f"its key does not fit {algorithm}") from None  # the cause may quote the key
    if not _fits(algorithm, material):
        raise ValueError(f"expected {_EXPECTED[algorithm]} in PEM")
    return material


def from_jwk(algorithm: str, entry: Mapping[str, Any]) -> object:
    """Return a key, or None if the entry has no such key."""
    try:
        material = _jws.get_algorithm_by_name(algorithm).from_jwk(dict(entry))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return material if _fits(algorithm, material) else None


def _is_signature(algorithm: Any, material: object, signed: bytes, signature: bytes) -> bool:
    try:
        return bool(algorithm.verify(signed, material, signature))
    except (jwt.PyJWTError, ValueError):
        return False


def _fits(algorithm: str, material: object) -> bool:
    """Return whether material is a public key for the algorithm, strong enough and not excessively large."""
    match algorithm:
        case "RS256":
            return isinstance(material, rsa.RSAPublicKey) and MIN_RSA_BITS <= material.key_size <= MAX_RSA_BITS
        case "ES256":
            return isinstance(material, ec.EllipticCurvePublicKey) and isinstance(material.curve, ec.SECP256R1)
    return isinstance(material, ed25519.Ed25519PublicKey)
