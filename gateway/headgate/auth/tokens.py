"""Verifies JWTs with the keys of this gateway, and mints them for development. No I/O.

In: the `token` of a handshake or a `refresh`, and the keys configured (keys.py) or fetched (jwks.py). Out: an `Identity`, or
`Unauthorized` with its reason (errors.py) and no part of the token.

Rules (RFC 8725), in the order of their cost. 1. Size before parsing. 2. The header only selects a configured key; each key has
one algorithm, which the token must name. Addresses in a token are never fetched; jwks.py fetches the issuer's keys from the
operator's address. 3. Signature (keys.py) before claims (claims.py).
"""

from __future__ import annotations

import binascii
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

from headgate.errors import SettingsError, Unauthorized
from headgate.errors import UnauthorizedReason as Reason
from headgate.settings.settings import CHECK_TOKENS, LET_IN, Settings

from .claims import identity_of
from .identity import ANONYMOUS, Handshake, Identity
from .keys import SECRET_ALGORITHM, TokenKey, configured_keys

MAX_TOKEN_BYTES = 8192
# Headers that would take a key or a rule from the token itself.
_REFUSED_HEADERS = frozenset(("crit", "b64", "jku", "jwk", "x5u", "x5c"))
# From base64url to base64. Letters that only base64 has become invalid.
_FROM_URL = bytes.maketrans(b"-_+/", b"+/\0\0")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# By length modulo four (1 is impossible), the padding, and the last letters with unused bits of 0.
_PADDING = (b"", b"", b"==", b"=")
_LAST_LETTERS: tuple[Collection[str], ...] = ((), (), _LETTERS[::16], _LETTERS[::4])


class Tokens:
    """Verifies tokens, and mints them for development.

    Args:
        keys: at least one, with distinct ids.
        now: seconds since 1970.
        audience, leeway_s, issuer: as `identity_of`.

    Attributes:
        keys: the current keys by id. A new object after each replacement.
        are_quick: whether verifying costs about 15 µs, as with secrets only. A public key may take 1 ms.
        may_come: returns whether a key with an unknown id ("" without an id) may still arrive. Must not wait.
    """

    def __init__(
        self,
        keys: list[TokenKey],
        audience: str,
        leeway_s: float,
        now: Callable[[], float] = time.time,
        *,
        issuer: str | None = None,
    ) -> None:
        self.may_come: Callable[[str], bool] = lambda key_id: False
        self._fetched: dict[str, TokenKey] = {}
        self.configure(keys)
        self._audience, self._issuer, self._leeway_s, self._now = audience, issuer, leeway_s, now

    @classmethod
    def configured(cls, settings: Settings) -> Tokens | None:
        """Return the tokens of the settings, or None if they name no key.

        Raises SettingsError if the file of keys cannot be read or holds an invalid key.
        """
        keys = configured_keys(settings)
        if not keys and settings.token_jwks_url is None:
            return None
        return cls(keys, settings.token_audience, settings.token_leeway_s, issuer=settings.token_issuer)

    def configure(self, keys: list[TokenKey]) -> None:
        """Replace the configured keys."""
        self._configured = {key.key_id: key for key in keys}
        self._combine()

    def use_fetched(self, keys: list[TokenKey]) -> None:
        """Replace the issuer's keys. Configured keys with the same id take precedence."""
        self._fetched = {key.key_id: key for key in keys}
        self._combine()

    def verify(self, token: object) -> Identity:
        """Return the identity that a token proves. Pure computation, about 15 µs for HS256.

        Raises Unauthorized with its reason.
        """
        if token is None or token == "":
            raise Unauthorized(Reason.NO_TOKEN)
        if not isinstance(token, str) or not token.isascii():
            raise Unauthorized(Reason.MALFORMED)
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthorized(Reason.TOO_LARGE, f"the token is larger than {MAX_TOKEN_BYTES} bytes")
        return identity_of(self._signed_payload(token), self._audience, self._issuer, self._leeway_s, self._now())

    def mint(
        self,
        user: str,
        subscribe: list[str],
        publish: list[str],
        lifetime_s: int,
        *,
        key_id: str | None = None,
        namespaces: list[str] | None = None,
    ) -> str:
        """Return a token signed with a configured secret, for development and tests.

        Raises:
            SettingsError: there is no such key, or it is public and cannot sign.
            Unauthorized: the token would be refused (an invalid user or pattern).
        """
        key = self._signing_key(key_id)
        now_s = int(self._now())
        claims: dict[str, Any] = {"sub": user, "aud": self._audience, "iat": now_s, "exp": now_s + lifetime_s}
        lists = (("subscribe", subscribe), ("publish", publish), ("namespaces", namespaces))
        claims |= {name: listed for name, listed in lists if listed}
        if self._issuer is not None:
            claims["iss"] = self._issuer
        token = key.sign(json.dumps(claims).encode(), name_key=len(self.keys) > 1)
        self.verify(token)
        return token

    # -- private --------------------------------------------------------------------------------------------------

    def _combine(self) -> None:
        self.keys = {**self._fetched, **self._configured}
        self.are_quick = all(key.algorithm == SECRET_ALGORITHM for key in self.keys.values())

    def _signed_payload(self, token: str) -> bytes:
        """Return the payload after verifying its signature.

        These are the steps of PyJWT's `decode` with its algorithms, each taken once. PyJWT decodes a token twice, checks every
        character in Python, and validates the key for every token, which takes 34 of the 41 µs of an HS256 token.
        """
        parts = token.split(".")
        if len(parts) != 3:
            raise Unauthorized(Reason.MALFORMED)
        header, payload, signature = _read_header(parts[0]), _decode_part(parts[1]), _decode_part(parts[2])
        if not _REFUSED_HEADERS.isdisjoint(header):
            raise Unauthorized(Reason.UNSUPPORTED_HEADER)
        key = self._key_of(header)
        if header.get("alg") != key.algorithm:
            raise Unauthorized(Reason.ALGORITHM_MISMATCH)
        if not key.proves(f"{parts[0]}.{parts[1]}".encode(), signature):
            raise Unauthorized(Reason.BAD_SIGNATURE)
        return payload

    def _key_of(self, header: Mapping[str, Any]) -> TokenKey:
        """Return the key that a header names. A single key needs no name."""
        if "kid" not in header and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        key_id = str(header.get("kid", ""))
        key = self.keys.get(key_id)
        if key is None:
            raise Unauthorized(Reason.KEYS_PENDING if self.may_come(key_id) else Reason.UNKNOWN_KEY)
        return key

    def _signing_key(self, key_id: str | None) -> TokenKey:
        secrets = [key for key in self.keys.values() if key.algorithm == SECRET_ALGORITHM and key_id in (None, key.key_id)]
        if len(secrets) == 1:
            return secrets[0]
        if secrets:
            raise SettingsError([f"several secrets are configured; name one of {', '.join(key.key_id for key in secrets)}"])
        if key_id is not None and key_id not in self.keys:
            raise SettingsError([f"no key {key_id!r}"])
        named = f"key {key_id!r} is" if key_id is not None else "the configured keys are"
        raise SettingsError([f"{named} public, and cannot sign; only the owner of the private key can make tokens"])


def token_authenticator(tokens: Tokens | None, settings: Settings) -> Callable[[Handshake], Identity]:
    """Return the default authenticator, used when an application sets none.

    A client without a token is anonymous in namespaces configured for that, and refused in others. A refused token never makes
    a client anonymous.
    """
    anyone: Identity | None = None
    if settings.dev:
        anyone = Identity(ANONYMOUS, subscribe=("#",), publish=("#",), namespaces=settings.namespaces)
    elif settings.anonymous_subscribe:
        anyone = Identity(ANONYMOUS, subscribe=settings.anonymous_subscribe, namespaces=settings.anonymous_namespaces or None)

    def authenticate(handshake: Handshake) -> Identity:
        if handshake.auth.get("token") is None and anyone is not None:
            return anyone
        if tokens is None:
            cure = LET_IN if anyone is None else f"connect without a token, or {CHECK_TOKENS}"
            raise Unauthorized(Reason.NO_AUTHENTICATOR, f"this gateway has no authenticator: {cure}")
        return tokens.verify(handshake.auth.get("token"))

    return authenticate


def _decode_part(part: str) -> bytes:
    """Return the bytes of one part of a token, in base64url (RFC 7515, section 2).

    Padding, which some issuers add, is accepted. Apart from it, each token has exactly one valid spelling.
    """
    bare = part.rstrip("=")
    if len(bare) != len(part) and (len(part) % 4 or len(part) - len(bare) > 2):
        raise Unauthorized(Reason.MALFORMED)
    spare = len(bare) % 4
    if spare and bare[-1:] not in _LAST_LETTERS[spare]:
        raise Unauthorized(Reason.MALFORMED)  # an impossible length, or unused bits that are not 0
    try:
        return binascii.a2b_base64(bare.encode().translate(_FROM_URL) + _PADDING[spare], strict_mode=True)
    except ValueError:
        raise Unauthorized(Reason.MALFORMED) from None


@lru_cache(maxsize=64)  # all tokens of an issuer have the same header
def _read_header(part: str) -> Mapping[str, Any]:
    data = _decode_part(part)
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        raise Unauthorized(Reason.MALFORMED) from None
    if not isinstance(header, dict) or not isinstance(header.get("kid", ""), str):
        raise Unauthorized(Reason.MALFORMED)
    return header


# Each holds at most MAX_TOKEN_BYTES of grants. The oldest is evicted first.
MAX_PROVEN = 1024


class ProvenTokens:
    """Verified tokens and their identities, cached for callers that send a token with every request. No I/O.

    Signature and claims of a token cannot change, so only these are cached. The caller checks expiry and revocation each time.
    The cache's key is the token's SHA-256, so tokens cannot be read from it and lookup times reveal nothing about them.
    """

    def __init__(self) -> None:
        self._keys: object = None
        self._identities: OrderedDict[bytes, Identity] = OrderedDict()

    def get(self, token: str, keys: object) -> Identity | None:
        """Return the cached identity of a token for these keys."""
        if keys is not self._keys or len(token) > MAX_TOKEN_BYTES:
            return None
        return self._identities.get(_digest(token))

    def add(self, token: str, keys: object, identity: Identity) -> None:
        """Cache the identity of a token for these keys. Other keys empty the cache."""
        if keys is not self._keys:
            self._identities.clear()
            self._keys = keys
        self._identities[_digest(token)] = identity
        if len(self._identities) > MAX_PROVEN:
            self._identities.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
