"""`headgate serve`: a Flask application with the gateway inside, on gevent's WSGI server, with a Redis found or brought.

In: settings as a mapping (what the command line said), and which application. Out: an exit code; on standard output one line
per thing that was done, the last one `headgate: ready at <URL> …`. The caller has patched the standard library already.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from flask import Flask

from headgate import __version__
from headgate.consumers.process.config import find_file, need_file, read_settings
from headgate.errors import HeadgateError, InvalidRequest
from headgate.flask_extension import Headgate
from headgate.redis.client import describe_server
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.runtime import logging as logs
from headgate.runtime.heap import Heap
from headgate.runtime.loop import Signal, on_signal, spawn
from headgate.runtime.operator_lines import complain, say
from headgate.settings import PREFIX, Settings, environment
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_server import HTTPServer
from headgate.workers.application import load_application

from .consumers_process import ConsumersProcess
from .redis_keeper import RedisKeeper


def run(
    overrides: Mapping[str, str], target: str | None = None, config: str | None = None, *, with_consumers: bool = False
) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        overrides: `HEADGATE_*` names and values that win over the environment.
        target: `module:application` or `module:factory`; None serves the ready-made application.
        config: the configuration file; None: HEADGATE_CONFIG, else headgate.toml if it is there.
        with_consumers: also run the consumers of that file, in a process of their own.

    Returns:
        0 after a stop that was asked for, 1 when it could not start (one clear line on standard error).
    """
    private: EmbeddedRedis | None = None
    keeper: RedisKeeper | None = None
    try:
        # An application that is imported by name reads the environment itself: what the command line said must be there.
        environ = environment()
        environ.update(overrides)
        path = need_file(config) if with_consumers else find_file(config)
        if path is not None:
            environ.update(read_settings(path, environ))
            say(f"settings from {path}")
        settings = Settings.read(environ)
        if settings.workers != 1:
            raise InvalidRequest("the number of workers is read before the configuration file: use --workers or HEADGATE_WORKERS")
        logs.configure(settings.log_level)
        if settings.redis_url is None:
            private = start_private_redis(settings.data_dir)
            environ[PREFIX + "REDIS_URL"] = private.url
            settings = Settings.read(environ)
            keeper = RedisKeeper(private)
            keeper.start()
            say(f"started a private {private.description} in {settings.data_dir}")
        say(f"using {describe_server(settings.redis_url or '')}")
        if settings.dev:
            say("development mode: anyone on this machine may subscribe to everything and publish. Never use it in public.")
        app = load_application(target, settings)
        if path is None or not with_consumers:
            return _serve(app, settings)
        consumers = ConsumersProcess(["--config", path])
        if not consumers.check():
            return 1
        with consumers:
            return _serve(app, settings)
    except HeadgateError as error:
        for line in error.lines():
            complain(line)
        return 1
    finally:
        if keeper is not None:
            keeper.close()
        if private is not None:
            private.close()


def _serve(app: Flask, settings: Settings) -> int:
    gate: Headgate = app.extensions["headgate"]
    server = HTTPServer((settings.host, settings.port), app, limits=HttpLimits.of(settings), routes=gate.routes(app))
    try:
        server.init_socket()
    except OSError as error:
        reason = error.strerror or str(error)
        complain(f"cannot listen on {settings.host}:{settings.port}: {reason}; choose another with --host or --port")
        return 1
    asked_to_stop, at_once = Signal(), Signal()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, lambda: (at_once if asked_to_stop.is_set() else asked_to_stop).set())
    if settings.token_keys or settings.token_jwks_url:  # elsewhere a closed terminal must end the process, as ever
        on_signal(signal.SIGHUP, gate.gateway.reload_keys)
    gate.start()
    for namespace in gate.gateway.namespaces.values():
        namespace.bus.was_up.wait(timeout=10)
    gate.gateway.registration.tried.wait(timeout=10)  # a gateway that stops when we are ready finds us
    heap = Heap(lambda: sum(len(namespace.clients) for namespace in gate.gateway.namespaces.values()))
    heap.start()
    server.start()
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    say(f"ready at http://{shown}:{server.server_port}/ (headgate {__version__}, Ctrl-C stops it)")
    asked_to_stop.wait()
    say("stopping")
    spawn(_drain, gate, settings.drain_s, at_once)
    at_once.wait()
    heap.close()
    gate.close()
    server.stop(timeout=1)
    return 0


def _drain(gate: Headgate, within_s: float, done: Signal) -> None:
    try:
        alone = gate.gateway.retire()
        clients = sum(len(namespace.clients) for namespace in gate.gateway.namespaces.values())
        if clients and within_s and alone:
            say(f"disconnecting {clients} client(s) at once: no other gateway serves them")
            within_s = 0
        elif clients and within_s:
            say(f"moving {clients} client(s) elsewhere within {within_s:g} s (Ctrl-C again stops at once)")
        gate.gateway.drain(within_s)
    finally:
        done.set()
