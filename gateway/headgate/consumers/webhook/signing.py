"""Signatures after the Standard Webhooks specification 1.0.0 (standardwebhooks.com): HMAC-SHA256, scheme `v1`. No I/O."""

from __future__ import annotations

import base64
import binascii
import hmac

from headgate.settings.settings import is_placeholder

PREFIX = "whsec_"
# The specification's bounds on a secret, in bytes before base64.
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
# The current secret, the previous one, and a spare.
MAX_SECRETS = 3
EXPECTED_SECRET = (
    f"1 to {MAX_SECRETS} secrets with spaces between, "
    f"each {PREFIX} and the base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, and no placeholder"
)


def read_secrets(text: str) -> tuple[bytes, ...]:
    """Return the keys in a text of one or several secrets.

    Raises:
        ValueError: it is not EXPECTED_SECRET; the error does not contain the text.
    """
    words = text.split()
    if not 1 <= len(words) <= MAX_SECRETS:
        raise ValueError(f"expected {EXPECTED_SECRET}")
    return tuple(_key(word) for word in words)


def sign(keys: tuple[bytes, ...], message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the header `webhook-signature`: a signature for each key, so a receiver needs only one of them during a rotation.

    Args:
        message_id: the same for every attempt; without a dot, which would make the signed text ambiguous.
        timestamp_s: time of this attempt, in seconds since 1970.
    """
    signed = b"%b.%d.%b" % (message_id.encode("ascii"), timestamp_s, body)
    return " ".join("v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys)


def _key(word: str) -> bytes:
    try:
        key = base64.b64decode(word.removeprefix(PREFIX), validate=True) if word.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES or is_placeholder(key):
        raise ValueError(f"expected {EXPECTED_SECRET}")
    return key
