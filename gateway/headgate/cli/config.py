"""`headgate config show` prints every setting of a gateway started here, and its origin. Imports only click."""

from __future__ import annotations

import click

from .options import config_option, effective_settings, json_object_option, redis_option, with_options
from .output import Commands, echo, paint, print_json, wants_json


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
@with_options(json_object_option)
def show(
    target: str | None,
    config: str | None,
    host: str | None,
    port: int | None,
    workers: str | None,
    redis_url: str | None,
    changed: bool,
) -> None:
    """Print every setting with its value and origin.

    Later origins win: default, Flask, file, environment, option. With MODULE:APP the application is imported for its app.config.
    Secrets are not shown.
    """
    from dataclasses import fields

    from headgate.redis.connections import redacted_address
    from headgate.settings.file import find_file, read_settings
    from headgate.settings.options import plain
    from headgate.settings.settings import PREFIX, Settings, environment, variables_set

    given = {"HOST": host, "PORT": None if port is None else str(port), "WORKERS": workers, "REDIS_URL": redis_url}
    options = {PREFIX + name: value for name, value in given.items() if value is not None}
    application = {} if target is None else _configuration_of(target)
    settings, path = effective_settings(config, options, application), find_file(config)
    sources = {
        "option": options,
        "environment": variables_set(environment()),
        "file": {} if path is None else read_settings(path, {}),
        "Flask": application,
    }
    if target is not None:
        from headgate.runtime.operator_lines import complain
        from headgate.workers.application import settings_too_late

        for line in settings_too_late(application, options.keys() | sources["environment"].keys() | sources["file"].keys()):
            complain(line)
    rows = []
    for each in fields(Settings):
        name, value = PREFIX + each.name.upper(), getattr(settings, each.name)
        origin = next((origin for origin, names in sources.items() if names.get(name, "") not in ("", None)), "default")
        if each.metadata["secret"] and value is not None:
            value = redacted_address(value) if each.name == "redis_url" else "(hidden)"
        if not changed or origin != "default":
            rows.append((name, value, origin))
    if wants_json():
        print_json({"file": path, "settings": {name: {"value": value, "origin": origin} for name, value, origin in rows}})
        return
    echo(f"file: {path or 'none'}")
    width = max((len(name) for name, *_ in rows), default=0)
    for name, value, origin in rows:
        painted = paint(f"{origin:11}", "bright_black" if origin == "default" else "cyan")
        echo(f"{name:{width}}  ", painted, f"  {plain(value) or 'not set'}")


def _configuration_of(target: str) -> dict[str, object]:
    from headgate.workers.application import import_application

    app = import_application(target)
    if "headgate" in app.extensions:
        app.extensions["headgate"].check_config()
    return {name: value for name, value in app.config.items() if name.startswith("HEADGATE_")}
