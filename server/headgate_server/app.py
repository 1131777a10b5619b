"""The application has routes around one gateway. `headgate serve` runs it by default.

In: settings. Out: a Flask application with the gateway in its extension. Each module of routes (health.py, api/v1,
demo/pages.py) states its promises. Every refusal passes through api/error_pages.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable
from functools import partial

from flask import Flask, render_template, signals

from headgate.flask.extension import Headgate
from headgate.flask.page_files import add_page_files
from headgate.installation import __version__
from headgate.runtime.shared_rates import SharedRates
from headgate.services.publisher import find_redis_url
from headgate.settings.settings import Settings
from headgate_server.api.health import health_routes

from .api.console import add_console
from .api.error_pages import install_error_pages
from .api.publish_requests import posted, routes_below
from .api.security_headers import add_security_headers
from .api.v1.dispatch import routes as api_routes
from .api.v1.publishing import BATCH, ENVELOPE_BYTES, EVENTS, Publishing
from .api.v1.services import Services
from .api.v1.table import OPERATIONS
from .demo.kept import Kept
from .demo.orders import OrderBook
from .demo.pages import demo_routes
from .demo.tokens import USERS, DemoTokens

# Signals of Flask that a listener expects for every request.
_SIGNALS = (
    signals.request_started,
    signals.request_finished,
    signals.request_tearing_down,
    signals.appcontext_pushed,
    signals.appcontext_popped,
    signals.appcontext_tearing_down,
    signals.got_request_exception,
)


def create_app(settings: Settings | None = None, *, gate: Headgate | None = None) -> Flask:
    """Return the default application.

    Args:
        settings: None reads the environment.
        gate: an existing gateway instead of the extension (which then has its own authenticator).

    Raises SettingsError for wrong settings in the environment.
    """
    settings = settings or Settings.from_environment()
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_payload_bytes + ENVELOPE_BYTES
    install_error_pages(app)
    app.after_request(add_security_headers)
    kept = Kept(lambda: find_redis_url(settings, within_s=0.0)) if settings.demo and gate is None else None
    tokens = DemoTokens(kept.secret if kept else partial(secrets.token_bytes, 32)) if settings.demo else None
    extension: Headgate | None = None
    if gate is None:
        gate = extension = Headgate(app, authenticator=tokens.authenticator(settings) if tokens else None, settings=settings)
    add_page_files(app, __package__)
    app.register_blueprint(health_routes(gate, metrics_open=settings.metrics_open))
    reads = SharedRates("read", settings.read_per_s, settings.read_burst)
    publishing = Publishing(gate, settings)
    below = {"publishEvent": posted(publishing.one), "publishBatch": posted(publishing.batch)}
    app.register_blueprint(api_routes(OPERATIONS, Services(gate, settings), reads, below))
    if tokens:
        app.register_blueprint(demo_routes(OrderBook(gate.publish_each, users=USERS, keep=kept), tokens))
    else:
        shown = {"version": __version__, "namespaces": settings.namespaces, "dev": settings.dev}
        app.add_url_rule("/", "index", lambda: render_template("index.html", **shown))
    if extension is not None:
        extension.share_rates(publishing.rates, reads)
        add_console(app, extension, settings)
        untouched = watch(app)
        answered = {EVENTS: publishing.one, BATCH: publishing.batch}
        for (method, path), route in routes_below(answered, extension.answers_to, {EVENTS: publishing.begin_one}).items():
            extension.add_route(method, path, route, untouched)
    return app


def watch(app: Flask) -> Callable[[Flask], bool]:
    """Return a function that later returns whether the application is unchanged, so that requests may bypass Flask.

    Hooks, error pages or a JSON provider added in between must run for every request.
    """
    made, views = _front(app), dict(app.view_functions)

    def untouched(served: Flask) -> bool:
        same_views = all(served.view_functions.get(endpoint) is view for endpoint, view in views.items())
        return served is app and same_views and _front(served) == made

    return untouched


def _front(app: Flask) -> Hashable:
    """Return everything that runs before, after and around the routes of an application."""
    hooks = (app.before_request_funcs, app.after_request_funcs, app.teardown_request_funcs, app.url_value_preprocessors)
    pages = {
        (scope, code, kind): id(page)
        for scope, by_code in app.error_handler_spec.items()
        for code, by_kind in by_code.items()
        for kind, page in by_kind.items()
    }
    return (
        tuple(frozenset((scope, tuple(map(id, called))) for scope, called in by_scope.items() if called) for by_scope in hooks),
        frozenset(pages.items()),
        tuple(map(id, app.teardown_appcontext_funcs)),
        tuple(signal.has_receivers_for(app) for signal in _SIGNALS),
        (id(app.json), id(app.session_interface), type(app), app.config.get("MAX_CONTENT_LENGTH")),
    )
