"""`SocketIO` of Flask-SocketIO on Headgate's transport. One line of an application changes:

    from headgate.socketio.flask import SocketIO        # was: from flask_socketio import SocketIO

It takes the options of Flask-SocketIO's class and of `headgate.socketio.Server`. `server` and `run` are ours; `emit`, `send`,
`join_room` and the like are Flask-SocketIO's.
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

# As gevent's servers take them.
TLS_OPTIONS = ("keyfile", "certfile", "ca_certs", "cert_reqs", "ssl_version", "ciphers", "ssl_context")


class SocketIO(flask_socketio.SocketIO):  # type: ignore[misc]
    """Flask-SocketIO's class with `headgate.socketio.Server` inside. The process must be patched by gevent."""

    reason = Server.reason

    def init_app(self, app: Any, **options: Any) -> None:
        """Attach to an application. As Flask-SocketIO's.

        Without an application, and with a `message_queue`, it only emits, as in a task queue's worker, and the process need not
        be patched. Under `flask`'s commands Flask-SocketIO would choose threads.
        """
        if app is None:
            super().init_app(app, **options)
            return
        self.server_options.setdefault("async_mode", "gevent")
        stock = flask_socketio.socketio
        # It looks up the class of its server only here.
        flask_socketio.socketio = SimpleNamespace(**{**vars(socketio), "Server": Server})
        try:
            super().init_app(app, **options)
        finally:
            flask_socketio.socketio = stock

    def emit(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Emit an event. As Flask-SocketIO's; NaN and infinities raise also with only a message queue.

        Raises ValueError: as every emit of the server.
        """
        if not isinstance(self.server, Server):
            refuse_not_json(json.dumps(args, default=str, skipkeys=True))
        super().emit(event, *args, **kwargs)

    def run(self, app: Any, host: str | None = None, port: int | None = None, **options: Any) -> None:
        """Serve the application with our HTTP server. As Flask-SocketIO's, TLS included, without the options of other servers.

        Raises TypeError: an option that our server does not have.
        """
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
        self.wsgi_server = HTTPServer((host or "127.0.0.1", port), app, **tls)
        if use_reloader:
            flask_socketio.run_with_reloader(self.wsgi_server.serve_forever, **reloader_options)
        else:
            self.wsgi_server.serve_forever()
