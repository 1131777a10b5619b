"""The application that a worker serves: what is refused before it starts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from flask import Flask

from headgate.errors import InvalidRequest
from headgate.settings.settings import Settings
from headgate.workers.application import made_ready


def test_an_application_that_is_no_flask_application_is_refused() -> None:
    """As python-socketio's are."""
    with pytest.raises(InvalidRequest, match="the chat is a function; expected a Flask application"):
        made_ready(lambda environ, start_response: [], Settings(), "the chat")


def test_flask_socketio_at_the_gateways_path_is_refused() -> None:
    """Its clients would reach the gateway, and nobody would say so."""
    app = Flask("shop")
    app.extensions["socketio"] = SimpleNamespace(sockio_mw=SimpleNamespace(engineio_path="/socket.io/"))

    with pytest.raises(InvalidRequest, match=r"has Flask-SocketIO at /socket.io/, where the gateway's clients come"):
        made_ready(app, Settings(), "'shop:app'")
