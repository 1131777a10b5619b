"""The application has routes around one gateway. `headgate serve` runs it by default.

In: settings. Out: a Flask application with the gateway in its extension. Each module of routes (health.py, api/v1,
demo/pages.py) states its promises. Every refusal passes through api/error_pages.py.
"""

from __future__ import annotations

import secrets
from functools import partial

from flask import Flask, render_template

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
from .demo.tokens import USERS, demo_authenticator, demo_tokens


def create_app(settings: Settings | None = None, *, gate: Headgate | None = None, is_final: bool = False) -> Flask:
    """Return the default application.

    Args:
        settings: None reads the environment.
        gate: an existing gateway instead of the extension (which then has its own authenticator).
        is_final: whether the caller adds nothing, such as hooks, so that requests to publish may bypass Flask.

    Raises SettingsError for wrong settings in the environment.
    """
    settings = settings or Settings.from_environment()
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_payload_bytes + ENVELOPE_BYTES
    install_error_pages(app)
    app.after_request(add_security_headers)
    kept = Kept(lambda: find_redis_url(settings, within_s=0.0)) if settings.demo and gate is None else None
    tokens = demo_tokens(kept.secret if kept else partial(secrets.token_bytes, 32)) if settings.demo else None
    extension: Headgate | None = None
    if gate is None:
        gate = extension = Headgate(
            app, authenticator=demo_authenticator(tokens, settings) if tokens else None, settings=settings
        )
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
        if is_final:
            answered = {EVENTS: publishing.one, BATCH: publishing.batch}
            for (method, path), route in routes_below(answered, extension.answers_to, {EVENTS: publishing.begin_one}).items():
                extension.add_route(method, path, route)
    return app
