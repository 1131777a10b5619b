"""`SocketIO` of Flask-SocketIO on Headgate's transport. An application changes one line:

    from headgate.socketio.flask import SocketIO        # was: from flask_socketio import SocketIO

It takes the options of Flask-SocketIO's class and of `headgate.socketio.Server`. `server` and `run` are ours, while `emit`,
`send`, `join_room` and the like are Flask-SocketIO's.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import flask_socketio
import socketio

from .packet_check import refuse_not_json
from .server import Server

__all__ = ["SocketIO"]

# The options of gevent's servers.
TLS_OPTIONS = ("keyfile", "certfile", "ca_certs", "cert_reqs", "ssl_version", "ciphers", "ssl_context")


class SocketIO(flask_socketio.SocketIO):  # type: ignore[misc]
    """Flask-SocketIO's class with `headgate.socketio.Server` inside. Needs a process patched by gevent."""

    reason = Server.reason

    def init_app(self, app: Any, **options: Any) -> None:
        """Attach to an application, as Flask-SocketIO does.

        With a `message_queue` and no application it only emits, for example in a task queue's worker, and the process may be
        unpatched. Under `flask`'s commands Flask-SocketIO would choose threads.
        """
        if app is None:
            super().init_app(app, **options)
            return
        self.server_options.setdefault("async_mode", "gevent")
        stock = flask_socketio.socketio
        # Flask-SocketIO looks up its server class only here.
        flask_socketio.socketio = SimpleNamespace(**{**vars(socketio), "Server": Server})
        try:
            super().init_app(app, **options)
        finally:
            flask_socketio.socketio = stock

    def emit(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Emit an event, as Flask-SocketIO does. NaN and infinities raise even with only a message queue.

        Raises ValueError as every emit of the server.
        """
        if not isinstance(self.server, Server):
            refuse_not_json(json.dumps(args, default=str, skipkeys=True))
        super().emit(event, *args, **kwargs)

    def run(self, app: Any, host: str | None = None, port: int | None = None, **options: Any) -> None:
        """Serve the application with our HTTP server, as Flask-SocketIO does. Supports TLS, but not options of other servers.

        Raises TypeError for an option that our server does not have.
        """
        from headgate.transport.http_limits import HttpLimits
        from headgate.transport.http_server import HTTPServer

        debug = options.pop("debug", app.debug)
        use_reloader = options.pop("use_reloader", debug)
        reloader_options = options.pop("reloader_options", {})
        for without_meaning in ("log_output", "allow_unsafe_werkzeug"):
            options.pop(without_meaning, None)
        tls = {name: options.pop(name) for name in TLS_OPTIONS if name in options}
        if options:
            raise TypeError(f"run: unknown options {', '.join(sorted(options))}")
        app.debug = debug
        if debug:
            from werkzeug.debug import DebuggedApplication

            self.sockio_mw.wsgi_app = DebuggedApplication(self.sockio_mw.wsgi_app, evalex=True)
        named: str = app.config["SERVER_NAME"] or ""
        port = port or (int(named.rpartition(":")[2]) if ":" in named else 5000)
        self.wsgi_server = HTTPServer((host or "127.0.0.1", port), app, limits=HttpLimits(max_body_bytes=None), **tls)
        if use_reloader:
            flask_socketio.run_with_reloader(self.wsgi_server.serve_forever, **reloader_options)
        else:
            self.wsgi_server.serve_forever()
