"""Actions of an operator in the console, such as publishing, disconnecting, and creating and revoking API keys.

In: POST requests with JSON, from an operator with the right to act (access.py). Out: JSON; a line in the audit log for each,
also for a refused or failed one.

Only operators signed in with the admin key create API keys, because a key keeps its rights long after its maker has left, while
an application's operator has rights for one session. They enter the admin key again, so a stolen cookie cannot create a key. A
key from here always expires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask import Blueprint, Response, g, jsonify, request

from headgate.auth.api_keys import check_key_id, new_key
from headgate.auth.api_keys import revoke_key as revoke_api_key
from headgate.consumers.work.dead_letters import PAGE_LETTERS, DeadLetters
from headgate.consumers.work.groups import check_consumer
from headgate.errors import Forbidden, HeadgateError, InvalidRequest, Unauthorized, UnauthorizedReason
from headgate.events.event import check_event_id
from headgate.events.topic import check_topic
from headgate.flask.extension import Headgate
from headgate.redis import api_keys
from headgate_server.api.v1.dispatch import json_object
from headgate_server.api.v1.services import Services

from .access import COOKIE, Access

Body = Mapping[str, Any]
# Default and maximum lifetime of a key from here.
DEFAULT_KEY_S, MAX_KEY_S = 90 * 86400, 366 * 86400
# Returns the answer, and more fields for the audit log.
Act = Callable[[Body, str], tuple[dict[str, Any], dict[str, Any]]]


def act_routes(routes: Blueprint, gate: Headgate, services: Services, access: Access) -> None:
    """Add the routes."""
    settings = services.settings

    def audited(action: str, act: Act) -> Callable[[], Response]:
        def answer() -> Response:
            operator, environ = g.operator, request.environ
            access.check_act(operator, environ, action)
            namespace = ""
            try:
                body = json_object()
                # The body may have taken minutes, during which the session ended or the application removed the right.
                if access.operator(request.cookies.get(COOKIE), environ) != operator:
                    raise Unauthorized(UnauthorizedReason.NO_TOKEN, "sign in at /console")
                namespace = settings.served(_text(body, "namespace", settings.namespaces[0]))
                answer, more = act(body, namespace)
            except HeadgateError as error:
                access.acted(operator, environ, action, namespace=namespace or None, outcome=error.code)
                raise
            access.acted(operator, environ, action, namespace=namespace, **more)
            return jsonify(answer)

        return answer

    def publish(body: Body, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if "data" not in body:
            raise InvalidRequest("publish takes {topic, data, id?, namespace?}")
        topic = check_topic(body.get("topic"))
        event_id = None if body.get("id") in (None, "") else check_event_id(body["id"])
        receipt = gate.publish(topic, body["data"], event_id, namespace, by=g.operator.user)
        answer = {"id": receipt.id, "epoch": receipt.epoch, "offset": receipt.offset, "duplicate": receipt.duplicate}
        return answer, {"name": topic, "event_id": receipt.id, "offset": receipt.offset}

    def letters(act: Callable[[DeadLetters, list[str]], int]) -> Act:
        def change(body: Body, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
            consumer, ids = check_consumer(_text(body, "consumer", "")), body.get("ids")
            if not isinstance(ids, list) or not 0 < len(ids) <= PAGE_LETTERS or not all(isinstance(each, str) for each in ids):
                raise InvalidRequest(f"ids: expected a list of 1 to {PAGE_LETTERS} ids of dead letters")
            with services.lent_redis() as client:
                changed = act(DeadLetters(client, namespace, consumer), ids)
            return {"changed": changed}, {"name": consumer, "letters": len(ids), "changed": changed}

        return change

    def disconnect(body: Body, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
        which = {name: _text(body, name, "") or None for name in ("session", "user")}
        reason = _text(body, "reason", "") or "disconnected by an operator"
        reached = gate.disconnect(**which, reason=reason, by=g.operator.user)
        answer = {"disconnected": reached.count, "silent": reached.silent}
        return answer, {"name": which["session"] or which["user"], "disconnected": reached.count}

    def make_key(body: Body, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if not g.operator.by_key:
            raise Forbidden("make", "API keys")
        scopes, ttl_s = body.get("scopes"), body.get("ttl_s", DEFAULT_KEY_S)
        if not isinstance(scopes, list) or type(ttl_s) is not int or not 1 <= ttl_s <= MAX_KEY_S:
            raise InvalidRequest(f"a key takes {{name, scopes: […], admin_key, ttl_s?: 1 to {MAX_KEY_S}, namespace?}}")
        try:
            access.check_key(_text(body, "admin_key", ""), request.environ)
        except Unauthorized as error:  # the session is valid; 401 would send the page to its sign-in
            raise Forbidden("make an API key without the admin key:", "admin_key") from error
        made = new_key(_text(body, "name", ""), scopes, namespaces=[namespace], ttl_s=ttl_s, by=g.operator.user)
        with services.lent_redis() as client:
            api_keys.add(client, made.stored)
        return {"secret": made.text, "id": made.stored.id}, {"key": made.stored.id, "name": made.stored.name, "scopes": scopes}

    def revoke_key(body: Body, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
        with services.lent_redis() as client:
            was = revoke_api_key(client, check_key_id(_text(body, "key", "")))
        if was is None:
            raise InvalidRequest("there is no such key (any more)")
        return {"revoked": was.id}, {"key": was.id, "name": was.name}

    acts: dict[str, tuple[str, Act]] = {
        "publish": ("publish", publish),
        "disconnect": ("disconnect", disconnect),
        "keys/make": ("key made", make_key),
        "keys/revoke": ("key revoked", revoke_key),
        "letters/retry": ("retry dead letters", letters(DeadLetters.retry)),
        "letters/discard": ("discard dead letters", letters(DeadLetters.drop)),
    }
    for path, (action, act) in acts.items():
        routes.add_url_rule(f"/api/{path}", path.replace("/", "_"), audited(action, act), methods=["POST"])


def _text(body: Body, name: str, default: str) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise InvalidRequest(f"{name}: expected text")
    return value
