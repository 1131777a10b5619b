"""`headgate serve --workers N`: gunicorn's process manager around workers (workers/gunicorn_worker.py), with a given or private
Redis.

In: settings as a mapping (from the command line), the application, the number of workers. Out: an exit code, and the lines of
`headgate serve` with one process. This process forks the workers, so it never imports the application and patches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from tempfile import gettempdir
from typing import Any

from headgate.errors import HeadgateError
from headgate.runtime.importing import APPLICATION, check_string
from headgate.runtime.operator_lines import complain
from headgate.runtime.standard_streams import never_block
from headgate.settings.settings import PREFIX, Settings, environment, variables_set
from headgate.transport.http_limits import BACKLOG

from .keeper_process import Keeper, NotKept
from .starting import host_in_url, listen, passed_sockets, read_file, say_ready


def run(overrides: Mapping[str, str], target: str | None, config: str | None, *, with_consumers: bool, workers: int) -> int:
    """Serve until SIGINT or SIGTERM, with arguments and exit code as of serve.run. Does not return in a worker."""
    never_block()
    keeper: Keeper | None = None
    try:
        environ = environment()
        environ.pop("WEB_CONCURRENCY", None)  # gunicorn cannot be imported with a value that is no number
        from headgate.workers.gunicorn_worker import ArbiterState, graceful_timeout_s, run_arbiter

        environ.update(overrides)
        file = read_file(environ, config, is_needed=with_consumers)
        path = file.path
        settings, given = Settings.read(environ), variables_set(environ)
        if target is not None:
            check_string(target, APPLICATION, default="app")
        try:
            gettempdir()  # which the workers share
        except OSError:  # as with a read-only root file system
            complain("no folder for temporary files can be written: mount one at /tmp, or name one in TMPDIR")
            return 1
        bind = _bind(settings, environ)
        if bind is None:
            return 1
        keeper = Keeper([path] if with_consumers and path is not None else [], redis_is_private=settings.redis_url is None)
        if keeper.redis_url is not None:
            environ[PREFIX + "REDIS_URL"] = keeper.redis_url
            settings = Settings.read(environ)

        def load() -> Any:  # in a worker, with the current settings, because the file may have been read again
            from headgate.workers.application import load_application

            return load_application(target, Settings.read(environ), given)

        def ready(listener: Any) -> None:
            # Only the workers know whether an application has an authenticator.
            nobody = ArbiterState.here().has_reported("nobody")
            say_ready(settings, listener.getsockname(), f"{workers} workers", nobody=nobody)

        options = {
            "bind": [bind],
            "workers": workers,
            "backlog": BACKLOG,
            "graceful_timeout": graceful_timeout_s(settings.drain_s),
            "loglevel": "warning",
            "control_socket_disable": True,
            "proc_name": "headgate",
        }
        status, is_replaced = run_arbiter(options, load, ready, keeper.check, file)
        if is_replaced:
            keeper.leave()
        return 1 if status else 0
    except NotKept:
        return 1
    except HeadgateError as error:
        for line in error.lines():
            complain(line)
        return 1
    finally:
        if keeper is not None:
            keeper.close()


def _bind(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return the `bind` of gunicorn: our own socket, unless it inherits sockets from systemd or on SIGUSR2, which take
    precedence.
    """
    passed = [each.detach() for each in passed_sockets(environ)]
    if "GUNICORN_FD" in environ or passed:
        return f"{host_in_url(settings)}:{settings.port}"
    listener = listen(settings)
    return None if listener is None else f"fd://{listener.detach()}"
