"""Claims: from the payload of a verified token to an identity, or to the reason for refusing it. No I/O.

In: the bytes of the payload. Out: an `Identity`, or `Unauthorized` with its reason (errors.py) and no part of the token. `exp`,
`aud` and `sub` are required (RFC 8725), and every claim that we read must have the expected type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.errors import HeadgateError, InvalidRequest, Unauthorized, UnknownNamespace
from headgate.errors import UnauthorizedReason as Reason
from headgate.events.topic import check_namespace, check_pattern, user_word

from .identity import ANONYMOUS, Identity, check_name_in_grant

# Patterns per claim. Every subscribe is checked against all of them.
MAX_GRANTS = 64
MAX_ID_CHARACTERS = 255
_LAST_TIME_S = 1e12

_decode_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The rules for claims.

    Args:
        audience: required in `aud`.
        leeway_s: tolerated clock difference for `exp`, `nbf` and `iat`.
        now: seconds since 1970.
        issuer: required as `iss`; None accepts any.
    """

    audience: str
    leeway_s: float
    now: Callable[[], float]
    issuer: str | None = None

    def identity(self, payload: bytes) -> Identity:
        """Return the identity that a payload describes.

        Raises:
            Unauthorized: with its reason.
        """
        claims = _read(payload)
        for name in ("exp", "aud", "sub"):
            if claims.get(name) is None:
                raise Unauthorized(Reason.MISSING_CLAIM, claim=name)
        expires_at = _time(claims, "exp")
        self._check_audience(claims["aud"])
        self._check_issuer(claims.get("iss"))
        self._check_times(claims, expires_at)
        user, token_id = claims["sub"], _text(claims, "jti") if claims.get("jti") is not None else None
        word = _word(user)
        return Identity.of_checked(
            user,
            subscribe=_grants(claims, "subscribe", user, word),
            publish=_grants(claims, "publish", user, word),
            expires_at=expires_at + self.leeway_s,
            token_id=token_id,
            namespaces=_namespaces(claims),
        )

    def _check_audience(self, audience: object) -> None:
        accepted = audience if isinstance(audience, list) else [audience]
        if not all(isinstance(name, str) for name in accepted):
            raise Unauthorized(Reason.INVALID_CLAIM, claim="aud")
        if self.audience not in accepted:
            raise Unauthorized(Reason.WRONG_AUDIENCE)

    def _check_issuer(self, issuer: object) -> None:
        if self.issuer is None:
            return
        if issuer is None:
            raise Unauthorized(Reason.MISSING_CLAIM, claim="iss")
        if issuer != self.issuer:
            raise Unauthorized(Reason.WRONG_ISSUER)

    def _check_times(self, claims: Mapping[str, Any], expires_at: float) -> None:
        now_s = self.now()
        if expires_at + self.leeway_s <= now_s:
            raise Unauthorized(Reason.EXPIRED)
        for name in ("nbf", "iat"):
            if claims.get(name) is not None and _time(claims, name) - self.leeway_s > now_s:
                raise Unauthorized(Reason.NOT_YET_VALID, claim=name)


def _read(payload: bytes) -> Mapping[str, Any]:
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LAST_TIME_S:
        raise Unauthorized(Reason.INVALID_CLAIM, claim=name)
    return float(value)


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims[name]
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_ID_CHARACTERS:
        raise Unauthorized(Reason.INVALID_CLAIM, claim=name)
    return value


def _word(user: object) -> str:
    """Return the user's name as a word of topics."""
    if user == ANONYMOUS:
        raise Unauthorized(Reason.INVALID_CLAIM, claim="sub")
    try:
        return user_word(user)
    except InvalidRequest as error:
        detail = f"the claim `sub` has a value that it cannot have: {error.parts['reason'].removeprefix('user: ')}"
        raise Unauthorized(Reason.INVALID_CLAIM, detail, claim="sub") from None


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


def _grants(claims: Mapping[str, Any], name: str, user: str, word: str) -> tuple[str, ...]:
    """Return the patterns of a claim, with the user's word in place of `{sub}`."""
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
            if "{sub}" not in pattern:  # an issuer that uses `{sub}` inserts no name itself
                check_name_in_grant(user, pattern)
            grants.append(check_pattern(pattern.replace("{sub}", word)))
        except HeadgateError:
            raise Unauthorized(Reason.INVALID_GRANT, claim=name) from None
    return tuple(grants)
