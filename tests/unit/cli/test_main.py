"""The command line itself: which commands there are, and that it loads nothing of them before they are asked for."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from headgate.cli.main import _COMMANDS, main


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_every_command_of_the_table_is_there_and_has_help(name: str) -> None:
    """A name that leads to no module, or to another command, would only be noticed by the user."""
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    assert command.name == name
    assert CliRunner().invoke(main, [name, "--help"]).stdout.startswith(f"Usage: main {name} ")


def test_help_lists_the_commands_and_an_unknown_one_is_wrong_usage() -> None:
    """Exit code 2, as every command line does."""
    listed = CliRunner().invoke(main, ["--help"]).stdout
    assert all(f"  {name} " in listed for name in _COMMANDS)
    assert CliRunner().invoke(main, ["no-such-command"]).exit_code == 2


def test_the_command_line_loads_nothing_that_a_command_needs() -> None:
    """`serve` must be able to patch the standard library before anything of ours is loaded."""
    code = (
        "import sys, headgate.cli.main as m, click; [m.main.get_command(click.Context(m.main), name) for name in m._COMMANDS]; "
        "print([name for name in ('redis', 'msgspec', 'gevent', 'flask', 'headgate.redis.client', 'headgate.event') "
        "if name in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_command_loads_its_own_module_only() -> None:
    """Start-up time is that of the command that was asked for."""
    code = (
        "import sys, headgate.cli.main as m, click; m.main.get_command(click.Context(m.main), 'publish'); "
        "print(sorted(name for name in sys.modules if name.startswith('headgate.cli.')))"
    )

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == str([f"headgate.cli.{name}" for name in ("events", "main", "options", "output")])
