"""The command line: `headgate publish`, `tail`, `serve`, `consume`, `consumers`, `dead-letters`, `token`, `revoke`,
`pause`, `resume`, `check`, `settings`, `schemas`, `types`, `asyncapi` and `bench`.

In: arguments, and for what is not given the environment (HEADGATE_…). Out: results on standard output, one clear line on
standard error for every fault. Exit codes: 0, 1 for a fault, 2 for wrong usage, 130 after Ctrl-C.

It imports click only. A command's module is imported when the command is asked for, and imports what it needs when it runs:
`serve` patches the standard library before anything else of ours is loaded, and that would be too late once this file had
imported it.
"""

from __future__ import annotations

from importlib import import_module

import click

# Command → module of this package, attribute.
_COMMANDS = {
    "publish": ("events", "publish"),
    "tail": ("events", "tail"),
    "serve": ("gateway", "serve"),
    "consume": ("consumers", "consume"),
    "consumers": ("consumers", "consumers"),
    "dead-letters": ("dead_letters", "dead_letters"),
    "token": ("access", "token"),
    "revoke": ("access", "revoke"),
    "pause": ("pauses", "pause"),
    "resume": ("pauses", "resume"),
    "check": ("check", "check"),
    "settings": ("check", "settings"),
    "schemas": ("schemas", "schemas"),
    "types": ("types", "types"),
    "asyncapi": ("types", "asyncapi"),
    "bench": ("bench", "bench"),
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
@click.version_option(package_name="headgate", message="%(prog)s %(version)s")
def main() -> None:
    """Headgate: real-time notifications from Python services to browsers, without silent loss."""


if __name__ == "__main__":
    main()
