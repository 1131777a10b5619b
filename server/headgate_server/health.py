"""Health for those who run the gateway: is the process alive, can it serve, what does it count.

`/livez` 200 while the process answers at all (restart it when it does not). `/healthz` 200 once the gateway can publish
and deliver, else 503 with what is missing (send it no traffic until then); only loopback is told why the bus is down, as the
reason names Redis' address. `/metrics` in the format of Prometheus that its Accept header prefers. Where several workers share
the port, both answer for all of them, whichever is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from flask import Blueprint, Response, current_app, jsonify, request

from headgate.errors import Forbidden
from headgate.metrics import exposition

from .gate import Gate, Siblings

# The bus proves itself once a second.
RETRY_AFTER_S = 1


def health_routes(gate: Gate, *, metrics_open: bool) -> Blueprint:
    """Return the routes; `metrics_open` serves /metrics to every address, not only to loopback."""
    routes = Blueprint("health", __name__)

    @routes.get("/livez")
    def livez() -> Response:
        return jsonify(alive=True)

    @routes.get("/healthz")
    def healthz() -> Response:
        siblings = _siblings()
        state = dict(gate.ready() if siblings is None else siblings.health())
        response = jsonify({**(state if _from_loopback() else for_strangers(state)), "missing": missing(state)})
        if not state.get("ready"):
            response.status_code = 503
            response.headers["Retry-After"] = str(RETRY_AFTER_S)
        return response

    @routes.get("/metrics")
    def metrics() -> Response:
        if not metrics_open and not _from_loopback():
            raise Forbidden("read", "/metrics")
        siblings = _siblings()
        accept = request.headers.get("Accept", "")
        kind, body = exposition(accept) if siblings is None else siblings.exposition(accept)
        return Response(body, content_type=kind, headers={"Vary": "Accept"})

    return routes


def report(gate: Gate) -> dict[str, object]:
    """Return the state of the gateway, or of all workers that share its port, as strangers are told it, with what is missing."""
    siblings = _siblings()
    state = dict(gate.ready() if siblings is None else siblings.health())
    return {**for_strangers(state), "missing": missing(state)}


def for_strangers(state: Mapping[str, object]) -> dict[str, object]:
    """Return a readiness report without the errors of the bus: they name Redis' address."""
    state = {key: value for key, value in state.items() if key != "revocations_error"}
    if isinstance(workers := state.get("workers"), list):
        state["workers"] = [{key: value for key, value in each.items() if key != "process"} for each in workers]
    namespaces = state.get("namespaces")
    if not isinstance(namespaces, Mapping):
        return state
    told = {name: {key: value for key, value in each.items() if key != "error"} for name, each in namespaces.items()}
    return {**state, "namespaces": told}


def missing(state: Mapping[str, object]) -> list[str]:
    """Return the names in a readiness report that are down or not yet there."""
    return sorted(name for name, value in state.items() if name != "ready" and (value is False or value == "down"))


def _siblings() -> Siblings | None:
    """Return the workers that answer together with this process; None where it is alone."""
    found: Siblings | None = current_app.extensions.get("headgate.workers")
    return found


def _from_loopback() -> bool:
    """Return whether the request came from this machine itself; one that a proxy passed on did not."""
    if "X-Forwarded-For" in request.headers or "Forwarded" in request.headers:
        return False
    try:
        return ip_address(request.remote_addr or "").is_loopback
    except ValueError:
        return False
