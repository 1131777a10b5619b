"""Keys of tokens for tests, one for each algorithm, and the forms in which they are configured and published."""

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

SECRET = b"canary-secret-0123456789abcdefghijkl"
OTHER_SECRET = b"another-secret-0123456789abcdefghijk"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SMALL_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def pem(private: Any) -> str:
    """Return the public half of a key, as configured."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    text: bytes = private.public_key().public_bytes(serialization.Encoding.PEM, form)
    return text.decode()


def algorithm_of(private: Any) -> str:
    if isinstance(private, rsa.RSAPrivateKey):
        return "RS256"
    return "ES256" if isinstance(private, ec.EllipticCurvePrivateKey) else "EdDSA"


def jwk(key_id: object, private: Any, **changes: Any) -> dict[str, Any]:
    """Return the public half of a key as an issuer shows it, with changes; None takes a member out."""
    body = jwt.get_algorithm_by_name(algorithm_of(private)).to_jwk(private.public_key(), as_dict=True)
    body.pop("key_ops", None)
    shown = {**body, "kid": key_id, "use": "sig", **changes}
    return {name: value for name, value in shown.items() if value is not None}


def jwks(**keys: Any) -> bytes:
    """Return an issuer's set of keys, as key id = private key."""
    return json.dumps({"keys": [jwk(key_id, private) for key_id, private in keys.items()]}).encode()


def segment(value: Any) -> str:
    """Return a part of a token, of bytes, or a value as JSON, in base64url."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
