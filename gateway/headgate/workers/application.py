"""The application that a gateway serves: found by its name, with the gateway attached and a health page."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from flask import Flask

from headgate.errors import InvalidRequest
from headgate.flask_extension import Headgate
from headgate.runtime.importing import import_string
from headgate.settings import Settings


def load_application(target: str | None, settings: Settings) -> Flask:
    """Return an application by its name, or the ready-made one, made ready to be served.

    Raises:
        InvalidRequest: `target` names nothing that is a Flask application.
    """
    if target is None:
        from headgate_server.app import create_app

        return create_app(settings)
    found = import_string(target, "MODULE:APPLICATION or MODULE:FACTORY", default="app")
    app = _made_by(found, target) if not isinstance(found, Flask) and callable(found) else found
    return made_ready(app, settings, repr(target))


def made_ready(app: object, settings: Settings, name: str) -> Flask:
    """Attach the gateway to an application, if that has not been done, and a health page, if it has none; return it.

    Raises:
        InvalidRequest: it is no Flask application; `name` is for people.
    """
    if not isinstance(app, Flask):
        raise InvalidRequest(f"{name} is a {type(app).__name__}; expected a Flask application or a function that returns one")
    if app.config.get("MAX_CONTENT_LENGTH") is None:
        app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    if "headgate" not in app.extensions:
        Headgate(app, settings=settings)
    if not any(rule.rule == "/healthz" for rule in app.url_map.iter_rules()):
        from headgate_server.health import health_routes

        app.register_blueprint(health_routes(app.extensions["headgate"], metrics_open=settings.metrics_open))
    return app


def _made_by(factory: Callable[..., object], target: str) -> object:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise InvalidRequest(f"{target!r} needs arguments ({error}); expected a function that takes none") from error
    return factory()
