"""The command `headgate consume`: run the consumers of a file, check them, or preview their work.

In: the command line. Out: an exit code, lines on standard output, and on standard error one for each fault. Raises (all):
SettingsError with every fault of the file and the environment; BusUnavailable, BusRefused: Redis.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headgate.errors import HeadgateError, SettingsError
from headgate.redis.client import describe_server
from headgate.runtime import logging as logs
from headgate.runtime import spans
from headgate.runtime.operator_lines import complain, say
from headgate.runtime.standard_streams import never_block
from headgate.services.publisher import find_redis_url
from headgate.settings.settings import PREFIX, Settings, environment, service_links_ignored

from .config import Configuration, need_file, read_consumers, read_settings
from .dry_run import DryRun
from .supervisor import Supervisor, describe

# Next to a gateway, consumers get the processor time that it and Redis leave (man 2 nice), since live delivery goes first.
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """The selected consumers: configuration file (None: searched), names in it (none: all), Redis URL (None: configured)."""

    config: str | None
    only: Sequence[str] = ()
    redis_url: str | None = None

    @property
    def path(self) -> str:
        """The configuration file."""
        return need_file(self.config)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment, overridden by the command line."""
        return {**environment(), **({PREFIX + "REDIS_URL": self.redis_url} if self.redis_url else {})}

    def read(self) -> Configuration:
        """Return the configuration."""
        return read_consumers(self.path, self.environment, self.only)


def consume(asked: Asked, listen: tuple[str, int] | None, parent: int | None) -> int:
    """Run the consumers until a signal, as Supervisor.run does. With a gateway as `parent`, they yield to it."""
    never_block()
    if parent is not None:
        os.nice(NICENESS)
    configuration = asked.read()
    logs.configure(configuration.settings.log_level, form=configuration.settings.log_format)
    if configuration.settings.otel:
        spans.start()
    if (line := service_links_ignored(asked.environment)) is not None:
        say(line)
    say(f"consumers from {asked.path}")
    supervisor = Supervisor(configuration, find_redis_url(configuration.settings), say, complain)
    return supervisor.run(listen, parent)


def check(asked: Asked, *, file_only: bool = False) -> int:
    """Check file and Redis, and print a line for each consumer; return 1 on any fault."""
    faults: list[str] = []
    try:
        for spec in asked.read().consumers:
            say(describe(spec))
    except SettingsError as error:
        faults += error.faults
    try:
        settings = Settings.read(read_settings(asked.path, asked.environment))
        if not file_only:
            say(f"using {describe_server(find_redis_url(settings))}")
    except SettingsError:
        pass  # the faults are in the list already
    except HeadgateError as error:
        faults += error.lines()
    for fault in faults:
        complain(fault)
    return 1 if faults else 0


def dry_run(asked: Asked, since: int | None) -> None:
    """Print what the consumers would do, until interrupted, as DryRun.run does."""
    configuration = asked.read()
    run = DryRun(configuration.consumers, find_redis_url(configuration.settings), partial(print, flush=True))
    for spec in configuration.consumers:
        say(f"dry run: {describe(spec)}")
    try:
        run.run(since)
    finally:
        run.close()
