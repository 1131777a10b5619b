"""`headgate check`: the Redis in use, and the settings of a gateway here. Imports click only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .options import effective_settings, json_object_option, open_redis, redis_option, with_options
from .output import echo, print_json, wants_json

if TYPE_CHECKING:
    from headgate.runtime.check_result import CheckResult


@click.command()
@redis_option
@click.option("--load", is_flag=True, help="Also load Headgate's function libraries, or replace older ones.")
@with_options(json_object_option)
def check(redis_url: str | None, load: bool) -> None:
    """Check this build and its Redis: versions, persistence, writability, functions and what is served.

    Publishes nothing; `headgate doctor` also checks everything else. Exit code 1 if something is wrong.
    """
    from dataclasses import asdict

    from headgate.diagnosis.redis_state import check_redis
    from headgate.installation import __version__, build_in_use
    from headgate.runtime.check_result import Verdict, count
    from headgate.services.publisher import find_redis_url

    build = build_in_use().value
    if not wants_json():
        echo(f"headgate: {__version__}, {build}")
    url = redis_url or find_redis_url()
    client = open_redis(url)
    results = []
    for result in check_redis(client, url, load=load):
        results.append(result)
        if not wants_json():
            echo(result.line)
    clients = _clients()
    if clients is not None:
        results.append(clients)
        if not wants_json():
            echo(clients.line)
    is_good = not count(results, Verdict.FAULT)
    if wants_json():
        print_json({"ok": is_good, "headgate": __version__, "build": build, "findings": [asdict(each) for each in results]})
    sys.exit(0 if is_good else 1)


def _clients() -> CheckResult | None:
    """Judge whether the settings of a gateway here let any client in. Its application is unknown."""
    from headgate.errors import SettingsError
    from headgate.runtime.check_result import unknown, warning
    from headgate.settings.settings import LET_IN

    try:
        nobody = effective_settings(None, {}).lets_nobody_in
    except SettingsError as error:
        return unknown("clients", f"the settings here are wrong: {'; '.join(error.faults)}")
    text = "with the settings here no client may connect, unless the application has an authenticator"
    return warning("clients", text, LET_IN) if nobody else None
