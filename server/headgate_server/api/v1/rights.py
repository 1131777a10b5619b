"""Decides whether a caller may do something, by the scopes of a key or the grants of a token.

A user may publish and read within its grants, and see a trace with a grant of everything (`#`). The rest is for keys. A scope
counts only in the namespaces of its caller (`reach`). In development, anyone on this machine has most rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from headgate.auth.api_keys import shown_name
from headgate.auth.audit import audit
from headgate.auth.identity import ANONYMOUS, EVERY, Identity
from headgate.auth.scopes import ADMIN, PLAIN, WITH_PATTERN, compiled
from headgate.errors import Forbidden
from headgate.settings.settings import Settings
from headgate.transport.peer_address import address_of

EVERYTHING = "#"
# In development, anyone on this machine may do everything without lasting effect.
_IN_DEVELOPMENT = compiled(
    (*(f"{kind}:{EVERYTHING}" for kind in WITH_PATTERN), *(scope for scope in PLAIN if scope not in (ADMIN, "keys:write")))
)


def may(identity: Identity, scope: str, settings: Settings) -> bool:
    """Return whether a caller has a scope, such as `clients` or `read:orders.#`."""
    if identity.scopes is not None:
        return compiled(identity.scopes).cover(scope)
    if settings.dev and identity.user == ANONYMOUS and _IN_DEVELOPMENT.cover(scope):
        return True
    kind, _, pattern = scope.partition(":")
    if kind == "publish":
        return identity.may_publish(pattern)
    if kind in ("read", "presence") and pattern:
        return identity.may_subscribe(pattern)
    return scope == "trace" and identity.may_subscribe(EVERYTHING)


def reach(identity: Identity, settings: Settings) -> tuple[str, ...] | None:
    """Return the namespaces where a caller's scopes count; None for all."""
    if settings.dev and identity.user == ANONYMOUS:
        return None
    if identity.namespaces is None:
        return settings.namespaces[:1]
    return None if EVERY in identity.namespaces else identity.namespaces


def may_some(identity: Identity, kind: str, settings: Settings) -> bool:
    """Return whether a caller has a scope of a kind with any pattern, before its topic is known."""
    if identity.scopes is not None:
        return compiled(identity.scopes).have(kind)
    if settings.dev and identity.user == ANONYMOUS and _IN_DEVELOPMENT.have(kind):
        return True
    return bool({"publish": identity.publish, "read": identity.subscribe, "presence": identity.subscribe}.get(kind))


def refuse(identity: Identity, why: Forbidden, namespace: str, environ: Mapping[str, Any], proxies: int) -> NoReturn:
    """Refuse a known caller, with a line in the audit log. Raises `why`."""
    address, user = address_of(environ, proxies), shown_name(identity.user)
    audit.right_refused(address=address, namespace=namespace, user=user, action=why.parts["action"], name=why.parts["name"])
    raise why
