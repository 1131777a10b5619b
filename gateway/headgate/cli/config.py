"""`headgate config show`: every setting of a gateway started here, and its origin. Imports click only."""

from __future__ import annotations

import click

from .commands import Commands
from .options import config_option, redis_option
from .output import echo, one_line_errors, paint, print_json


@click.group(cls=Commands)
def config() -> None:
    """Show the configuration and where each value comes from."""


@config.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@config_option
@click.option("--host", help="As of `headgate serve`.")
@click.option("--port", type=click.IntRange(0, 65535), help="As of `headgate serve`.")
@click.option("--workers", metavar="N|auto", help="As of `headgate serve`.")
@redis_option
@click.option("--changed", is_flag=True, help="Only those that are not the default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@one_line_errors
def show(
    target: str | None,
    config: str | None,
    host: str | None,
    port: int | None,
    workers: str | None,
    redis_url: str | None,
    changed: bool,
    as_json: bool,
) -> None:
    """Print every setting with its value and origin.

    Later origins win: default, Flask, file, environment, option. With MODULE:APP the application is imported for its app.config.
    Secrets are not shown.
    """
    from .effective import Origin, effective_rows

    given = {"HOST": host, "PORT": None if port is None else str(port), "WORKERS": workers, "REDIS_URL": redis_url}
    options = {f"HEADGATE_{name}": value for name, value in given.items()}
    path, rows = effective_rows(config, options, None if target is None else _configuration_of(target))
    rows = [row for row in rows if not changed or row.origin is not Origin.DEFAULT]
    if as_json:
        settings = {row.name: {"value": row.value, "origin": row.origin} for row in rows}
        print_json({"file": path, "settings": settings})
        return
    echo(f"file: {path or 'none'}")
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        colour = "bright_black" if row.origin is Origin.DEFAULT else "cyan"
        origin = paint(f"{row.origin:11}", colour)
        echo(f"{row.name:{width}}  ", origin, f"  {row.text}")


def _configuration_of(target: str) -> dict[str, object]:
    from flask import Flask

    from headgate.errors import InvalidRequest
    from headgate.runtime.importing import import_string

    found = import_string(target, "MODULE:APPLICATION or MODULE:FACTORY", default="app")
    app = found if isinstance(found, Flask) or not callable(found) else found()
    if not isinstance(app, Flask):
        raise InvalidRequest(f"{target!r} is a {type(app).__name__}; expected a Flask application or a function that returns one")
    return {name: value for name, value in app.config.items() if name.startswith("HEADGATE_")}
