"""A pytest plugin: the suites of python-socketio and Flask-SocketIO run on `headgate.socketio.Server` instead of theirs.

`socketio.Server` is ours before any test module is imported. Four things are put in place for the suites' sake, none of which an
application meets: the client's events are of a class in Python, because tests replace a method of theirs and gevent's own class
does not allow that; a class of Engine.IO servers that a test has replaced by a mock is used, as python-socketio uses it;
`async_mode="threading"`, which the admin suite asks for, is taken for gevent's; and that suite's web server is our HTTP server.
The outcome of each test goes to the file that `HEADGATE_SUITE_OUTCOMES` names.
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import functools
import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import engineio
import flask_socketio
import gevent.event
import pytest
import socketio
import socketio.server

from headgate.socketio import HTTPServer, Server, WSGIApp
from headgate.socketio import flask as our_flask
from headgate.socketio.rooms import adopting

_stock_engine = engineio.Server


class SuiteServer(Server):
    """Ours, as the suites make it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.asked_mode = options.get("async_mode")
        if self.asked_mode == "threading":
            del options["async_mode"]
        super().__init__(*args, **options)
        if self.asked_mode == "threading":
            self.async_mode = "threading"

    def _engineio_server_class(self) -> Any:
        asked = socketio.server.engineio.Server
        return super()._engineio_server_class() if asked is _stock_engine else asked


class SuiteManager(adopting(socketio.Manager)):  # type: ignore[misc]
    """A client manager as it is once a server of ours has it; the suite gives it a mock for a server, which has no sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.prepare()

    def set_server(self, server: Any) -> None:
        super().set_server(server)
        server.member = lambda eio_sid: None
        server.eio_packets = functools.partial(SuiteServer.eio_packets, server)


class SocketIOWebServer:
    """The admin suite's web server: a WSGI server on a separate port."""

    def __init__(self, sio: SuiteServer) -> None:
        self.sio = sio
        self.http: HTTPServer | None = None

    def start(self, port: int = 8900) -> None:
        self.http = HTTPServer(("127.0.0.1", port), WSGIApp(self.sio))
        self.http.start()

    def stop(self) -> None:
        assert self.http is not None
        self.sio.eio.disconnect()
        self.sio.shutdown()
        self.http.stop(0)


class ReplaceableEvent(gevent.event.Event):  # type: ignore[misc]
    """An event with a method that a test can replace, because a class in Python has room for it in its objects."""


engineio.Client.create_event = lambda client, *_, **__: ReplaceableEvent()
socketio.Server = socketio.server.Server = SuiteServer
flask_socketio.SocketIO = our_flask.SocketIO
_web_server = ModuleType("tests.web_server")
_web_server.SocketIOWebServer = SocketIOWebServer  # type: ignore[attr-defined]
_outcomes: dict[str, str] = {}


def pytest_sessionstart() -> None:
    """Have the admin suite import our web server."""
    sys.modules["tests.web_server"] = _web_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the suite of the client manager on ours."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        if module.__name__.endswith("common.test_manager"):
            module.manager = SimpleNamespace(Manager=SuiteManager)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or (report.failed and report.nodeid not in _outcomes):
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    with open(os.environ["HEADGATE_SUITE_OUTCOMES"], "w") as file:
        json.dump(_outcomes, file)
