"""`GET /api/presence?topic=&after=&limit=&namespace=`: who is in a topic now, by name, in parts.

Out: `{namespace, topic, count, members: [{user, connections, since, meta}], next}`, `since` in ms since 1970; ask again with
`after=next` until it is null. The caller's grants must contain the topic, as for a subscription. 429 for one that goes too fast.
"""

from __future__ import annotations

import time

from flask import Blueprint, Response, request

from headgate.auth.api_keys import shown_name
from headgate.auth.audit import audit
from headgate.errors import Forbidden, InvalidRequest, LimitReached
from headgate.runtime.rates import Rates
from headgate.settings import Settings
from headgate.topic import check_topic
from headgate.transport.peer_address import address_of
from headgate_server.gate import Gate

from .callers import account_of, caller
from .json_answers import as_response, json_answer
from .v1.operation import Cost
from .v1.presence import PER_SHOWN
from .v1.rights import may

MAX_PAGE = 1000


def presence_routes(gate: Gate, settings: Settings, rates: Rates) -> Blueprint:
    """Return the route. `rates`: of readers."""
    routes = Blueprint("presence_api", __name__)

    @routes.get("/api/presence")
    def presence() -> Response:
        unknown = sorted(set(request.args) - {"topic", "after", "limit", "namespace"})
        if unknown:
            raise InvalidRequest(f"unknown parameter {unknown[0][:40]!r}; known: topic, after, limit, namespace")
        namespace = request.args.get("namespace", settings.namespaces[0]).removeprefix("/")
        topic = check_topic(request.args.get("topic"))
        identity = caller(gate, namespace, request.environ)
        if not may(identity, f"presence:{topic}", settings):
            address = address_of(request.environ, settings.proxies)
            audit.right_refused(
                address=address, namespace=namespace, user=shown_name(identity.user), action="see who is in", name=topic
            )
            raise Forbidden("see who is in", topic)
        gate.check_authorized(identity, topic, "presence")
        limit = _limit()
        account = account_of(identity, request.environ, settings.proxies)
        if wait_s := rates.spend(account, time.monotonic()):
            raise LimitReached("read_per_s", settings.read_per_s, wait_s)
        found = gate.presence_page(topic, request.args.get("after"), limit, namespace)
        looked_at = max(found.count, PER_SHOWN * len(found.members))
        if (owed := -(-looked_at // Cost.MEMBERS.units) - 1) > 0:
            rates.charge(account, time.monotonic(), owed)
        members = [
            {"user": one.user, "connections": one.connections, "since": one.since_ms, "meta": one.meta} for one in found.members
        ]
        body = {"namespace": namespace, "topic": topic, "count": found.count, "members": members, "next": found.after}
        return as_response(json_answer(200, body))

    return routes


def _limit() -> int:
    text = request.args.get("limit", str(MAX_PAGE))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= MAX_PAGE:
        raise InvalidRequest(f"limit: expected a whole number from 1 to {MAX_PAGE}")
    return int(text)
