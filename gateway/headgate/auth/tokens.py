"""Tokens: from a JWT to an identity, or to one word that says why not. The one file that imports jwt.

In: the `token` of a handshake or of a `refresh`, and the keys that were configured. Out: an `Identity`, or `Unauthorized`
with its reason (errors.py), whose text never holds any part of the token.

Rules (RFC 8725), in the order of their cost. 1. Size before parsing. 2. The header only chooses among configured keys;
each key has one algorithm, and the token must name that one. Nothing is fetched from where a token says; jwks.py fetches the
issuer's keys from where the operator says. 3. Signature before claims. 4. `exp`, `aud` and `sub` are required, and every claim
that we read must have the type that it should have.

No I/O but for the file of keys, which is read at start and when the operator asks for it.
"""

from __future__ import annotations

import binascii
import json
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headgate.errors import HeadgateError, InvalidTopic, SettingsError, Unauthorized, UnknownNamespace
from headgate.errors import UnauthorizedReason as Reason
from headgate.settings import PREFIX, STRONG_SECRET, Settings, is_weak_secret
from headgate.topic import check_namespace, check_pattern, check_word

from .identity import ANONYMOUS, Handshake, Identity

MAX_TOKEN_BYTES = 8192
# Patterns in one claim; containment is asked of each at every subscribe.
MAX_GRANTS = 64
MAX_USER_CHARACTERS = 255
MAX_KEYS = 64
MAX_KEYS_FILE_BYTES = 256 * 1024
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
# The key id of HEADGATE_TOKEN_SECRET, needed only beside other keys.
SECRET_KEY_ID = "default"
# Headers that would have us take a key, or a rule, from the token itself.
_REFUSED_HEADERS = frozenset(("crit", "b64", "jku", "jwk", "x5u", "x5c"))
_ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")
_JWK_ALGORITHMS: Mapping[tuple[str, ...], str] = {("RSA", ""): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}

_jws = jwt.PyJWS(algorithms=list(_ALGORITHMS))
# Between the alphabets of base64url and base64; what is in the other one only becomes nothing that either has.
_FROM_URL = str.maketrans("-_+/", "+/\0\0")
_TO_URL = bytes.maketrans(b"+/", b"-_")
_decode_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Key:
    """One verification key with its one algorithm. `material` is a secret (HS256) or a public key."""

    key_id: str
    algorithm: str
    material: Any = field(repr=False)


class Tokens:
    """Verifies tokens, and mints them for development.

    Args:
        keys: at least one; key ids are distinct.
        audience: what `aud` must hold.
        leeway_s: how far clocks may differ, for `exp`, `nbf` and `iat`.
        now: seconds since 1970.
        issuer: what `iss` must be; None: it is not looked at.

    Attributes:
        may_come: asked about a key id that is unknown ("" for none): whether a key of that name may be on its way. Must not wait.
    """

    def __init__(
        self,
        keys: list[Key],
        audience: str,
        leeway_s: float,
        now: Callable[[], float] = time.time,
        *,
        issuer: str | None = None,
    ) -> None:
        self.may_come: Callable[[str], bool] = lambda key_id: False
        self._configured = {key.key_id: key for key in keys}
        self._fetched: dict[str, Key] = {}
        self._keys: dict[str, Key] = self._configured
        self._prepared: dict[str, Any] = {}  # key id → the material as its algorithm wants it
        self._audience, self._issuer = audience, issuer
        self._leeway_s = leeway_s
        self._now = now

    @classmethod
    def configured(cls, settings: Settings) -> Tokens | None:
        """Return what the settings describe, or None when they name no key.

        Raises:
            SettingsError: the file of keys cannot be read or holds a key that is none.
        """
        keys = configured_keys(settings)
        if not keys and settings.token_jwks_url is None:
            return None
        return cls(keys, settings.token_audience, settings.token_leeway_s, issuer=settings.token_issuer)

    def configure(self, keys: list[Key]) -> None:
        """Replace the configured keys."""
        self._configured = {key.key_id: key for key in keys}
        self._put_in_force()

    def use_fetched(self, keys: list[Key]) -> None:
        """Replace the issuer's keys. A configured key of the same name wins."""
        self._fetched = {key.key_id: key for key in keys}
        self._put_in_force()

    def _put_in_force(self) -> None:
        self._keys = {**self._fetched, **self._configured}
        self._prepared.clear()

    def verify(self, token: object) -> Identity:
        """Return the identity that a token proves. Pure computation, some 15 µs for HS256.

        Raises:
            Unauthorized: with its reason.
        """
        if token is None or token == "":
            raise Unauthorized(Reason.NO_TOKEN)
        if not isinstance(token, str) or not token.isascii():
            raise Unauthorized(Reason.MALFORMED)
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthorized(Reason.TOO_LARGE, f"the token is larger than {MAX_TOKEN_BYTES} bytes")
        return self._identity(_claims(self._signed_payload(token)))

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
        """Return a token signed with a configured secret: for development, and for tests.

        Raises:
            SettingsError: there is no such key, or it is a public one, which cannot sign.
            Unauthorized: the token would not be accepted (an invalid user or pattern).
        """
        key = self._signing_key(key_id)
        now_s = int(self._now())
        claims: dict[str, Any] = {"sub": user, "aud": self._audience, "iat": now_s, "exp": now_s + lifetime_s}
        lists = (("subscribe", subscribe), ("publish", publish), ("namespaces", namespaces))
        claims |= {name: listed for name, listed in lists if listed}
        if self._issuer is not None:
            claims["iss"] = self._issuer
        headers = {"kid": key.key_id} if len(self._keys) > 1 else None
        token = _jws.encode(json.dumps(claims).encode(), key.material, algorithm=key.algorithm, headers=headers)
        self.verify(token)
        return token

    # -- private --------------------------------------------------------------------------------------------------

    def _signed_payload(self, token: str) -> bytes:
        """Return the payload once its signature is proven.

        The steps of PyJWT's `decode` over its own algorithms, each taken once: it decodes a token twice, looks at every character
        in Python, and asks of the key, for every token, whether it may be one (34 µs of the 41 that an HS256 token took).
        """
        parts = token.split(".")
        if len(parts) != 3:
            raise Unauthorized(Reason.MALFORMED)
        header, payload, proof = _read_header(_decode_part(parts[0])), _decode_part(parts[1]), _decode_part(parts[2])
        if not _REFUSED_HEADERS.isdisjoint(header):
            raise Unauthorized(Reason.UNSUPPORTED_HEADER)
        key = self._key_of(header)
        if header.get("alg") != key.algorithm:
            raise Unauthorized(Reason.ALGORITHM_MISMATCH)
        if not self._proves(key, f"{parts[0]}.{parts[1]}".encode(), proof):
            raise Unauthorized(Reason.BAD_SIGNATURE)
        return payload

    def _proves(self, key: Key, signed: bytes, proof: bytes) -> bool:
        """Return whether a signature is a key's; compares HMACs in constant time."""
        try:
            material = self._prepared.get(key.key_id)
            if material is None:
                material = self._prepared[key.key_id] = _jws.get_algorithm_by_name(key.algorithm).prepare_key(key.material)
            return _jws.get_algorithm_by_name(key.algorithm).verify(signed, material, proof)
        except (jwt.PyJWTError, ValueError):
            return False

    def _key_of(self, header: Mapping[str, Any]) -> Key:
        key_id = header.get("kid", "")
        if "kid" not in header and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        key = self._keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            if self.may_come(str(key_id)):
                raise Unauthorized(Reason.KEYS_PENDING)
            raise Unauthorized(Reason.UNKNOWN_KEY)
        return key

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        for name in ("exp", "aud", "sub"):
            if claims.get(name) is None:
                raise Unauthorized(Reason.MISSING_CLAIM, claim=name)
        expires_at = _time(claims, "exp")
        self._check_audience(claims["aud"])
        if self._issuer is not None:
            if claims.get("iss") is None:
                raise Unauthorized(Reason.MISSING_CLAIM, claim="iss")
            if claims["iss"] != self._issuer:
                raise Unauthorized(Reason.WRONG_ISSUER)
        now_s = self._now()
        if expires_at + self._leeway_s <= now_s:
            raise Unauthorized(Reason.EXPIRED)
        for name in ("nbf", "iat"):
            if claims.get(name) is not None and _time(claims, name) - self._leeway_s > now_s:
                raise Unauthorized(Reason.NOT_YET_VALID, claim=name)
        user, token_id = _text(claims, "sub"), _text(claims, "jti") if claims.get("jti") is not None else None
        if user == ANONYMOUS or not {"*", "#"}.isdisjoint(user.split(".")):
            raise Unauthorized(Reason.INVALID_CLAIM, claim="sub")
        return Identity(
            user,
            subscribe=_grants(claims, "subscribe", user),
            publish=_grants(claims, "publish", user),
            expires_at=expires_at + self._leeway_s,
            token_id=token_id,
            namespaces=_namespaces(claims),
        )

    def _check_audience(self, audience: object) -> None:
        accepted = audience if isinstance(audience, list) else [audience]
        if not all(isinstance(name, str) for name in accepted):
            raise Unauthorized(Reason.INVALID_CLAIM, claim="aud")
        if self._audience not in accepted:
            raise Unauthorized(Reason.WRONG_AUDIENCE)

    def _signing_key(self, key_id: str | None) -> Key:
        secrets = [key for key in self._keys.values() if key.algorithm == "HS256" and key_id in (None, key.key_id)]
        if len(secrets) == 1:
            return secrets[0]
        if key_id is None and secrets:
            raise SettingsError([f"several secrets are configured; name one of {', '.join(key.key_id for key in secrets)}"])
        named = f"key {key_id!r} is" if key_id in self._keys else "the configured keys are" if key_id is None else None
        raise SettingsError(
            [
                f"{named} public, and cannot sign; tokens are made by whoever has the private key"
                if named
                else f"no key {key_id!r}"
            ]
        )


def configured_keys(settings: Settings) -> list[Key]:
    """Return the keys that the settings name, read anew: HEADGATE_TOKEN_KEYS and HEADGATE_TOKEN_SECRET.

    Raises:
        SettingsError: the file cannot be read or holds a key that is none.
    """
    keys = read_keys(settings.token_keys) if settings.token_keys else []
    if settings.token_secret is not None:
        if any(key.key_id == SECRET_KEY_ID for key in keys):
            raise SettingsError(
                [f"{PREFIX}TOKEN_KEYS: key {SECRET_KEY_ID!r} is {PREFIX}TOKEN_SECRET's name; give it another or set only one"]
            )
        keys.append(Key(SECRET_KEY_ID, "HS256", settings.token_secret.encode(errors="surrogateescape")))
    return keys


def token_authenticator(tokens: Tokens | None, settings: Settings) -> Callable[[Handshake], Identity]:
    """Return the authenticator that is used when an application brings none.

    Without a token a client is anonymous where that is configured, and refused elsewhere. A token that is not accepted
    never makes anyone anonymous.
    """
    anyone = _anonymous(settings)

    def authenticate(handshake: Handshake) -> Identity:
        if handshake.auth.get("token") is None and anyone is not None:
            return anyone
        if tokens is None:
            raise Unauthorized(
                Reason.NO_AUTHENTICATOR,
                f"this gateway has no authenticator: give `Headgate` one, set {PREFIX}TOKEN_SECRET, {PREFIX}TOKEN_KEYS "
                f"or {PREFIX}TOKEN_JWKS_URL, or start with --dev on your own machine",
            )
        return tokens.verify(handshake.auth.get("token"))

    return authenticate


def read_keys(path: str) -> list[Key]:
    """Return the keys of a file: JSON, or TOML if it is named so, `{<key id>: {"alg": …, "key": …}}`.

    `key` is a PEM public key, or for HS256 a secret (settings.STRONG_SECRET).

    Raises:
        SettingsError: with every fault, none of which shows any part of a key.
    """
    setting = f"{PREFIX}TOKEN_KEYS={path}"
    try:
        if Path(path).stat().st_size > MAX_KEYS_FILE_BYTES:
            raise SettingsError([f"{setting}: expected a file of at most {MAX_KEYS_FILE_BYTES} bytes"])
        text = Path(path).read_text("utf-8")
        entries: Any = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except OSError as error:
        raise SettingsError([f"{setting}: {error.strerror or 'cannot be read'}"]) from error
    except (ValueError, RecursionError):
        # Not `from error`: its text may quote the file.
        raise SettingsError([f"{setting}: expected JSON, or TOML in a file whose name ends in .toml"]) from None
    if not isinstance(entries, dict) or not 1 <= len(entries) <= MAX_KEYS:
        raise SettingsError([f"{setting}: expected 1 to {MAX_KEYS} keys, each {{alg, key}} under its key id"])
    keys, faults = [], []
    for key_id, entry in entries.items():
        fault, key = _key(key_id, entry)
        if key is not None:
            keys.append(key)
        else:
            faults.append(f"{setting}: key {key_id[:80]!r}: {fault}")
    if faults:
        raise SettingsError(faults)
    return keys


def _key(key_id: str, entry: object) -> tuple[str, Key | None]:
    """Return the key, or what is wrong with it."""
    if not isinstance(entry, dict) or set(entry) != {"alg", "key"} or not all(isinstance(part, str) for part in entry.values()):
        return "expected {alg, key}, both text", None
    algorithm, text = entry["alg"], entry["key"]
    if algorithm not in _ALGORITHMS:
        return f"alg: expected one of {', '.join(_ALGORITHMS)}", None
    if algorithm == "HS256" and is_weak_secret(text.encode(errors="replace")):
        return f"expected {STRONG_SECRET}", None
    try:
        # HS256 refuses a PEM text: a public key is not a secret.
        material: Any = _jws.get_algorithm_by_name(algorithm).prepare_key(text)
    except (jwt.PyJWTError, ValueError, TypeError):
        return f"its key does not fit {algorithm}", None
    expected = {
        "RS256": f"an RSA public key of at least {MIN_RSA_BITS} bits, at most {MAX_RSA_BITS},",
        "ES256": "a P-256 public key",
    }
    if not _fits(algorithm, material):
        return f"expected {expected.get(algorithm, 'an Ed25519 public key')} in PEM", None
    return "", Key(key_id, algorithm, material)


def _fits(algorithm: str, material: object) -> bool:
    """Return whether a prepared key is one of its algorithm's, and strong enough, but not so large that it costs too much."""
    match algorithm:
        case "HS256":
            return isinstance(material, bytes)
        case "RS256":
            return isinstance(material, rsa.RSAPublicKey) and MIN_RSA_BITS <= material.key_size <= MAX_RSA_BITS
        case "ES256":
            return isinstance(material, ec.EllipticCurvePublicKey) and isinstance(material.curve, ec.SECP256R1)
    return isinstance(material, ed25519.Ed25519PublicKey)


def read_jwks(text: bytes) -> list[Key]:
    """Return the keys of a JWKS (RFC 7517) that can verify tokens here: public, named, for signatures, each with one algorithm.

    Others are passed over, as an issuer may have some for other purposes. Secrets (`oct`) are never taken: whoever can read
    the address could sign.

    Raises:
        ValueError: it is no JWKS, or has no key of use.
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    entries = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise ValueError(f"the answer is no JWKS with at most {MAX_KEYS} keys")
    keys: dict[str, Key] = {}
    for entry in entries:
        key = _jwk(entry)
        if key is not None:
            keys.setdefault(key.key_id, key)
    if not keys:
        raise ValueError(f"the answer has no public key with a `kid` for one of {', '.join(_JWK_ALGORITHMS.values())}")
    return list(keys.values())


def _jwk(entry: object) -> Key | None:
    """Return the key of an entry of a JWKS, or None where it is not one for us."""
    if not isinstance(entry, dict):
        return None
    key_id, operations = entry.get("kid"), entry.get("key_ops")
    algorithm = _JWK_ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))))
    if algorithm is None or entry.get("alg", algorithm) != algorithm or entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    if not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_USER_CHARACTERS:
        return None
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    try:
        material = _jws.get_algorithm_by_name(algorithm).from_jwk(entry)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return Key(key_id, algorithm, material) if _fits(algorithm, material) else None


def _anonymous(settings: Settings) -> Identity | None:
    if settings.dev:
        return Identity(ANONYMOUS, subscribe=("#",), publish=("#",), namespaces=settings.namespaces)
    if settings.anonymous_subscribe:
        return Identity(ANONYMOUS, subscribe=settings.anonymous_subscribe, namespaces=settings.anonymous_namespaces or None)
    return None


def _decode_part(part: str) -> bytes:
    """Return the bytes of one of a token's three parts, which are base64url (RFC 7515, section 2).

    Some issuers pad, which is accepted. Nothing else is: there is one way to write a token, but for its padding.
    """
    bare = part.rstrip("=")
    if len(bare) != len(part) and (len(part) % 4 or len(part) - len(bare) > 2):
        raise Unauthorized(Reason.MALFORMED)
    try:
        data = binascii.a2b_base64(bare.translate(_FROM_URL) + "=" * (-len(bare) % 4), strict_mode=True)
    except ValueError:
        raise Unauthorized(Reason.MALFORMED) from None
    if binascii.b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL).decode() != bare:
        raise Unauthorized(Reason.MALFORMED)  # other bits behind the last byte
    return data


@lru_cache(maxsize=64)  # the tokens of one issuer have the same header
def _read_header(data: bytes) -> Mapping[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        raise Unauthorized(Reason.MALFORMED) from None
    if not isinstance(header, dict) or not isinstance(header.get("kid", ""), str):
        raise Unauthorized(Reason.MALFORMED)
    return header


def _claims(payload: bytes) -> Mapping[str, Any]:
    try:
        claims = _decode_json(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unauthorized(Reason.MALFORMED) from None
    if not isinstance(claims, dict):
        raise Unauthorized(Reason.MALFORMED)
    return claims


def _time(claims: Mapping[str, Any], name: str) -> float:
    """Return a NumericDate (RFC 7519, section 2): seconds since 1970."""
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise Unauthorized(Reason.INVALID_CLAIM, claim=name)
    return float(value)


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims[name]
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_USER_CHARACTERS:
        raise Unauthorized(Reason.INVALID_CLAIM, claim=name)
    return value


def _namespaces(claims: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = claims.get("namespaces")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) > MAX_GRANTS:
        raise Unauthorized(Reason.INVALID_CLAIM, claim="namespaces")
    try:
        return tuple(map(check_namespace, names))
    except UnknownNamespace:
        raise Unauthorized(Reason.INVALID_CLAIM, claim="namespaces") from None


def _grants(claims: Mapping[str, Any], name: str, user: str) -> tuple[str, ...]:
    """Return the patterns of a claim, with the user's name in place of `{sub}`."""
    patterns = claims.get(name)
    if patterns is None:
        return ()
    if not isinstance(patterns, list) or len(patterns) > MAX_GRANTS:
        raise Unauthorized(Reason.INVALID_CLAIM, claim=name)
    grants = []
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise Unauthorized(Reason.INVALID_CLAIM, claim=name)
        try:
            # A name with a dot or a wildcard in it would grant more than was meant.
            grants.append(check_pattern(pattern.replace("{sub}", check_word(user)) if "{sub}" in pattern else pattern))
        except InvalidTopic:
            raise Unauthorized(
                Reason.INVALID_GRANT, f"{name}: {{sub}} stands for one word, which this user's name is not", claim=name
            ) from None
        except HeadgateError:
            raise Unauthorized(Reason.INVALID_GRANT, claim=name) from None
    return tuple(grants)
