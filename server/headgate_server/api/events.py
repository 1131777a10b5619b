"""`GET /api/events?pattern=&from=&to=&namespace=`: the log over HTTP, paged, for services that were away.

Out: `{namespace, epoch, events: [{topic, data, id, time, offset}], next}`; ask again with `from=next` until it is null. The
caller's grants must contain the pattern, and the application's `authorize`, if there is one, must allow it. 429 for one that
goes too fast.
"""

from __future__ import annotations

import time

from flask import Blueprint, Response, request

from headgate.auth.api_keys import shown_name
from headgate.auth.audit import audit
from headgate.errors import Forbidden, InvalidRequest, LimitReached
from headgate.protocol.requests import MAX_OFFSET
from headgate.runtime.rates import Rates
from headgate.settings import Settings
from headgate.topic import check_pattern
from headgate.transport.peer_address import address_of
from headgate_server.gate import Gate

from .callers import account_of, caller


def events_routes(gate: Gate, settings: Settings, rates: Rates) -> Blueprint:
    """Return the route. `rates`: of readers."""
    routes = Blueprint("events_api", __name__)

    @routes.get("/api/events")
    def events() -> Response:
        unknown = sorted(set(request.args) - {"pattern", "from", "to", "namespace"})
        if unknown:
            raise InvalidRequest(f"unknown parameter {unknown[0][:40]!r}; known: pattern, from, to, namespace")
        namespace = request.args.get("namespace", settings.namespaces[0]).removeprefix("/")
        pattern = check_pattern(request.args.get("pattern", "#"))
        identity = caller(gate, namespace, request.environ)
        if not identity.may_subscribe(pattern):
            address = address_of(request.environ, settings.proxies)
            audit.right_refused(address=address, namespace=namespace, user=shown_name(identity.user), action="read", name=pattern)
            raise Forbidden("read", pattern)
        gate.check_authorized(identity, pattern, "replay")
        first, last = _offset("from") or 1, _offset("to")
        if last is not None and last < first:
            raise InvalidRequest("to: expected at least what `from` is")
        if wait_s := rates.spend(account_of(identity, request.environ, settings.proxies), time.monotonic()):
            raise LimitReached("read_per_s", settings.read_per_s, wait_s)
        epoch, found, next_ = gate.events(pattern, first, last, namespace)
        # The payloads are JSON already: they go out as they came in.
        parts = [
            b'{"topic":"%b","data":%b,"id":%b,"time":%d,"offset":%d}'
            % (
                event.topic.encode(),
                event.data,
                b'"%b"' % event.id.encode() if event.id else b"null",
                event.time_ms,
                event.offset or 0,
            )
            for event in found
        ]
        body = b'{"namespace":"%b","epoch":"%b","events":[%b],"next":%b}' % (
            namespace.encode(),
            epoch.encode(),
            b",".join(parts),
            str(next_).encode() if next_ is not None else b"null",
        )
        return Response(body, mimetype="application/json")

    return routes


def _offset(name: str) -> int | None:
    text = request.args.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:20]) <= MAX_OFFSET:
        raise InvalidRequest(f"{name}: expected a whole number from 1 to {MAX_OFFSET}")
    return int(text)
