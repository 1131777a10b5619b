"""Encrypts a message for one browser (RFC 8291) and signs for its sender (RFC 8292). No I/O.

In: the application's private key, a browser's subscription, a payload. Out: a body that only this browser can read, and the
value of the header `Authorization`. Keys are the 32 bytes of a private key, or the 65-byte point of a public key, in base64url
without padding.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Callable
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# A push service accepts 4096 bytes (RFC 8030, section 7.2), of which 86 are header, 16 tag, and 1 delimiter.
RECORD_BYTES = 4096
MAX_PAYLOAD_BYTES = RECORD_BYTES - 86 - 16 - 1
EXPECTED_KEY = "a private key as `headgate vapid-keys` makes it"
# Half of the 24 hours that RFC 8292, section 2, allows, to tolerate differing clocks.
TOKEN_S = 12 * 3600
_CURVE = ec.SECP256R1()
_SECRET_BYTES, _AUTH_BYTES, _SALT_BYTES = 32, 16, 16


class Subscription(msgspec.Struct, frozen=True):
    """A browser's subscription. `endpoint` is a secret, because it and the application's key suffice to push."""

    endpoint: str
    public_key: bytes
    auth: bytes


def read_subscription(raw: object) -> Subscription:
    """Read the result of `PushSubscription.toJSON()`, as an object or as JSON text.

    Raises ValueError, without any part of it, if it is invalid.
    """
    try:
        fields = msgspec.convert(msgspec.json.decode(raw) if isinstance(raw, str | bytes) else raw, dict[str, Any])
        endpoint, keys = msgspec.convert(fields["endpoint"], str), msgspec.convert(fields["keys"], dict[str, str])
        public_key, auth = decode(keys["p256dh"]), decode(keys["auth"])
        ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, public_key)
        if len(auth) != _AUTH_BYTES or len(public_key) != 65:
            raise ValueError
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError('expected {"endpoint", "keys": {"p256dh", "auth"}}, as PushSubscription.toJSON() makes it') from error
    return Subscription(endpoint, public_key, auth)


class ApplicationKey:
    """The key pair that identifies the application to push services (VAPID).

    Raises ValueError if the text is not a private key.
    """

    def __init__(self, private_key: str) -> None:
        try:
            secret = decode(private_key)
            if len(secret) != _SECRET_BYTES:
                raise ValueError
            self._key = ec.derive_private_key(int.from_bytes(secret), _CURVE)
        except ValueError as error:
            raise ValueError(f"expected {EXPECTED_KEY}") from error
        self.public_text = encode(_point(self._key))

    def authorization(self, origin: str, contact: str, now_s: float) -> str:
        """Return the header `Authorization` for the push service at `origin`; `now_s` is the time since 1970."""
        claims = {"aud": origin, "exp": int(now_s) + TOKEN_S, "sub": contact}
        signed = f"{_TOKEN_HEAD}.{encode(msgspec.json.encode(claims))}"
        numbers = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = b"".join(number.to_bytes(_SECRET_BYTES) for number in numbers)
        return f"vapid t={signed}.{encode(signature)}, k={self.public_text}"


def new_keys() -> tuple[str, str]:
    """Return a new private key and its public key."""
    key = ec.generate_private_key(_CURVE)
    return encode(key.private_numbers().private_value.to_bytes(_SECRET_BYTES)), encode(_point(key))


def encrypt(
    payload: bytes,
    to: Subscription,
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    random: Callable[[int], bytes] = os.urandom,
) -> bytes:
    """Return the body of a push message (`Content-Encoding: aes128gcm`).

    Args:
        payload: at most MAX_PAYLOAD_BYTES.
        key, random: only for this message; set in tests.
    """
    key = key or ec.generate_private_key(_CURVE)
    own, salt = _point(key), random(_SALT_BYTES)
    shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, to.public_key))
    first = _derive(to.auth, shared, b"WebPush: info\0" + to.public_key + own, 32)
    cipher = AESGCM(_derive(salt, first, b"Content-Encoding: aes128gcm\0", 16))
    sealed = cipher.encrypt(_derive(salt, first, b"Content-Encoding: nonce\0", 12), payload + b"\x02", None)
    return salt + RECORD_BYTES.to_bytes(4) + bytes([len(own)]) + own + sealed


def encode(raw: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return the bytes of base64url, with or without padding. Raises ValueError if it is not base64url."""
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("expected base64url") from error


_TOKEN_HEAD = encode(b'{"typ":"JWT","alg":"ES256"}')


def _derive(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    """Derive up to 32 bytes by HKDF with SHA-256 (RFC 5869), which needs one step for them."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\x01", "sha256")[:length]


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
