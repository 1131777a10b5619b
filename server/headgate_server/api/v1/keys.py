"""Creates, lists and revokes API keys over the API.

A key cannot create one with more rights or a longer life, see or revoke one for foreign namespaces, or revoke one with more
rights.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headgate.auth.api_keys import MAX_NAMESPACES, MAX_TTL_S, NAME, Key, check_key_id, new_key
from headgate.auth.api_keys import revoke_key as revoke_api_key
from headgate.auth.audit import audit
from headgate.auth.identity import EVERY
from headgate.auth.scopes import ADMIN, MAX_SCOPES, check_scopes
from headgate.errors import HeadgateError, InvalidRequest, UnknownNamespace
from headgate.events.topic import NAMESPACE, check_namespace
from headgate.redis import api_keys
from headgate.redis.api_keys import StoredKey

from .operation import Call, Cost, Scope, operation
from .problems import BodyFault, not_found

KeyName = Annotated[str, Meta(extra_json_schema={"pattern": f"^{NAME}$"})]
KeyNamespace = Annotated[str, Meta(extra_json_schema={"pattern": rf"^(\*|/?{NAMESPACE})$"})]


@operation("GET /keys", "keys", cost=Cost.ENTRIES, members="keys")
def list_keys(call: Call) -> list[Key]:
    """List API keys.

    The oldest key is first. Only those for namespaces of the caller's key.
    """
    keys = api_keys.find_all(call.redis)
    call.charge(len(keys))
    return [Key.of(each) for each in keys if _is_within(call, each)]


@operation("POST /keys", "keys:write", status=201, problems=(409,), members="secret key")
def make_key(
    call: Call,
    *,
    name: KeyName,
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=MAX_SCOPES)],
    namespaces: Annotated[list[KeyNamespace], Meta(max_length=MAX_NAMESPACES)] | None = None,
    ttl_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None,
) -> tuple[str, Key]:
    """Make an API key.

    `secret` is the whole key, shown only now. A key can only make keys with at most its own rights, for its own namespaces.
    """
    try:
        check_scopes(scopes)
    except HeadgateError as error:
        raise BodyFault([("/scopes", error)]) from error
    _check_names(namespaces or [])
    _check_no_more_than(call, scopes, namespaces or [])
    left_s = None if call.identity.expires_at is None else max(1, int(call.identity.expires_at - call.services.time_s()))
    if left_s is not None and (ttl_s is None or ttl_s > left_s):
        raise BodyFault([("/ttl_s", InvalidRequest(f"expected at most {left_s}: the key that makes it ends then"))])
    try:
        made = new_key(name, scopes, namespaces=namespaces or _own(call), ttl_s=ttl_s, by=call.by, time_s=call.services.time_s)
    except HeadgateError as error:
        raise BodyFault([("/name", error)]) from error
    api_keys.add(call.redis, made.stored)
    audit.acted("key made", by=call.by, key=made.stored.id, name=name, scopes=" ".join(made.stored.scopes))
    return made.text, Key.of(made.stored)


@operation("DELETE /keys/{key}", "keys:write", status=204, problems=(404,))
def revoke_key(call: Call) -> None:
    """Revoke an API key.

    Every gateway refuses it within two seconds. A key can only revoke keys with at most its own rights.
    """
    key_id = call.path["key"]
    try:
        was = api_keys.find(call.redis, check_key_id(key_id))
    except InvalidRequest:
        was = None
    if was is None:
        raise not_found("key", key_id[:20])
    for scope in was.scopes:
        call.need(scope)
    if was.namespaces is None and call.identity.namespaces is not None:
        call.need_every_namespace()  # it is for the first namespace of each gateway, which may be any
    call.need_namespaces(was.namespaces or ())
    if revoke_api_key(call.redis, was.id) is None:
        raise not_found("key", key_id[:20])
    audit.acted("key revoked", by=call.by, key=was.id, name=was.name)


def _own(call: Call) -> list[str]:
    """Return the namespaces of a key that names none, because the first one of another gateway may be foreign to its maker."""
    is_for_named = call.identity.namespaces is not None and call.reach is not None
    return [call.services.settings.namespaces[0]] if is_for_named else []


def _is_within(call: Call, key: StoredKey) -> bool:
    """Return whether a key is limited to the caller's namespaces."""
    mine = call.reach
    if mine is None:
        return True
    if ADMIN in key.scopes:
        return False
    return call.identity.namespaces is None if key.namespaces is None else set(key.namespaces) <= set(mine)


def _check_names(namespaces: list[str]) -> None:
    """Refuse invalid names of namespaces. Any valid name is accepted, because another gateway may serve it.

    Raises BodyFault with the place of the first.
    """
    for at, name in enumerate(namespaces):
        try:
            if name != EVERY:
                check_namespace(name)
        except UnknownNamespace as error:
            fault = InvalidRequest("a namespace; expected * or 1 to 64 ASCII letters, digits, _ and -")
            raise BodyFault([(f"/namespaces/{at}", fault)]) from error


def _check_no_more_than(call: Call, scopes: list[str], namespaces: list[str]) -> None:
    """Refuse to create a key with more rights than its maker. Raises Forbidden or BodyFault."""
    for scope in scopes:
        call.need(scope)
    mine = call.reach
    if mine is None:
        return
    for at, name in enumerate(namespaces or call.services.settings.namespaces[:1]):
        if name.removeprefix("/") not in mine:
            fault = InvalidRequest("the key that makes it is not for this namespace")
            raise BodyFault([(f"/namespaces/{at}" if namespaces else "/namespaces", fault)])
