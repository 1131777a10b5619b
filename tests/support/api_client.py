"""The operations of /api/v1 over Flask's own client, and a connected client as they show it."""

from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from headgate.runtime.shared_rates import SharedRates
from headgate.services.clients import ConnectedClient
from headgate_server.api.error_pages import install_error_pages
from headgate_server.api.v1.dispatch import routes
from headgate_server.api.v1.services import Services
from headgate_server.api.v1.table import OPERATIONS


def api_client(services: Services, reads: SharedRates | None = None) -> FlaskClient:
    app = Flask(__name__)
    install_error_pages(app)
    app.register_blueprint(routes(OPERATIONS, services, reads or SharedRates("reads", 1000, 1000), {}))
    return app.test_client()


def connected(session: str = "s1", user: str = "ana", **more: Any) -> ConnectedClient:
    """Return a live client that is up to date, but for the given values."""
    plain: dict[str, Any] = {
        "namespace": "shop", "gateway": "web1/7", "address": "192.0.2.0/24", "transport": "websocket", "since_ms": 1000,
        "patterns": ("a", "b", "c", "d"), "subscriptions": 5, "state": "live", "catching_up": False, "lagging": False,
        "queued": 0, "queued_bytes": 0, "discarded": 0, "gaps": 0, "position": 9, "behind": 0, "trouble": (),
    }  # fmt: skip
    return ConnectedClient(session=session, user=user, **{**plain, **more})
