"""`headgate doctor` checks everything between a publisher and a page, and `headgate check` only Redis and the settings here.

The doctor prints the results of `headgate check` from Redis, then checks clocks, machine and public URL, and sends one event
through every hop. Imports only click.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING

import click

from .options import (
    SecondsRange,
    config_option,
    effective_settings,
    json_object_option,
    open_redis,
    read_gateway_url,
    read_origin,
    redis_option,
    with_options,
)
from .output import counted, echo, print_json, print_result, print_title, wants_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.runtime.check_result import CheckResult
    from headgate.settings.settings import Settings

_USER = "headgate-doctor"
_TOKEN_S = 300


@click.command()
@click.option(
    "--url",
    callback=read_gateway_url,
    help="Where pages connect, such as https://app.example.com. Default: the gateway's own address.",
)
@redis_option
@click.option("--namespace", metavar="NAME", help="Namespace to join and probe. Default: the gateway's first.")
@config_option
@click.option("--token", help="Token of a user. Default: one that is signed with the configured secret, if there is one.")
@click.option("--origin", callback=read_origin, help="Origin of your pages. Default: that of the URL.")
@click.option(
    "--idle", "idle_s", metavar="S", type=SecondsRange(0, 600), default=10.0, show_default=True,
    help="Seconds without traffic. More than 25, the interval of pings, tests all that a proxy will see.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", metavar="S", type=SecondsRange(0.1, 60), default=5.0, show_default=True,
    help="Seconds that each step may take.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 for a warning, too.")
@with_options(json_object_option)
def doctor(
    url: str | None,
    redis_url: str | None,
    namespace: str | None,
    config: str | None,
    token: str | None,
    origin: str | None,
    idle_s: float,
    timeout_s: float,
    strict: bool,
) -> None:
    """Check everything between a publisher and a page, report what to fix, and send one event through every hop.

    It publishes one event on the topic headgate-probe, or on a topic of the token's user. The event stays in the log like any
    other, and consumers skip it.
    """
    from dataclasses import asdict

    from headgate.diagnosis.doctor import Doctor
    from headgate.errors import HeadgateError
    from headgate.runtime.check_result import Verdict, count
    from headgate.services.publisher import find_redis_url

    settings = effective_settings(config, {"HEADGATE_REDIS_URL": redis_url})
    namespace = namespace or settings.namespaces[0]
    no_redis: HeadgateError | None = None
    try:
        redis_url = find_redis_url(settings)
    except HeadgateError as error:
        no_redis = error
    url, token = url or _own_url(settings), token or _own_token(settings, namespace)
    examination = Doctor(url, redis_url, namespace, token, origin, idle_s, timeout_s, no_redis)
    results, section = [], ""
    for name, result in examination.examine():
        results.append((name, result))
        if wants_json():
            continue
        if name != section:
            section = name
            print_title(name if name != "public URL" else f"{name} {url}")
        print_result(result)
    all_results: list[CheckResult] = [result for _, result in results]
    faults, warnings = count(all_results, Verdict.FAULT), count(all_results, Verdict.WARNING)
    is_good = not faults and not (strict and warnings)
    if wants_json():
        print_json(
            {
                "ok": is_good,
                "url": url,
                "namespace": namespace,
                "findings": [{"section": name, **asdict(result)} for name, result in results],
                "hops": [{"name": name, "ms": ms} for name, ms in examination.hops.items()],
            }
        )
    else:
        print_title(f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}")
    sys.exit(0 if is_good else 1)


def _own_url(settings: Settings) -> str:
    """Return the URL of a gateway with these settings, from this machine."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _own_token(settings: Settings, namespace: str) -> str | None:
    """Return a token for the doctor's own user, or None without a configured secret to sign it."""
    from headgate.auth.tokens import Tokens
    from headgate.errors import SettingsError

    try:
        tokens = Tokens.configured(settings)
        return None if tokens is None else tokens.mint(_USER, [], [], _TOKEN_S, namespaces=[namespace])
    except SettingsError:
        return None


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

    build = build_in_use()
    if not wants_json():
        echo(f"headgate: {__version__}, {build}")
    url = redis_url or find_redis_url()
    client = open_redis(url)
    results = []
    for result in chain(check_redis(client, url, load=load), _clients()):
        results.append(result)
        if not wants_json():
            echo(result.line)
    is_good = not count(results, Verdict.FAULT)
    if wants_json():
        print_json({"ok": is_good, "headgate": __version__, "build": build, "findings": [asdict(each) for each in results]})
    sys.exit(0 if is_good else 1)


def _clients() -> Iterator[CheckResult]:
    """Judge whether the settings of a gateway here let any client in. Its application is unknown."""
    from headgate.errors import SettingsError
    from headgate.runtime.check_result import unknown, warning
    from headgate.settings.settings import LET_IN

    try:
        if effective_settings(None, {}).lets_nobody_in:
            text = "with the settings here no client may connect, unless the application has an authenticator"
            yield warning("clients", text, LET_IN)
    except SettingsError as error:
        yield unknown("clients", f"the settings here are wrong: {'; '.join(error.faults)}")
