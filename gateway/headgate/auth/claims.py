"""Turns the claims of a verified token into an identity, or into the reason for refusing it. No I/O.

In: the bytes of the payload. Out: an `Identity`, or `Unauthorized` with its reason (errors.py) and no part of the token. `exp`,
`aud` and `sub` are required (RFC 8725), and every claim that we read must have the expected type.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headgate.errors import InvalidPattern, InvalidRequest, Unauthorized, UnknownNamespace
from headgate.errors import UnauthorizedReason as Reason
from headgate.events.topic import USERS, check_namespace, check_pattern, user_word

from .identity import ANONYMOUS, Identity, check_name_in_grant

# Patterns per claim. Every subscribe is checked against all of them.
MAX_GRANTS = 64
MAX_ID_CHARACTERS = 255
_LAST_TIME_S = 1e12


class _Claims(msgspec.Struct):
    """The claims that we read. The names and types of the others do not matter."""

    exp: float | None = None
    aud: str | list[str] | None = None
    sub: Any = None
    iss: Any = None
    nbf: float | None = None
    iat: float | None = None
    jti: str | None = None
    subscribe: list[str] | None = None
    publish: list[str] | None = None
    namespaces: list[str] | None = None


_TIME, _LIST = "seconds since 1970", f"a list of at most {MAX_GRANTS}"
_EXPECTED = {
    **dict.fromkeys(("exp", "nbf", "iat"), _TIME),
    **dict.fromkeys(("subscribe", "publish"), f"{_LIST} patterns"),
    "namespaces": f"{_LIST} names of namespaces",
    "aud": "text or a list of texts",
    "sub": "the name of a user",
    "jti": f"1 to {MAX_ID_CHARACTERS} printable characters",
}
_decode = msgspec.json.Decoder(_Claims).decode
# Where the text of a ValidationError names the claim, such as `$.subscribe[0]`.
_FAULTY_CLAIM = re.compile(r"`\$\.(\w+)")


def identity_of(payload: bytes, audience: str, issuer: str | None, leeway_s: float, now_s: float) -> Identity:
    """Return the identity that a payload describes, with the user's own topics. Raises Unauthorized with its reason.

    Args:
        audience: required in `aud`.
        issuer: required as `iss`; None accepts any.
        leeway_s: tolerated clock difference for `exp`, `nbf` and `iat`.
        now_s: since 1970.
    """
    claims = _read(payload)
    user, expires_at = claims.sub, claims.exp
    if expires_at is None or claims.aud is None or user is None:
        missing = "exp" if expires_at is None else "aud" if claims.aud is None else "sub"
        raise _fault(Reason.MISSING_CLAIM, missing, f"`{audience}`" if missing == "aud" else None)
    _check_times(claims, expires_at, leeway_s, now_s)
    if audience != claims.aud and (isinstance(claims.aud, str) or audience not in claims.aud):
        raise _fault(Reason.WRONG_AUDIENCE, "aud", f"`{audience}`")
    if issuer is not None and claims.iss != issuer:
        raise _fault(Reason.MISSING_CLAIM if claims.iss is None else Reason.WRONG_ISSUER, "iss", f"`{issuer}`")
    if (token_id := claims.jti) is not None and not (token_id.isprintable() and 0 < len(token_id) <= MAX_ID_CHARACTERS):
        raise _fault(Reason.INVALID_CLAIM, "jti")
    word = _word(user)
    own = f"{USERS}.{word}.#"
    subscribe = _grants(claims.subscribe, "subscribe", user, word) if claims.subscribe else ()
    return Identity.of_checked(
        user,
        own,
        subscribe=subscribe if own in subscribe else (*subscribe, own),
        publish=_grants(claims.publish, "publish", user, word) if claims.publish else (),
        expires_at=expires_at + leeway_s,
        token_id=token_id,
        namespaces=None if claims.namespaces is None else _namespaces(claims.namespaces),
    )


def _check_times(claims: _Claims, expires_at: float, leeway_s: float, now_s: float) -> None:
    """Check the NumericDates (RFC 7519, section 2): seconds since 1970."""
    for name, at in (("exp", expires_at), ("nbf", claims.nbf), ("iat", claims.iat)):
        if at is not None and not 0 <= at < _LAST_TIME_S:
            raise _fault(Reason.INVALID_CLAIM, name)
    if expires_at + leeway_s <= now_s:
        raise Unauthorized(Reason.EXPIRED)
    for name, at in (("nbf", claims.nbf), ("iat", claims.iat)):
        if at is not None and at - leeway_s > now_s:
            raise Unauthorized(Reason.NOT_YET_VALID, claim=name)


def _read(payload: bytes) -> _Claims:
    try:
        return _decode(payload)
    except msgspec.ValidationError as error:
        claim = _FAULTY_CLAIM.search(str(error))
        raise (_fault(Reason.INVALID_CLAIM, claim[1]) if claim else Unauthorized(Reason.MALFORMED)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unauthorized(Reason.MALFORMED) from None


def _fault(reason: Reason, claim: str, expected: str | None = None) -> Unauthorized:
    """Return the refusal for a claim, with its `expected` form (None for the usual form of the claim)."""
    return Unauthorized(reason, f"{reason.meaning}: {claim}, expected {expected or _EXPECTED[claim]}", claim=claim)


def _word(user: object) -> str:
    """Return the user's name as a word of topics."""
    if user == ANONYMOUS:
        raise _fault(Reason.INVALID_CLAIM, "sub")
    try:
        return user_word(user)
    except InvalidRequest as error:
        detail = f"{Reason.INVALID_CLAIM.meaning}: sub, {error.parts['reason'].removeprefix('user: ')}"
        raise Unauthorized(Reason.INVALID_CLAIM, detail, claim="sub") from None


def _namespaces(names: list[str]) -> tuple[str, ...]:
    if len(names) > MAX_GRANTS:
        raise _fault(Reason.INVALID_CLAIM, "namespaces")
    try:
        return tuple(map(check_namespace, names))
    except UnknownNamespace:
        raise _fault(Reason.INVALID_CLAIM, "namespaces") from None


def _grants(patterns: list[str], name: str, user: str, word: str) -> tuple[str, ...]:
    """Return the patterns of a claim, with the user's word in place of `{sub}`."""
    if len(patterns) > MAX_GRANTS:
        raise _fault(Reason.INVALID_CLAIM, name)
    grants = []
    for pattern in patterns:
        try:
            if "{sub}" not in pattern:  # an issuer that uses `{sub}` inserts no name itself
                check_name_in_grant(user, pattern)
            grants.append(check_pattern(pattern.replace("{sub}", word)))
        except InvalidPattern as error:  # its reason holds no part of the token
            detail = f"{Reason.INVALID_GRANT.meaning}: {name}, {error.parts['reason']}"
            raise Unauthorized(Reason.INVALID_GRANT, detail, claim=name) from None
    return tuple(grants)
