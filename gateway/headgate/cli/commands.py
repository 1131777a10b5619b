"""Groups of commands: help in sections with the whole first sentence of each command, and suggestions for an unknown name.

Imports click only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from .output import drop_rest, fail_for_full


class Commands(click.Group):
    """A group. `sections` are the titles of its help with their commands; without them there is one section."""

    def __init__(self, *arguments: Any, sections: Mapping[str, Sequence[str]] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sections = sections

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line. A standard output that takes nothing is one line on standard error, for help texts too.

        Wrong usage keeps its exit code if standard error takes nothing, for which click would exit with 1.
        """
        try:
            code = super().main(*arguments, **options | {"standalone_mode": False})
        except click.ClickException as error:
            code = error.exit_code
            try:
                error.show()
            except OSError:
                drop_rest(sys.stderr)
        except click.Abort:
            code = 130  # Ctrl-C before the command began
        except OSError as error:
            fail_for_full(error)
        sys.exit(code)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, and wrap long sentences."""
        for title, names in (self._sections or {"Commands": self.list_commands(ctx)}).items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                # Click cuts a text that does not fit in one line, unless a longer limit is given.
                formatter.write_dl([(name, command.get_short_help_str(1000)) for name, command in commands if command])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the first command in `args`, as click does."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            close = get_close_matches(name, self.list_commands(ctx), 3, 0.6)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {' or '.join(close)}?" if close else ""))
        return super().resolve_command(ctx, args)
