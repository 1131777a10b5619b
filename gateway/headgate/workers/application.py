"""The application of a serving process, with the gateway, a health page and the console."""

from __future__ import annotations

import inspect
from collections.abc import Container, Mapping
from time import monotonic

from flask import Flask

from headgate.errors import InvalidRequest, SettingsError
from headgate.flask.extension import SOCKET_PATH, Headgate
from headgate.runtime.importing import APPLICATION, import_string
from headgate.runtime.loop import Signal
from headgate.settings.settings import PREFIX, Settings, variables_set
from headgate.transport.http_limits import MAX_BODY_BYTES

# The application to serve without a name.
READY_MADE = "headgate_server.app:create_app"
# What `headgate serve` needs before it can import an application and read its `app.config`.
_NEEDED_BEFORE = ("DATA_DIR", "DEMO", "HOST", "LOG_FORMAT", "LOG_LEVEL", "PORT", "REDIS_URL", "WORKERS")
READY_S = 10.0
POLL_S = 0.05


def load_application(target: str | None, settings: Settings, given: Container[str] = ()) -> Flask:
    """Return an application by its name, or the default one, prepared by `made_ready`.

    `given` are the names of the settings that the operator has set, which win over those of the application.

    Raises:
        InvalidRequest: `target` does not name a Flask application.
        SettingsError: as `made_ready`, and for settings that the application sets too late.
    """
    if target is None:
        made: Flask = import_string(READY_MADE, APPLICATION)(settings, is_final=True)
        return made
    app = made_ready(import_application(target), repr(target))
    if faults := settings_too_late(app.config, given):
        raise SettingsError(faults)
    return app


def settings_too_late(config: Mapping[str, object], given: Container[str]) -> list[str]:
    """Return a line for each setting in an `app.config` that `headgate serve` would need earlier and nothing else sets."""
    names = [name for name in variables_set(config) if name.removeprefix(PREFIX) in _NEEDED_BEFORE and name not in given]
    why = "in app.config comes too late, as `headgate serve` needs it before the import"
    return [f"{name} {why}: set it in the environment, in headgate.toml or as an option" for name in sorted(names)]


def import_application(target: str) -> Flask:
    """Return an application by its name, calling it if it is a function.

    Raises InvalidRequest if `target` does not name a Flask application.
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
            if app is None:
                raise InvalidRequest(f"{target!r} returned None; expected a Flask application: does it end with `return app`?")
    return _checked(app, repr(target))


def made_ready(app: object, name: str) -> Flask:
    """Attach the gateway, a health page and the console to an application without them; return it.

    Raises:
        InvalidRequest: with `name`, if it is not a Flask application.
        SettingsError: as `Headgate.init_app` and `Headgate.check_config`.
    """
    app = _checked(app, name)
    if getattr(getattr(app.extensions.get("socketio"), "sockio_mw", None), "engineio_path", "") == SOCKET_PATH:
        raise InvalidRequest(
            f"{name} has Flask-SocketIO at {SOCKET_PATH}, where the gateway's clients come: give it another path, or serve it "
            "without a gateway, as with `gunicorn -k gevent -w 1`"
        )
    if app.config.get("MAX_CONTENT_LENGTH") is None:
        app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    gate: Headgate = app.extensions.get("headgate") or Headgate(app)
    gate.check_config()
    if not any(rule.rule == "/healthz" for rule in app.url_map.iter_rules()):
        from headgate_server.api.health import health_routes

        app.register_blueprint(health_routes(gate, metrics_open=gate.settings.metrics_open))
    if not any(rule.rule == "/console" for rule in app.url_map.iter_rules()):
        from headgate_server.api.console import add_console

        add_console(app, gate, gate.settings)
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

    Flask runs each in a separate asgiref loop. asgiref refuses a second loop in a thread, and all greenlets share one thread.
    """
    names = sorted(name for name, view in app.view_functions.items() if inspect.iscoroutinefunction(view))
    if not names:
        return []
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return [f"async views ({shown}) fail when their requests overlap, as gevent has one thread for all: use plain functions"]


def start_gateway(gate: Headgate, asked_to_stop: Signal) -> list[str]:
    """Start a gateway and wait until it has read from Redis what it needs to admit clients, at most READY_S for each part.

    Returns lines for the operator, as `Gateway.not_ready`. Returns early, without lines, if the process is asked to stop.
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
    wait(gateway.cluster.table.tried)  # so that other gateways know this one before they stop
    if not lines:  # the gateway refuses every login until then
        wait(gateway.access.revocations.was_known)
    return [] if asked_to_stop.is_set() else lines


def clients_of(gate: Headgate) -> int:
    """Return the number of clients of all namespaces."""
    return sum(len(namespace.clients) for namespace in gate.gateway.namespaces.values())
