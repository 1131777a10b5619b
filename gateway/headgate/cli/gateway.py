"""`headgate serve` and `headgate demo`. Imports only click, because gevent must patch before serve.py is loaded."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from headgate.runtime.patching import plugins_loaded_once

from .options import config_option, redis_option, worker_count
from .output import one_line_errors

# During a start nearly all new objects stay, some 100,000. Python's own collections took an eighth of the processor time of a
# start. An application that leaves more garbage while it loads has at most some 50 MB of it.
STARTING_THRESHOLDS = (500_000, 10, 1_000_000)


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one.")
@redis_option
@click.option("--dev", is_flag=True, help="Development: anonymous clients may subscribe to everything and publish.")
@click.option("--demo", is_flag=True, help="Serve the demo at /.")
@config_option
@click.option(
    "--workers", metavar="N|auto", help="Processes on this port; auto: one for each processor. Default: HEADGATE_WORKERS, else 1."
)
@click.option("--with-consumers", is_flag=True, help="Also run the consumers of the configuration file, in a separate process.")
@one_line_errors
def serve(
    target: str | None,
    host: str | None,
    port: int | None,
    redis_url: str | None,
    dev: bool,
    demo: bool,
    config: str | None,
    workers: str | None,
    with_consumers: bool,
) -> None:
    """Run a Flask application with the gateway inside, or the built-in server without MODULE:APP."""
    number = worker_count(workers)
    given = {
        "HEADGATE_HOST": host,
        "HEADGATE_PORT": None if port is None else str(port),
        "HEADGATE_REDIS_URL": redis_url,
        "HEADGATE_DEV": "1" if dev else None,
        "HEADGATE_DEMO": "1" if demo else None,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    if number > 1:
        from .workers import run as run_workers

        sys.exit(run_workers(overrides, target, config, with_consumers=with_consumers, workers=number))
    gc.set_threshold(*STARTING_THRESHOLDS)  # until the gateway is ready and runtime/heap.py takes over
    from gevent import monkey

    with plugins_loaded_once():
        monkey.patch_all()
    from .serve import run

    sys.exit(run(overrides | {"HEADGATE_WORKERS": "1"}, target, config, with_consumers=with_consumers))


@click.command()
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one.")
@redis_option
@one_line_errors
def demo(host: str | None, port: int | None, redis_url: str | None) -> None:
    """Start the demo and print its address: two people at one board, and faults to cause. Without --redis, it starts a Redis."""
    from headgate.settings.settings import environment

    spec = find_spec("headgate_server.demo")
    assert spec is not None
    assert spec.origin is not None
    config = environment().get("HEADGATE_CONFIG") or str(Path(spec.origin).with_name("demo.toml"))
    # Not context.invoke, which would name this command "demo serve" in errors.
    assert serve.callback is not None
    serve.callback(None, host, port, redis_url, dev=False, demo=True, config=config, workers=None, with_consumers=True)
