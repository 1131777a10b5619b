"""The command line: `headgate` and its commands, which _COMMANDS lists.

In: arguments, and for what is not given the environment (HEADGATE_…). Out: results on standard output, one clear line on
standard error for every fault. Exit codes: 0, 1 for a fault, 2 for wrong usage, 130 after Ctrl-C.

It imports click only. A command's module is imported when the command is asked for, and imports what it needs when it runs:
`serve` patches the standard library before anything else of ours is loaded, and that would be too late once this file had
imported it.
"""

from __future__ import annotations

from importlib import import_module

import click

from headgate import __version__

# Command → module of this package, attribute.
_COMMANDS = {
    "publish": ("events", "publish"),
    "tail": ("events", "tail"),
    "replay": ("replay", "replay"),
    "trace": ("trace", "trace"),
    "serve": ("gateway", "serve"),
    "consume": ("consumers", "consume"),
    "consumers": ("consumers", "consumers"),
    "dead-letters": ("dead_letters", "dead_letters"),
    "token": ("access", "token"),
    "revoke": ("access", "revoke"),
    "keys": ("keys", "keys"),
    "regrant": ("access", "regrant"),
    "clients": ("people", "clients"),
    "disconnect": ("people", "disconnect"),
    "who-can": ("who_can", "who_can"),
    "presence": ("presence", "presence"),
    "pause": ("pauses", "pause"),
    "resume": ("pauses", "resume"),
    "rebalance": ("rebalance", "rebalance"),
    "check": ("check", "check"),
    "doctor": ("doctor", "doctor"),
    "status": ("status", "status"),
    "settings": ("check", "settings"),
    "config": ("config", "config"),
    "schemas": ("schemas", "schemas"),
    "types": ("types", "types"),
    "asyncapi": ("types", "asyncapi"),
    "bench": ("bench", "bench"),
    "completion": ("completion", "completion"),
}


class _LazyCommands(click.Group):
    """The commands of _COMMANDS, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"headgate.cli.{module}"), attribute)
        return command


@click.group(cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Headgate: real-time notifications from Python services to browsers, without silent loss."""


if __name__ == "__main__":
    main()
