"""Clients of all gateways, and actions on them and their users: disconnect, send, revoke, regrant.

`silent` names the gateways that did not answer in time; the action may have succeeded there too. A key sees and reaches the
clients of its own namespaces. A revocation and other grants apply to a user in every namespace, so a key must be for all.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headgate.auth.api_keys import shown_name
from headgate.auth.audit import audit
from headgate.auth.regrants import DEFAULT_REGRANTED_S, MAX_PATTERNS, MAX_REGRANTED_S
from headgate.auth.revocation import MAX_REVOKED_S, MAX_TOKEN_ID_CHARACTERS, revoke
from headgate.errors import HeadgateError, InvalidRequest
from headgate.events.topic import MAX_USER_BYTES, NAMESPACE, check_topic, check_user
from headgate.redis.keys import DEFAULT_REVOKED_S
from headgate.services.clients import (
    MAX_PAGE_CLIENTS,
    MAX_REASON_CHARACTERS,
    MAX_SESSION_CHARACTERS,
    ClientsPage,
    ConnectedClient,
    Reached,
    Sort,
)

from .grammar import EventId, Pattern, Topic
from .operation import Call, Cost, NoQuery, Operation
from .problems import BodyFault, NotFound

# The part of the grammar of names that a regular expression can express.
User = Annotated[str, Meta(min_length=1, max_length=MAX_USER_BYTES, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$")]
Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON_CHARACTERS, pattern=r"^[ -~]+$")]
Place = Annotated[str, Meta(min_length=1)]
Namespace = Annotated[str, Meta(pattern=f"^{NAMESPACE}$")]
Patterns = Annotated[list[Pattern], Meta(max_length=MAX_PATTERNS)]
SortName = Literal["trouble", "queue", "newest", "user"]
BY_AN_OPERATOR = "disconnected by an operator"


class ClientsOf(msgspec.Struct, forbid_unknown_fields=True):
    """The selected page of clients."""

    namespace: Annotated[Namespace | UnsetType, Meta(description="Clients in this namespace only.")] = UNSET
    user: Annotated[User | UnsetType, Meta(description="Clients of this user only.")] = UNSET
    sort: Annotated[SortName, Meta(description="The order; `trouble`: those that something is wrong with first.")] = "trouble"
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_CLIENTS, description="Clients at most.")] = 100
    after: Annotated[Place | UnsetType, Meta(description="What the page before says as `after`, with the same `sort`.")] = UNSET


class WithReason(NoQuery, forbid_unknown_fields=True):
    """A reason."""

    reason: Annotated[Reason, Meta(description="Words for the client and the audit log.")] = BY_AN_OPERATOR


class ToSend(msgspec.Struct, forbid_unknown_fields=True):
    """An event for one session, outside any log."""

    topic: Topic
    data: msgspec.Raw
    id: EventId | None = None


class Sent(msgspec.Struct):
    """Whether the event is in the client's queue, or written. If not, the queue is full."""

    taken: bool


class Revocation(msgspec.Struct, forbid_unknown_fields=True):
    """How long a user, or a token, is refused."""

    for_s: Annotated[int, Meta(ge=1, le=MAX_REVOKED_S)] = DEFAULT_REVOKED_S


class Regrant(msgspec.Struct, forbid_unknown_fields=True):
    """Other grants for a user, for a time; without lists, those from its authenticator or its tokens."""

    subscribe: Patterns | None = None
    publish: Patterns | None = None
    for_s: Annotated[int, Meta(ge=1, le=MAX_REGRANTED_S)] = DEFAULT_REGRANTED_S


def every(call: Call) -> ClientsPage:
    """Return a page of clients."""
    asked = call.query
    after = None if asked.after is UNSET else asked.after
    namespace = None if asked.namespace is UNSET else asked.namespace
    user = None if asked.user is UNSET else asked.user
    if namespace is not None:
        call.need_namespaces([namespace])
    if user is not None and not _may_be_user(user):
        return ClientsPage((), 0, None, ())
    found = call.clients.page(namespace, user, Sort(asked.sort), asked.limit, after, within=call.reach)
    call.charge(found.total)
    return found


def one(call: Call) -> ConnectedClient:
    """Return one client with all its patterns."""
    session = _session(call)
    found = call.clients.client(session, within=call.reach)
    if found is None:
        raise NotFound("session", session)
    return found


def disconnect(call: Call) -> Reached:
    """Disconnect a client."""
    session = _session(call)
    reached = call.clients.disconnect(session=session, reason=call.query.reason, by=_by(call), within=call.reach)
    if not reached.count and not reached.silent:
        raise NotFound("session", session)
    return reached


def disconnect_user(call: Call) -> Reached:
    """Disconnect all clients of a user."""
    reached = call.clients.disconnect(user=_user(call), reason=call.query.reason, by=_by(call), within=call.reach)
    call.charge(reached.count)
    return reached


def send(call: Call) -> Sent:
    """Send an event to one client."""
    session, event = _session(call), call.body
    try:
        call.need(f"send:{check_topic(event.topic)}")
        taken = call.clients.send(session, event.topic, event.data, event.id, within=call.reach)
    except HeadgateError as error:
        field = _FIELD_OF.get(error.code)
        if field is None:
            raise
        raise BodyFault([(field, error)]) from error
    if not taken:
        one(call)  # 404 if no gateway has the session
    audit.acted("event sent to a client", by=_by(call), session=session, topic=event.topic)
    return Sent(taken)


def revoke_user(call: Call) -> Revocation:
    """Refuse a user, and disconnect all its clients."""
    user = _user(call)
    call.need_every_namespace()
    revoke(call.redis, user=user, for_s=call.body.for_s)
    audit.revoked(kind="user", name=user, for_s=call.body.for_s, by=_by(call))
    return Revocation(call.body.for_s)


def lift_user(call: Call) -> None:
    """Admit a user again."""
    user = _user(call)
    call.need_every_namespace()
    revoke(call.redis, user=user, for_s=0)
    audit.revoked(kind="user", name=user, for_s=0, by=_by(call))


def revoke_token(call: Call) -> Revocation:
    """Refuse a token, and disconnect its clients."""
    token = _text(call, "token", MAX_TOKEN_ID_CHARACTERS)
    call.need_every_namespace()
    revoke(call.redis, token_id=token, for_s=call.body.for_s)
    audit.revoked(kind="token", name=token, for_s=call.body.for_s, by=_by(call))
    return Revocation(call.body.for_s)


def regrant(call: Call) -> Reached:
    """Give the clients of a user other grants."""
    wanted: Regrant = call.body
    user = _user(call)
    call.need_every_namespace()
    try:
        reached = call.clients.regrant(user, subscribe=wanted.subscribe, publish=wanted.publish, for_s=wanted.for_s, by=_by(call))
    except HeadgateError as error:
        if error.code != "invalid_pattern":
            raise
        raise BodyFault([("", error)]) from error
    call.charge(reached.count)
    return reached


_FIELD_OF = {
    "invalid_topic": "/topic",
    "invalid_event": "/id",
    "not_serializable": "/data",
    "payload_too_large": "/data",
}


def _by(call: Call) -> str:
    return shown_name(call.identity.user)


def _session(call: Call) -> str:
    return _text(call, "session", MAX_SESSION_CHARACTERS)


def _user(call: Call) -> str:
    user = call.path["user"]
    if not _may_be_user(user):
        raise NotFound("user", user)
    return user


def _may_be_user(name: str) -> bool:
    try:
        check_user(name)
    except InvalidRequest:
        return False
    return True


def _text(call: Call, name: str, limit: int) -> str:
    """Return a name in the path, if a name can have that text."""
    text = call.path[name]
    if not text.isprintable() or len(text) > limit:
        raise NotFound(name, text)
    return text


_OF_USER = "/users/{user}"
OPERATIONS = (
    Operation(
        "listClients",
        "GET",
        "/clients",
        "List the clients of all gateways",
        "clients",
        ClientsPage,
        every,
        query=ClientsOf,
        cost=Cost.CLIENTS,
        about="Clients come and go between two pages: it is a look, not a log. Ask again with `after` until that is null.",
    ),
    Operation(
        "getClient",
        "GET",
        "/clients/{session}",
        "Read one client with all its patterns",
        "clients",
        ConnectedClient,
        one,
        problems=(404,),
        about="404 once every gateway that has a link to Redis has said no; 503 while one of them does not answer.",
    ),
    Operation(
        "disconnectClient",
        "DELETE",
        "/clients/{session}",
        "Disconnect a client",
        "clients:write",
        Reached,
        disconnect,
        query=WithReason,
        problems=(404,),
        about="Its connection ends, also for other namespaces that share it. It may come back at once: to keep its user out, "
        "revoke that.",
    ),
    Operation(
        "sendToClient",
        "POST",
        "/clients/{session}/events",
        "Send an event to one client",
        "send",
        Sent,
        send,
        body=ToSend,
        problems=(404,),
        about="It is in no log, and the client needs no grant for the topic.",
    ),
    Operation(
        "disconnectUser",
        "DELETE",
        _OF_USER + "/clients",
        "Disconnect all clients of a user",
        "clients:write",
        Reached,
        disconnect_user,
        query=WithReason,
        problems=(404,),
        cost=Cost.CLIENTS,
    ),
    Operation(
        "revokeUser",
        "PUT",
        _OF_USER + "/revocation",
        "Refuse a user, and disconnect all its clients",
        "users:write",
        Revocation,
        revoke_user,
        body=Revocation,
        problems=(404, 409),
        about="Every gateway acts on it within a second. A later call gives it another end. A user is refused in every "
        "namespace, so the key must be for all.",
    ),
    Operation(
        "liftRevocation",
        "DELETE",
        _OF_USER + "/revocation",
        "Let a user in again",
        "users:write",
        None,
        lift_user,
        status=204,
        problems=(404,),
    ),
    Operation(
        "revokeToken",
        "PUT",
        "/tokens/{token}/revocation",
        "Refuse a token by its `jti`, and disconnect its clients",
        "users:write",
        Revocation,
        revoke_token,
        body=Revocation,
        problems=(404, 409),
    ),
    Operation(
        "regrantUser",
        "PUT",
        _OF_USER + "/grants",
        "Give the clients of a user other grants, without a reconnect",
        "users:write",
        Reached,
        regrant,
        body=Regrant,
        problems=(404, 409),
        cost=Cost.CLIENTS,
        about="The key must be for every namespace. With a list, these are the user's grants for `for_s` seconds. Without lists "
        "they come from their source again.",
    ),
)
