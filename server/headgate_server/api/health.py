"""Reports to operators whether the process is alive, whether it can serve, and its metrics.

`/livez` returns 200 while the process answers at all (restart it when it does not). `/healthz` returns 200 once the gateway can
publish and deliver, else 503 with the missing parts (send it no traffic until then). Only loopback gets more: the namespaces,
the number of clients, the pauses, the address of Redis. `/metrics` has the text format of Prometheus. If several workers share
the port, any of them answers for all. Callers from outside may get an answer of `/healthz` up to FRESH_S old.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from flask import Blueprint, Response, current_app, jsonify, request

from headgate.errors import Forbidden
from headgate.flask.extension import Headgate
from headgate.runtime.metrics import exposition
from headgate.settings.addresses.origins import is_loopback
from headgate_server.api.error_pages import refusal

# The bus proves itself once a second.
RETRY_AFTER_S = 1
# The greatest age of the state of workers.
FRESH_S = 0.5
# A proxy on this machine adds at least one of them.
_OF_PROXIES = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")

# The health and the metrics of all workers on a shared port: `app.extensions["headgate.workers"]`, if there are several.
Workers: TypeAlias = tuple[Callable[[], Mapping[str, object]], Callable[[], tuple[str, bytes]]]


def health_routes(gate: Headgate, *, metrics_open: bool) -> Blueprint:
    """Return the routes; `metrics_open` serves /metrics to every address without a proxy."""
    routes = Blueprint("health", __name__)

    @routes.get("/livez")
    def livez() -> Response:
        return jsonify(alive=True)

    @routes.get("/healthz")
    def healthz() -> Response:
        state = report(gate)
        response = jsonify(state)
        if not state["ready"]:
            response.status_code = 503
            response.headers["Retry-After"] = str(RETRY_AFTER_S)
        return response

    @routes.get("/metrics")
    def metrics() -> Response:
        # A scraper asks the gateway directly. A request through a proxy is from outside. The sidecar of a service mesh adds other
        # headers to internal requests, such as X-Forwarded-Proto.
        is_from_outside = any(name in request.headers for name in ("Forwarded", "X-Forwarded-For", "X-Real-IP"))
        if is_from_outside or not (metrics_open or _from_loopback()):
            return refusal(Forbidden("read", "/metrics"))
        _, exposition_of_all = _workers() or (None, exposition)
        kind, body = exposition_of_all()
        return Response(body, content_type=kind)

    return routes


def report(gate: Headgate) -> dict[str, object]:
    """Return the state of the gateway or of all workers on its port, as `{ready, missing}`, with the rest for loopback."""
    state = _state(gate)
    public = {"ready": state.get("ready") is True, "missing": missing(state)}
    return {**state, **public} if _from_loopback() else public


def _state(gate: Headgate) -> Mapping[str, object]:
    """Return the whole state.

    Each answer takes a question to all workers. So for callers from outside the workers are asked once per FRESH_S, and the
    earlier state is used in between.
    """
    if (workers := _workers()) is None:
        return gate.ready()
    health, _ = workers
    if _from_loopback():
        return health()
    known: dict[str, Any] = current_app.extensions.setdefault("headgate.health", {"state": None, "asked_s": 0.0})
    if known["state"] is None or time.monotonic() - known["asked_s"] >= FRESH_S:
        known["asked_s"] = time.monotonic()  # before the question, so that others get the earlier state while it waits
        known["state"] = health()
    state: Mapping[str, object] = known["state"]
    return state


def missing(state: Mapping[str, object]) -> list[str]:
    """Return the names in a readiness report that are down or not ready."""
    return sorted(name for name, value in state.items() if name != "ready" and (value is False or value == "down"))


def _workers() -> Workers | None:
    workers: Workers | None = current_app.extensions.get("headgate.workers")
    return workers


def _from_loopback() -> bool:
    """Return whether the request came directly from this machine, without a proxy."""
    return is_loopback(request.remote_addr) and not any(name in request.headers for name in _OF_PROXIES)
