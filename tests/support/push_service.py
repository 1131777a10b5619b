"""A browser with a push service: a subscription, and its messages, checked and decrypted after RFC 8291 and RFC 8292.

It shares no code with the product, as key derivation is HKDF of the library cryptography, and tokens are read by PyJWT.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class PushBrowser:
    """One browser's subscription at `endpoint`."""

    def __init__(self, endpoint: str, key: ec.EllipticCurvePrivateKey | None = None, auth: bytes = bytes(range(16))) -> None:
        self.endpoint, self._auth = endpoint, auth
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        self._point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def subscription(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "expirationTime": None,
            "keys": {"p256dh": encoded(self._point), "auth": encoded(self._auth)},
        }

    def read(self, body: bytes) -> bytes:
        """Return the payload of a message; raises if it is not for this browser, or not as RFC 8188 and RFC 8291 want it."""
        salt, record_bytes, length = body[:16], int.from_bytes(body[16:20]), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(body) <= 4096
        assert len(sealed) <= record_bytes
        shared = self._key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        secret = _hkdf(32, self._auth, b"WebPush: info\x00" + self._point + sender, shared)
        key = _hkdf(16, salt, b"Content-Encoding: aes128gcm\x00", secret)
        padded = AESGCM(key).decrypt(_hkdf(12, salt, b"Content-Encoding: nonce\x00", secret), sealed, None).rstrip(b"\x00")
        assert padded[-1:] == b"\x02"
        return padded[:-1]

    def receive(self, headers: Mapping[str, str], body: bytes, public_key: str, origin: str) -> Any:
        """Return a service worker's message; raises if the request is not signed with this key for the service at `origin`."""
        assert headers["content-encoding"] == "aes128gcm"
        scheme, _, parameters = headers["authorization"].partition(" ")
        token, key = (each.strip().split("=", 1)[1] for each in parameters.split(","))
        assert (scheme, key) == ("vapid", public_key)
        point = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
        signed_by = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        claims = jwt.decode(token, signed_by, algorithms=["ES256"], audience=origin)
        assert claims["sub"].startswith(("mailto:", "https://"))
        return json.loads(self.read(body))


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _hkdf(length: int, salt: bytes, info: bytes, secret: bytes) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)
