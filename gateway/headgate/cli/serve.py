"""`headgate serve` runs a Flask application with the gateway inside, with a given or private Redis.

In: settings as a mapping (from the command line), and the name of the application. Out: an exit code, and on standard output
one line per completed step, the last one `headgate: ready at <URL> …`. The caller has already patched the standard library.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING

import structlog
from flask import Flask

from headgate.errors import HeadgateError, InvalidRequest
from headgate.flask.extension import Headgate
from headgate.redis.client import describe_server
from headgate.redis.embedded import EmbeddedRedis
from headgate.runtime import logging as logs
from headgate.runtime.heap import Heap
from headgate.runtime.importing import APPLICATION, check_string
from headgate.runtime.loop import Signal, on_signal, spawn
from headgate.runtime.operator_lines import complain, say
from headgate.runtime.standard_streams import never_block
from headgate.settings.file import read_toml
from headgate.settings.settings import DEVELOPMENT, Settings, environment, variables_set
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_server import HTTPServer, finish_requests
from headgate.workers.application import async_views, clients_of, load_application, start_gateway
from headgate.workers.settings_file import SettingsFile

from .children import ConsumersProcess, private_redis
from .demo_operator import DemoOperator, pop_restarted
from .starting import listen, notify_ready, passed_socket, read_file, say_ready

if TYPE_CHECKING:
    from headgate.node.gateway import Gateway

log = structlog.get_logger("headgate.settings")


def run(
    overrides: Mapping[str, str], target: str | None = None, config: str | None = None, *, with_consumers: bool = False
) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        overrides: `HEADGATE_*` names and values that win over the environment.
        target: `module:application` or `module:factory`; None for the default application.
        config: the configuration file; None for HEADGATE_CONFIG, else headgate.toml if present.
        with_consumers: also run the consumers of that file, in a separate process.

    Returns:
        0 after a requested stop, 1 if the start failed (one clear line on standard error). Does not return from a restart
        requested by the demo.
    """
    never_block()
    private: EmbeddedRedis | None = None
    operator: DemoOperator | None = None
    kept = ExitStack()

    @kept.callback  # the last one, when Redis and the consumers have ended
    def execute() -> None:
        if operator is not None:
            operator.execute()

    try:
        # An imported application reads the environment itself, so the settings from the command line must be there.
        environ = environment()
        is_again, started_with = pop_restarted(environ), dict(environ)
        environ.update(overrides)
        file = read_file(environ, config, is_needed=with_consumers)
        settings, given = Settings.read(environ), variables_set(environ)
        listener = passed_socket(environ)
        if settings.workers != 1:
            raise InvalidRequest("the number of workers is read before the configuration file: use --workers or HEADGATE_WORKERS")
        logs.configure(settings.log_level, form=settings.log_format)
        if target is not None:
            check_string(target, APPLICATION, default="app")  # before starting anything for it
        listener = listener or listen(settings)
        if listener is None:
            return 1
        consumers = ConsumersProcess(["--config", file.path]) if with_consumers and file.path is not None else None
        if consumers is not None and not is_again and not consumers.check():
            return 1
        if settings.redis_url is None:
            private = kept.enter_context(private_redis(settings, lambda: import_module("headgate.node.gateway")))
            settings = Settings.read(environ)
        say(f"using {describe_server(settings.redis_url or '')}")
        app = load_application(target, settings, given)
        if (operator := DemoOperator.of(settings, private, started_with, target, is_again=is_again)) is not None:
            app.extensions["headgate.operator"] = operator
        tables = None
        if consumers is not None and file.path is not None:
            tables = read_toml(file.path).get("consumers")
            kept.enter_context(consumers)
        return _serve(app, listener, file, tables)
    except HeadgateError as error:
        for line in error.lines():
            complain(line)
        return 1
    finally:
        kept.close()


def _serve(app: Flask, listener: socket.socket, file: SettingsFile, consumers: object) -> int:
    gate: Headgate = app.extensions["headgate"]
    settings = gate.settings
    if settings.dev:
        say(DEVELOPMENT)
    server = HTTPServer(listener, app, limits=HttpLimits.of(settings), routes=gate.routes(app))
    asked_to_stop, at_once = Signal(), Signal()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, lambda: (at_once if asked_to_stop.is_set() else asked_to_stop).set())
    has_files = bool(file.path or settings.token_keys or settings.token_jwks_url)
    terminal = has_terminal()

    def hang_up() -> None:
        if not has_files or (terminal and not has_terminal()):  # it was closed, which must end the process as usual
            asked_to_stop.set()
        else:
            reload(app, gate.gateway, file, consumers)

    if has_files or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        on_signal(signal.SIGHUP, hang_up)
    for line in (*start_gateway(gate, asked_to_stop), *async_views(app)):
        complain(line)
    heap = Heap(partial(clients_of, gate))
    heap.start()
    server.start()
    operator: DemoOperator | None = app.extensions.get("headgate.operator")
    if operator is not None:
        operator.start(asked_to_stop.set)
    say_ready(settings, server.address, nobody=gate.lets_nobody_in)
    notify_ready(environment())
    asked_to_stop.wait()
    say("restarting" if operator is not None and operator.restarting else "stopping")
    spawn(_drain, gate, server, settings.drain_s, at_once)
    at_once.wait()
    if operator is not None and server.socket is not None:
        operator.leave(server.socket.fileno())
    heap.close()
    gate.close()
    server.close()
    return 0


def has_terminal() -> bool:
    """Return whether a person can type input."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def reload(app: Flask, gateway: Gateway, file: SettingsFile, consumers: object) -> None:
    """Read the file again, and apply the settings that can change now. A fault changes nothing and writes one log line.

    `consumers` are the tables of the consumers that run, which change at a restart; None without any.
    """
    try:
        values = file.read(environment(), app.config)
        wanted = Settings.read(app.config, values)
        tables = read_toml(file.path).get("consumers") if consumers and file.path else None
        changed, needs_restart = gateway.reload(wanted)
        needs_restart += ["consumers"] if tables != consumers else []
    except HeadgateError as error:
        log.error("settings not reloaded", faults=list(getattr(error, "faults", error.lines())))
        return
    file.put(values, environment())
    logs.set_level(wanted.log_level)
    log.info("settings reloaded", changed=changed, needs_restart=needs_restart)


def _drain(gate: Headgate, server: HTTPServer, within_s: float, done: Signal) -> None:
    began_s = monotonic()
    server.leave()
    try:
        alone = gate.gateway.retire()
        clients = clients_of(gate)
        if clients and within_s and alone:
            say(f"disconnecting {clients} client(s) at once: no other gateway serves them")
        elif clients and within_s:
            say(f"moving {clients} client(s) elsewhere within {within_s:g} s (Ctrl-C again stops at once)")
        gate.gateway.drain(within_s, alone=alone)
        finish_requests([server], began_s + within_s - monotonic())
    finally:
        done.set()
