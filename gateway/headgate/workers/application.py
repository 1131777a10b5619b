"""The application that a gateway serves, with the gateway, a health page and the console."""

from __future__ import annotations

import inspect
from time import monotonic

from flask import Flask

from headgate.errors import InvalidRequest
from headgate.flask.extension import SOCKET_PATH, Headgate
from headgate.runtime.importing import APPLICATION, import_string
from headgate.runtime.loop import Signal
from headgate.settings.settings import Settings
from headgate.transport.http_limits import MAX_BODY_BYTES

# The application that is served when none is named.
READY_MADE = "headgate_server.app:create_app"
READY_S = 10.0
POLL_S = 0.05


def load_application(target: str | None, settings: Settings) -> Flask:
    """Return an application by its name, or the ready-made one, as `made_ready` does.

    Raises InvalidRequest: `target` names no Flask application.
    """
    if target is None:
        made: Flask = import_string(READY_MADE, APPLICATION)(settings)
        return made
    return made_ready(import_application(target), settings, repr(target))


def import_application(target: str) -> Flask:
    """Return an application by its name, as it is or as its function returns it.

    Raises InvalidRequest: `target` names no Flask application.
    """
    app = import_string(target, APPLICATION, default="app")
    if not isinstance(app, Flask) and callable(app):
        try:
            inspect.signature(app).bind()
        except TypeError as error:
            if inspect.isroutine(app) or inspect.isclass(app):
                raise InvalidRequest(f"{target!r} needs arguments ({error}); expected a function that takes none") from error
        else:
            app = app()
    return _checked(app, repr(target))


def made_ready(app: object, settings: Settings, name: str) -> Flask:
    """Attach the gateway, a health page and the console to an application that lacks them; return it.

    Raises InvalidRequest: it is no Flask application. The error has its `name`.
    """
    app = _checked(app, name)
    if getattr(getattr(app.extensions.get("socketio"), "sockio_mw", None), "engineio_path", "") == SOCKET_PATH:
        raise InvalidRequest(
            f"{name} has Flask-SocketIO at {SOCKET_PATH}, where the gateway's clients come: give it another path, or serve it "
            "without a gateway, as with `gunicorn -k gevent -w 1`"
        )
    if app.config.get("MAX_CONTENT_LENGTH") is None:
        app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    if "headgate" not in app.extensions:
        Headgate(app, settings=settings)
    if not any(rule.rule == "/healthz" for rule in app.url_map.iter_rules()):
        from headgate_server.api.health import health_routes

        app.register_blueprint(health_routes(app.extensions["headgate"], metrics_open=settings.metrics_open))
    if not any(rule.rule == "/console" for rule in app.url_map.iter_rules()):
        from headgate_server.api.console import add_console

        # Its own configuration may have other settings.
        add_console(app, app.extensions["headgate"], app.extensions["headgate"].settings)
    return app


def _checked(app: object, name: str) -> Flask:
    if not isinstance(app, Flask):
        raise InvalidRequest(
            f"{name} is of type {type(app).__name__}; expected a Flask application or a function that returns one. "
            "An application of another framework (Django, FastAPI) keeps its own server and publishes: start `headgate serve` "
            "without it"
        )
    return app


def async_views(app: Flask) -> list[str]:
    """Return a line for the operator if the application has async views.

    Flask runs each in a loop of its own by asgiref, which refuses a second loop in a thread, and all greenlets are in one thread.
    """
    names = sorted(name for name, view in app.view_functions.items() if inspect.iscoroutinefunction(view))
    if not names:
        return []
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return [f"async views ({shown}) fail when their requests overlap, as gevent has one thread for all: use plain functions"]


def start_gateway(gate: Headgate, asked_to_stop: Signal) -> list[str]:
    """Start a gateway and wait, READY_S at most for each part, until Redis has told it what it needs to admit clients.

    Returns lines for the operator, as `Gateway.not_ready`; none, and early, if the process is asked to stop.
    """

    def wait(ready: Signal) -> None:
        until_s = monotonic() + READY_S
        while not asked_to_stop.is_set() and monotonic() < until_s and not ready.wait(POLL_S):
            pass

    gate.start()
    gateway = gate.gateway
    for namespace in gateway.namespaces.values():
        wait(namespace.bus.was_up)
    lines = gateway.not_ready()
    wait(gateway.cluster.table.tried)  # so that a gateway that stops later finds us
    if not lines:  # until then every login is refused
        wait(gateway.access.revocations.was_known)
    return [] if asked_to_stop.is_set() else lines


def clients_of(gate: Headgate) -> int:
    """Return the number of clients of all namespaces."""
    return sum(len(namespace.clients) for namespace in gate.gateway.namespaces.values())
