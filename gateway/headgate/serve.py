"""`headgate serve`: a Flask application with the gateway inside, on gevent's WSGI server, with a Redis found or brought.

In: settings as a mapping (what the command line said), and which application. Out: an exit code; on standard output one line
per thing that was done, the last one `headgate: ready at <URL> …`. The caller has patched the standard library already.
"""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flask import Flask

from . import __version__, logs
from .embedded import EmbeddedRedis, start_private_redis
from .errors import HeadgateError, InvalidRequest
from .flask_extension import Headgate
from .loop import Signal, on_signal
from .redis_link import check_server, open_client, place
from .settings import PREFIX, Settings
from .transport.wsgi import Server


def run(overrides: Mapping[str, str], target: str | None = None) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        overrides: `HEADGATE_*` names and values that win over the environment.
        target: `module:application` or `module:factory`; None serves the ready-made application.

    Returns:
        0 after a stop that was asked for, 1 when it could not start (one clear line on standard error).
    """
    private: EmbeddedRedis | None = None
    try:
        # An application that is imported by name reads the environment itself: what the command line said must be there.
        os.environ.update(overrides)
        settings = Settings.read(os.environ)
        logs.configure(settings.log_level)
        if settings.redis_url is None:
            private = start_private_redis(settings.data_dir)
            os.environ[PREFIX + "REDIS_URL"] = private.url
            settings = Settings.read(os.environ)
            _say(f"started a private {private.description} in {settings.data_dir}")
        _check_redis(settings.redis_url or "")
        if settings.dev:
            _say("development mode: anyone on this machine may subscribe to everything and publish. Never use it in public.")
        app = _load(target, settings)
        return _serve(app, settings)
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)
        return 1
    finally:
        if private is not None:
            private.close()


def _check_redis(url: str) -> None:
    client = open_client(url, timeout_s=5.0, max_connections=1)
    try:
        name, version = check_server(client)
    finally:
        client.close()
    _say(f"using {name} {version} at {place(url)}")


def _load(target: str | None, settings: Settings) -> Flask:
    """Return the application, with the gateway attached and a health page.

    Raises:
        InvalidRequest: `target` names nothing that is a Flask application.
    """
    if target is None:
        from headgate_server.app import create_app

        return create_app(settings)
    module_name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidRequest(f"{target!r} is not of the form MODULE:APPLICATION or MODULE:FACTORY")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise  # a module that the application itself is missing: its traceback says where
        raise InvalidRequest(f"no module named {module_name!r} (looked in {os.getcwd()} first)") from error
    found: Any = getattr(module, attribute or "app", None)
    if found is None:
        raise InvalidRequest(
            f"module {module_name!r} has no {attribute or 'app'!r}; expected MODULE:APPLICATION or MODULE:FACTORY"
        )
    app = _made_by(found, target) if not isinstance(found, Flask) and callable(found) else found
    if not isinstance(app, Flask):
        raise InvalidRequest(f"{target!r} is a {type(app).__name__}; expected a Flask application or a function that returns one")
    if "headgate" not in app.extensions:
        Headgate(app, settings=settings)
    if not any(rule.rule == "/healthz" for rule in app.url_map.iter_rules()):
        from headgate_server.health import health_routes

        app.register_blueprint(health_routes(app.extensions["headgate"], metrics_open=settings.metrics_open))
    return app


def _made_by(factory: Callable[..., Any], target: str) -> Any:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise InvalidRequest(f"{target!r} needs arguments ({error}); expected a function that takes none") from error
    return factory()


def _serve(app: Flask, settings: Settings) -> int:
    gate: Headgate = app.extensions["headgate"]
    server = Server((settings.host, settings.port), app, request_deadline_s=settings.handshake_deadline_s)
    try:
        server.init_socket()
    except OSError as error:
        reason = error.strerror or str(error)
        print(
            f"headgate: cannot listen on {settings.host}:{settings.port}: {reason}; choose another with --host or --port",
            file=sys.stderr,
        )
        return 1
    asked_to_stop = Signal()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, asked_to_stop.set)
    gate.start()
    for namespace in gate.gateway.namespaces.values():
        namespace.bus.was_up.wait(timeout=10)
    server.start()
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    _say(f"ready at http://{shown}:{server.server_port}/ (headgate {__version__}, Ctrl-C stops it)")
    asked_to_stop.wait()
    _say("stopping")
    gate.close()
    server.stop(timeout=1)
    return 0


def _say(line: str) -> None:
    print(f"headgate: {line}", flush=True)
