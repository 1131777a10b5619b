"""Lists clients of all gateways, and disconnects, revokes and regrants them and their users, or sends to them.

`silent` names the gateways without an answer in time. The action may have succeeded there, too. A key sees and reaches the
clients of its own namespaces. A revocation and other grants apply to a user in every namespace, so a key must be for all.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headgate.auth.audit import audit
from headgate.auth.regrants import DEFAULT_REGRANTED_S, MAX_PATTERNS, MAX_REGRANTED_S
from headgate.auth.revocation import MAX_REVOKED_S, MAX_TOKEN_ID_CHARACTERS, revoke
from headgate.errors import HeadgateError, InvalidRequest
from headgate.events.topic import MAX_USER_BYTES, NAMESPACE, check_topic, check_user
from headgate.redis.keys import DEFAULT_REVOKED_S
from headgate.services import clients as all_clients

from .operation import Call, Cost, EventId, Pattern, Topic, operation
from .problems import BodyFault, not_found

# The part of the grammar of names that a regular expression can express.
User = Annotated[str, Meta(min_length=1, max_length=MAX_USER_BYTES, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$")]
Reason = Annotated[
    str,
    Meta(min_length=1, max_length=all_clients.MAX_REASON_CHARACTERS, pattern=r"^[ -~]+$"),
    Meta(description="Text for the client and the audit log."),
]
Place = Annotated[str, Meta(min_length=1)]
Namespace = Annotated[str, Meta(pattern=f"^{NAMESPACE}$")]
Patterns = Annotated[list[Pattern], Meta(max_length=MAX_PATTERNS)]
RevokedS = Annotated[int, Meta(ge=1, le=MAX_REVOKED_S)]
BY_AN_OPERATOR = "disconnected by an operator"


@operation("GET /clients", "clients", cost=Cost.CLIENTS)
def list_clients(
    call: Call,
    *,
    namespace: Annotated[Namespace | None, Meta(description="Clients in this namespace only.")] = None,
    user: Annotated[User | None, Meta(description="Clients of this user only.")] = None,
    sort: Annotated[all_clients.Sort, Meta(description="The order; `trouble` puts clients with problems first.")] = "trouble",
    limit: Annotated[int, Meta(ge=1, le=all_clients.MAX_PAGE_CLIENTS, description="Clients at most.")] = 100,
    after: Annotated[Place | None, Meta(description="`after` of the previous page, with the same `sort`.")] = None,
) -> all_clients.ClientsPage:
    """List the clients of all gateways.

    Clients come and go between two pages, so a page may miss one or repeat one. Ask again with `after` until it is null.
    """
    if namespace is not None:
        call.need_namespaces([namespace])
    if user is not None and not _may_be_user(user):
        return all_clients.ClientsPage((), 0, None, ())
    page = call.clients.page(namespace, user, sort, limit, after, within=call.reach)
    call.charge(page.total)
    return page


@operation("GET /clients/{session}", "clients", problems=(404,))
def get_client(call: Call) -> all_clients.ConnectedClient:
    """Read one client with all its patterns.

    404 if no gateway that is connected to Redis has it, and 503 while one of them does not answer.
    """
    return _client(call)


@operation("DELETE /clients/{session}", "clients:write", problems=(404,))
def disconnect_client(call: Call, *, reason: Reason = BY_AN_OPERATOR) -> all_clients.Reached:
    """Disconnect a client.

    Its connection ends, also for other namespaces that share it. It may reconnect at once. To keep its user out, revoke the
    user.
    """
    session = _session(call)
    reached = call.clients.disconnect(session=session, reason=reason, by=call.by, within=call.reach)
    if not reached.count and not reached.silent:
        raise not_found("session", session)
    return reached


@operation("POST /clients/{session}/events", "send", problems=(404,), members="taken")
def send_to_client(call: Call, *, topic: Topic, data: msgspec.Raw, id: EventId | None = None) -> bool:
    """Send an event to one client.

    The event is not in a log, and the client needs no grant for the topic. If its queue is full, it is not `taken`.
    """
    session = _session(call)
    try:
        call.need(f"send:{check_topic(topic)}")
        taken = call.clients.send(session, topic, data, id, within=call.reach)
    except HeadgateError as error:
        field = _FIELD_OF.get(error.code)
        if field is None:
            raise
        raise BodyFault([(field, error)]) from error
    if not taken:
        _client(call)  # 404 if no gateway has the session
    audit.acted("event sent to a client", by=call.by, session=session, topic=topic)
    return taken


@operation("DELETE /users/{user}/clients", "clients:write", problems=(404,), cost=Cost.CLIENTS)
def disconnect_user(call: Call, *, reason: Reason = BY_AN_OPERATOR) -> all_clients.Reached:
    """Disconnect all clients of a user."""
    reached = call.clients.disconnect(user=_user(call), reason=reason, by=call.by, within=call.reach)
    call.charge(reached.count)
    return reached


@operation("PUT /users/{user}/revocation", "users:write", problems=(404, 409), members="for_s")
def revoke_user(call: Call, *, for_s: RevokedS = DEFAULT_REVOKED_S) -> int:
    """Refuse a user, and disconnect all its clients.

    Every gateway applies it within a second. A later call changes its end. A user is refused in every namespace, so the key
    must be for all.
    """
    return _revoke(call, "user", _user(call), for_s)


@operation("DELETE /users/{user}/revocation", "users:write", status=204, problems=(404,))
def lift_revocation(call: Call) -> None:
    """Lift the revocation of a user."""
    _revoke(call, "user", _user(call), 0)


@operation("PUT /tokens/{token}/revocation", "users:write", problems=(404, 409), members="for_s")
def revoke_token(call: Call, *, for_s: RevokedS = DEFAULT_REVOKED_S) -> int:
    """Refuse a token by its `jti`, and disconnect its clients."""
    return _revoke(call, "token", _text(call, "token", MAX_TOKEN_ID_CHARACTERS), for_s)


@operation("PUT /users/{user}/grants", "users:write", problems=(404, 409), cost=Cost.CLIENTS)
def regrant_user(
    call: Call,
    *,
    subscribe: Patterns | None = None,
    publish: Patterns | None = None,
    for_s: Annotated[int, Meta(ge=1, le=MAX_REGRANTED_S)] = DEFAULT_REGRANTED_S,
) -> all_clients.Reached:
    """Give the clients of a user other grants, without a reconnect.

    The key must be for every namespace. With a list, these are the user's grants for `for_s` seconds. Without lists they are
    read from their source again.
    """
    user = _user(call)
    call.need_every_namespace()
    try:
        reached = call.clients.regrant(user, subscribe=subscribe, publish=publish, for_s=for_s, by=call.by)
    except HeadgateError as error:
        if error.code != "invalid_pattern":
            raise
        raise BodyFault([("", error)]) from error
    call.charge(reached.count)
    return reached


_FIELD_OF = {"invalid_topic": "/topic", "invalid_event": "/id", "not_serializable": "/data", "payload_too_large": "/data"}


def _client(call: Call) -> all_clients.ConnectedClient:
    session = _session(call)
    client = call.clients.client(session, within=call.reach)
    if client is None:
        raise not_found("session", session)
    return client


def _revoke(call: Call, kind: str, name: str, for_s: int) -> int:
    call.need_every_namespace()
    revoke(call.redis, user=name if kind == "user" else None, token_id=name if kind == "token" else None, for_s=for_s)
    audit.revoked(kind=kind, name=name, for_s=for_s, by=call.by)
    return for_s


def _session(call: Call) -> str:
    return _text(call, "session", all_clients.MAX_SESSION_CHARACTERS)


def _user(call: Call) -> str:
    user = call.path["user"]
    if not _may_be_user(user):
        raise not_found("user", user)
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
        raise not_found(name, text)
    return text
