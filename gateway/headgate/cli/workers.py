"""`headgate serve --workers N`: gunicorn's process manager around workers of headgate/gunicorn.py, with a Redis found or brought.

In: settings as a mapping (what the command line said), which application, how many workers. Out: an exit code, and the lines of
`headgate serve` with one process. This process forks the workers: it imports the application nowhere and patches nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from headgate import __version__
from headgate.consumers.process.config import find_file, need_file, read_settings
from headgate.errors import HeadgateError
from headgate.extras import MissingExtra
from headgate.runtime.operator_lines import complain, say
from headgate.settings import PREFIX, Settings, environment

from .keeper_process import Keeper, NotKept

# Beside the drain: gunicorn kills a worker that has not ended by then.
END_S = 15.0
BACKLOG = 2048


def run(overrides: Mapping[str, str], target: str | None, config: str | None, *, with_consumers: bool, workers: int) -> int:
    """Serve until SIGINT or SIGTERM; arguments and exit code as of serve.run. Does not return in a worker."""
    keeper: Keeper | None = None
    try:
        from headgate.gunicorn import run_arbiter

        environ = environment()
        environ.update(overrides)
        path = need_file(config) if with_consumers else find_file(config)
        if path is not None:
            environ.update(read_settings(path, environ))
            say(f"settings from {path}")
        settings = Settings.read(environ)
        keeper = Keeper([path] if with_consumers and path is not None else [], redis_is_private=settings.redis_url is None)
        if keeper.redis_url is not None:
            environ[PREFIX + "REDIS_URL"] = keeper.redis_url
            settings = Settings.read(environ)
        if settings.dev:
            say("development mode: anyone on this machine may subscribe to everything and publish. Never use it in public.")
        bind = _bind(settings, environ)
        if bind is None:
            return 1

        def ready(listener: Any) -> None:
            port = listener.getsockname()[1]
            shown = f"[{settings.host}]" if ":" in settings.host else settings.host
            say(f"ready at http://{shown}:{port}/ (headgate {__version__}, {workers} workers, Ctrl-C stops it)")

        options = {
            "bind": [bind],
            "workers": workers,
            "backlog": BACKLOG,
            "graceful_timeout": int(settings.drain_s + END_S),
            "loglevel": "warning",
            "control_socket_disable": True,
            "proc_name": "headgate",
        }
        return 1 if run_arbiter(options, lambda: _load(target, settings), ready, keeper.look) else 0
    except NotKept:
        return 1
    except MissingExtra as error:
        complain(str(error))
        return 1
    except HeadgateError as error:
        for line in error.lines():
            complain(line)
        return 1
    finally:
        if keeper is not None:
            keeper.close()


def _load(target: str | None, settings: Settings) -> Any:
    from headgate.workers.application import load_application

    return load_application(target, settings)


def _bind(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return what gunicorn is to listen on: a socket of ours; one that it inherits, from systemd or on SIGUSR2, goes before
    it."""
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    if "GUNICORN_FD" in environ or environ.get("LISTEN_PID") == str(os.getpid()):
        return f"{shown}:{settings.port}"
    try:
        listener = socket.create_server(
            (settings.host, settings.port), family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET, backlog=BACKLOG
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)  # the text of create_server has the address twice
        complain(f"cannot listen on {settings.host}:{settings.port}: {reason}; choose another with --host or --port")
        return None
    return f"fd://{listener.detach()}"
