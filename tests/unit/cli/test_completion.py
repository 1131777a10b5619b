"""`headgate completion`: scripts for shells, and the answers that they get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from headgate.cli.completion import PROGRAM, VARIABLE
from headgate.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_asks_the_command_itself(shell: str) -> None:
    """It is what click would print, and the shell understands it where it is installed."""
    script = CliRunner().invoke(main, ["completion", shell]).stdout
    assert f"{VARIABLE}={shell}_complete" in script
    assert PROGRAM in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_another_shell_is_wrong_usage() -> None:
    """As every command line says."""
    assert CliRunner().invoke(main, ["completion", "tcsh"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [([], "doc", "doctor"), (["consumers"], "re", "remove"), (["doctor"], "--str", "--strict"), (["completion"], "f", "fish")],
)
def test_commands_and_options_are_completed(words: list[str], incomplete: str, expected: str) -> None:
    """Groups and choices, too."""
    kind = get_completion_class("bash")
    assert kind is not None
    found = kind(main, {}, PROGRAM, VARIABLE).get_completions(words, incomplete)
    assert [each.value for each in found] == [expected]


def test_the_installed_command_answers() -> None:
    """With the variable that the scripts set."""
    command = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    asked = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": "headgate stat", "COMP_CWORD": "1"}
    assert subprocess.run([command], env=asked, capture_output=True, text=True, check=True).stdout == "plain,status\n"
