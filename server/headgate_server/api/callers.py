"""Finds the caller of the HTTP API, by a token or, in development, by being on this machine.

In: the WSGI environment of a request. Out: an `Identity`, from the same authenticator, revocations and expiry as for a
connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flask import request

from headgate.auth.api_keys import PREFIX as KEY_PREFIX
from headgate.auth.identity import ANONYMOUS, Handshake, Identity
from headgate.errors import Forbidden, HeadgateError, Unauthorized
from headgate.errors import UnauthorizedReason as Reason
from headgate.flask.extension import Headgate
from headgate.node.access.origin import check_local_host
from headgate.settings.addresses.origins import origin_in_header
from headgate.transport.peer_address import address_of

EXPECTED = "expected `Authorization: Bearer <API key or token>`"
# After a slower body, its sender is identified again, because a body may take minutes, and rights end within two seconds.
SLOW_BODY_S = 1.0
# Refusals that may be different in another namespace, where the application may decide otherwise.
_BY_NAMESPACE = frozenset((Reason.WRONG_NAMESPACE, Reason.NOT_ACCEPTED, Reason.NO_TOKEN, Reason.AUTHENTICATOR_FAILED))


def caller(gate: Headgate, namespace: str, environ: Mapping[str, Any]) -> Identity:
    """Return the identity of the caller. Without credentials, only in a Flask request.

    Raises:
        Unauthorized: no token, or one that is not accepted.
        Forbidden: in development, a request without a token from another site.
    """
    return gate.identify(_handshake(namespace, environ))


def _handshake(namespace: str, environ: Mapping[str, Any]) -> Handshake:
    header = str(environ.get("HTTP_AUTHORIZATION", ""))
    kind, _, token = header.partition(" ")
    if header and kind.lower() != "bearer":
        raise Unauthorized(Reason.MALFORMED, EXPECTED)
    if not header:
        _refuse_other_sites()
    return Handshake(namespace, {"token": token.strip()} if header else {}, environ)


def account_of(identity: Identity, environ: Mapping[str, Any], proxies: int) -> str:
    """Return the account for the rate of a request, a user or, because anonymous callers share a name, an address."""
    if identity.user != ANONYMOUS:
        return identity.user
    return f"\0{address_of(environ, proxies)}"  # no user's name


def first_known(
    gate: Headgate, namespaces: Sequence[str], environ: Mapping[str, Any], shown: Handshake | None = None
) -> tuple[Handshake, Identity]:
    """Return the handshake for the first namespace that knows the caller, and its identity there.

    Called before reading a request's body, which names the namespace. `shown` is the earlier result for the same head. A wrong
    key or token is tried once, because each try counts as a failed login. Raises Unauthorized or Forbidden, as `caller` for the
    first namespace, if no namespace knows it.
    """
    first: HeadgateError | None = None
    if shown is not None:
        try:
            return shown, gate.identify(shown)
        except (Unauthorized, Forbidden) as error:
            first = error
            namespaces = () if _is_final(error, shown) else namespaces
    for namespace in namespaces:
        if shown is not None and shown.namespace == namespace:
            continue
        handshake: Handshake | None = None
        try:
            handshake = _handshake(namespace, environ)
            return handshake, gate.identify(handshake)
        except (Unauthorized, Forbidden) as error:
            first = first or error
            if _is_final(error, handshake):
                break
    assert first is not None  # a gateway serves at least one namespace
    if isinstance(first, Unauthorized) and first.reason is Reason.NO_AUTHENTICATOR and not environ.get("HTTP_AUTHORIZATION"):
        raise Unauthorized(Reason.NO_TOKEN, EXPECTED)  # which an API key satisfies, without an authenticator
    raise first


def _is_final(error: HeadgateError, handshake: Handshake | None) -> bool:
    """Return whether every other namespace would refuse the caller, too."""
    if handshake is None or not isinstance(error, Unauthorized):
        return True  # refused before anyone was identified
    is_key = (handshake.token or "").startswith(KEY_PREFIX)
    return error.reason not in _BY_NAMESPACE or (is_key and error.reason is not Reason.WRONG_NAMESPACE)


def _refuse_other_sites() -> None:
    """Refuse a browser sent by another site, because development admits anyone on this machine, but no foreign page.

    The Origin names the page's site, which must be on this machine, and the Host is checked, too. A page cannot send an
    Authorization header here without a preflight, so a request with one needs no such check.
    """
    check_local_host(request.host)
    shown = request.headers.get("Origin")
    origin = None if shown is None else origin_in_header(shown)
    if shown is not None and (origin is None or not origin.is_loopback):
        raise Forbidden("call from origin", shown)
