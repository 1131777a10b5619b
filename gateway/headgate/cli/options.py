"""Options of several commands, and their types of values. Imports only click, which keeps `--help` fast."""

from __future__ import annotations

import functools
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from .output import one_line_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.redis.client import Client
    from headgate.settings.settings import Settings

Command: TypeAlias = "Callable[..., None]"

WORKERS = "HEADGATE_WORKERS"
# The longest time that has a text.
MAX_SECONDS = 999_999_999 * 86400

namespace_option = click.option(
    "--namespace", default="notifications", show_default=True, help="Namespace: one log, one set of limits."
)
redis_option = click.option(
    "--redis", "redis_url", metavar="URL", help="Redis to use, such as redis://host:6379/0. Default: HEADGATE_REDIS_URL."
)
config_option = click.option(
    "--config", metavar="FILE", help="Configuration file. Default: HEADGATE_CONFIG, else headgate.toml if it is here."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print each as one JSON object.")
json_object_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def namespaces_option(help: str) -> Callable[[Command], Command]:
    """Return the option for several namespaces."""
    return click.option("--namespace", "namespaces", multiple=True, metavar="NAME", help=help)


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Give a command options, shown in this order, the settings of the configuration file, and one line for each fault."""

    def give(command: Command) -> Command:
        given = one_line_errors(_with_file(command))
        for option in reversed(options):
            given = option(given)
        return given

    return give


def _with_file(command: Command) -> Command:
    """Let a command without `--config` find Redis and secrets in the `[settings]` of the configuration file, too.

    A namespace is checked.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        if arguments.get("namespace") is not None:
            from headgate.events.topic import check_namespace

            arguments["namespace"] = check_namespace(arguments["namespace"])
        if "config" not in arguments and arguments.get("redis_url") is None:
            from headgate.settings.file import find_file, read_settings
            from headgate.settings.settings import environment

            if (path := find_file(None)) is not None:
                environment().update(read_settings(path, environment()))
        command(**arguments)

    return run


def effective_settings(
    config: str | None, options: Mapping[str, str | None], application: Mapping[str, object] | None = None
) -> Settings:
    """Return the settings of a gateway started here, as `headgate serve` reads them.

    Later ones win: the defaults, an application's configuration (`app.config`), the configuration file, the environment, the
    options of the command line. Raises SettingsError with every fault.
    """
    from headgate.settings.file import find_file, read_settings
    from headgate.settings.settings import Settings, environment

    given = {**environment(), **{name: value for name, value in options.items() if value is not None}}
    path = find_file(config)
    return Settings.read(application or {}, given if path is None else read_settings(path, given))


def open_redis(redis_url: str | None, settings: Settings | None = None) -> Client:
    """Return a client of a Redis, as given, else as configured. It is closed at the end of the command."""
    from contextlib import closing

    from headgate.redis.client import open_client
    from headgate.services.publisher import find_redis_url

    return click.get_current_context().with_resource(closing(open_client(redis_url or find_redis_url(settings))))


def need_namespace(redis_url: str | None, namespace: str) -> Client:
    """Return a client as `open_redis`. Raises if a command would otherwise report an unknown namespace as empty.

    Raises:
        NamespaceNotServed: it is not known there.
        BusUnavailable, BusRefused: Redis did not answer.
    """
    from headgate.redis.registry import need_known

    client = open_redis(redis_url)
    need_known(client, namespace)
    return client


def operator_name() -> str:
    """Return the user of this command, for the audit log."""
    return f"uid {os.getuid()} on the command line"


def read_address(_context: click.Context, _option: click.Parameter, given: str | None) -> tuple[str, int] | None:
    """Read HOST:PORT, such as 127.0.0.1:9100 or [::1]:9100."""
    if given is None:
        return None
    from headgate.settings.addresses.origins import parse_authority

    expected = "expected HOST:PORT, such as 127.0.0.1:9100; port 0 picks a free one"
    try:
        host, port = parse_authority(given)
    except ValueError as error:
        raise click.BadParameter(f"{error}; {expected}") from error
    if port is None:
        raise click.BadParameter(expected)
    return host, port


def read_origin(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    if given is not None:
        from headgate.settings.addresses.origins import parse_origin

        _check(parse_origin, given, given)
    return given


def read_gateway_url(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """Check the URL of a gateway. `ws` and `wss` stand for `http` and `https`."""
    if given is None:
        return None
    from headgate.settings.addresses.http_target import read_target

    url = re.sub(r"\Aws(s?)://", r"http\1://", given, flags=re.IGNORECASE)
    _check(read_target, url, given)
    return url


def _check(parse: Callable[[str], object], text: str, given: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{given[:80]!r}: {error}") from error


def worker_count(given: str | None) -> int:
    """Return the number of workers, as given or else from HEADGATE_WORKERS. Raises SettingsError for an invalid value."""
    from headgate.settings.settings import Settings, environment

    wanted = Settings.read({WORKERS: given} if given is not None else {WORKERS: environment().get(WORKERS, "1")}).workers
    return wanted or processors()


def processors(root: Path = Path("/")) -> int:
    """Return the number of processors available to this process, rounded up, within the CPU limit of its container, if any.

    Linux has such limits in control groups (cgroup v2 or v1), below `root`. Those of the groups around it apply, too.
    """
    available: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            mount = root / ("sys/fs/cgroup/cpu" if controllers else "sys/fs/cgroup")
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
            group = mount / path.lstrip("/")
            # A container may see the path that its group has outside; its own group is the mount then.
            for folder in (group, *group.parents):
                with suppress(OSError, ValueError):  # it is no group, or has no limit: "max 100000"
                    quota, period = map(int, " ".join((folder / name).read_text() for name in files).split())
                    available = min(available, quota / period) if quota > 0 else available
    return max(1, math.ceil(available))


class SecondsRange(click.FloatRange):
    """Seconds in a range, without NaN, which no comparison excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds_ = float(super().convert(value, param, ctx))
        return self.fail("nan is no number of seconds", param, ctx) if math.isnan(seconds_) else seconds_


def seconds(text: str, option: str | None = None, least_s: int = 0, most_s: int = MAX_SECONDS) -> int:
    """Return the seconds of a time such as 90, 90s, 15m, 1h or 7d.

    Raises click.BadParameter if it is invalid, or outside the range of this option.
    """
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a time such as 90, 90s, 15m, 1h or 7d", param_hint=option)
    time_s = int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
    if not least_s <= time_s <= most_s:
        raise click.BadParameter(f"{text}: expected {least_s} s to {most_s // 86400}d", param_hint=option)
    return time_s
