"""Output for a person at a terminal: one line for a fault, and no control character of a hostile payload."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.output import fail, for_terminal, one_line_errors
from headgate.errors import BusUnavailable


def command(error: BaseException) -> click.Command:
    @click.command("x")
    @one_line_errors
    def run() -> None:
        click.echo("begun")
        raise error

    return run


def advised() -> BusUnavailable:
    error = BusUnavailable("nobody there")
    error.add_note("start Redis")
    return error


@pytest.mark.parametrize(
    ("error", "stderr", "code"),
    [
        (BusUnavailable("nobody there"), "headgate: the bus is unavailable: nobody there\n", 1),
        (advised(), "headgate: the bus is unavailable: nobody there\nheadgate: start Redis\n", 1),
        (KeyboardInterrupt(), "", 130),
    ],
)
def test_an_error_raised_on_purpose_is_told_in_lines(error: BaseException, stderr: str, code: int) -> None:
    """The message, and the advice below it where there is one. Ctrl-C ends quietly."""
    result = CliRunner().invoke(command(error))
    assert (result.stdout, result.stderr, result.exit_code) == ("begun\n", stderr, code)


def test_a_bug_keeps_its_trace() -> None:
    """It is not dressed up as a fault of the user."""
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(command(ZeroDivisionError()), catch_exceptions=False)


def test_a_failure_ends_the_command_with_exit_code_1() -> None:
    """After all its lines."""
    with pytest.raises(SystemExit) as ended:
        fail("first", "second")
    assert ended.value.code == 1


@given(st.text().map(lambda text: text.encode(errors="replace")))
def test_no_control_character_reaches_the_terminal(line: bytes) -> None:
    """Neither C0 nor C1; what was laid out over several lines is one."""
    shown = for_terminal(line).decode()
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown)


def test_a_printable_line_stays_as_it_is() -> None:
    """A control character becomes the escape that JSON has for it."""
    assert for_terminal('{"é": "😀"}'.encode()) == '{"é": "😀"}'.encode()
    assert for_terminal(b'"\x1b[2J\n\x7f\xc2\x9b"') == b'"\\u001b[2J \\u007f\\u009b"'
