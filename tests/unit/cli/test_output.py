"""Output for a person at a terminal: one line for a fault, and no control character of a hostile payload."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate
from headgate.cli.main import main
from headgate.cli.output import (
    echo,
    fail,
    local_time,
    one_line_errors,
    paint,
    print_done,
    print_json,
    print_result,
    print_title,
    utc_time,
)
from headgate.errors import BusUnavailable
from headgate.runtime.check_result import fault
from headgate.runtime.operator_lines import for_terminal, say
from tests.support.command_line import running


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


@pytest.mark.parametrize("arguments", [["demo", "--port", "0"], ["serve", "--workers", "2", "--port", "0"]])
def test_a_command_in_a_deleted_folder_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    """gunicorn, the imports of an application and a private Redis need the folder."""
    (gone := tmp_path / "gone").mkdir()
    line = f'rmdir {gone} && exec {sys.executable} -m headgate "$@"'
    ended = subprocess.run(["sh", "-c", line, "sh", *arguments], cwd=gone, capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert (last, ended.returncode) == ("headgate: the current folder was deleted; run the command in another one", 1)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "command", ["--help", "--version", "keys list --help", "config show", "consume --check --file-only --config x.toml"]
)
def test_what_cannot_be_printed_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written by click, by `echo` or by `say`."""
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text('[consumers.chat]\ntype = "apprise"\npatterns = "#"\nurls = ["json://localhost"]\n')
    with open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main.main(command.split())
    assert ended.value.code == 1
    assert capsys.readouterr().err == "headgate: standard output does not take what is written: no space left on device\n"


@pytest.mark.parametrize("closed", [False, True], ids=["full", "closed pipe"])
@pytest.mark.parametrize("words", [["publish"], ["nosuch"], ["keys"], ["--nosuch"]])
def test_wrong_usage_has_its_exit_code_wherever_standard_error_leads(
    words: list[str], closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is all that the caller gets then."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe, open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", pipe if closed else full)
        with pytest.raises(SystemExit) as ended:
            main.main(words, prog_name="headgate")
    assert ended.value.code == 2


def test_a_reader_that_has_enough_ends_it_quietly(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `headgate replay '#' | head -1`; but a finished change is reported, as ever."""
    for told, code in ((False, 1), (True, 3)):
        reading, writing = os.pipe()
        os.close(reading)

        @click.command("x")
        @one_line_errors
        def run(told: bool = told) -> None:
            print_done("done", None) if told else echo("read")

        with os.fdopen(writing, "w") as output:
            monkeypatch.setattr(sys, "stdout", output)
            with pytest.raises(SystemExit) as ended:
                run.main([])
            monkeypatch.undo()
        assert ended.value.code == code
        assert capsys.readouterr().err.endswith("(broken pipe): done\n") is told


def test_all_that_commands_print_goes_through_here() -> None:
    """So that nothing that others wrote reaches a terminal as it is, and a full disk is reported everywhere."""
    for file in (Path(headgate.__file__).parent / "cli").glob("*.py"):
        if file.name != "output.py":
            assert not re.search(r"click\.s?echo|\bprint\(|click\.style", file.read_text()), file


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
SEPARATORS = "\u2028\u2029\x85"


def is_control(character: str) -> bool:
    return ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 or character in BIDI + SEPARATORS


@given(st.text(st.one_of(st.characters(), st.sampled_from(BIDI + SEPARATORS))))
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    """Neither C0 nor C1, nor one that turns the order of the text; several lines become one."""
    for line in (text, text.encode(errors="replace")):
        shown = for_terminal(line).decode()
        assert not any(map(is_control, shown))
    kept = [character for character in text if not is_control(character) and not character.isspace()]
    if not any(map(is_control, text)) and not any(0xD800 <= ord(each) < 0xE000 for each in text):
        assert [character for character in for_terminal(text).decode() if not character.isspace()] == kept


@settings(max_examples=30)
@given(st.dictionaries(st.text(), st.text()))
def test_json_keeps_its_value(value: dict[str, str]) -> None:
    """An escape in a string of JSON is the character."""
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    assert json.loads(for_terminal(text)) == json.loads(text)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_hostile_text_is_safe_in_every_form_of_output(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Pieces of a line, colours, titles, findings, faults, results, JSON."""
    hostile = f"a\x1b[2J\x9b{BIDI}{SEPARATORS}\r\nb"
    echo(hostile, " ", paint(hostile, "red"))
    print_title(hostile)
    print_result(fault(hostile, hostile, hostile))
    print_json({hostile: hostile})
    with running(as_json=as_json):
        print_done("done", {"name": hostile})
    with pytest.raises(SystemExit):
        fail(hostile)
    say(hostile)
    out, err = capsys.readouterr()
    assert not any(map(is_control, (out + err).replace("\n", "")))


def test_a_printable_line_stays_as_it_is() -> None:
    """A control character becomes the escape that JSON has for it."""
    assert for_terminal('{"é": "😀"}'.encode()) == '{"é": "😀"}'.encode()
    assert for_terminal(b'"\x1b[2J\n\x7f\xc2\x9b"') == b'"\\u001b[2J \\u007f\\u009b"'


@pytest.mark.parametrize("shown", [local_time, utc_time])
def test_a_time_after_the_last_year_is_the_end_of_that_year(shown: Callable[[float], str]) -> None:
    """An entry of a stream may have any number of milliseconds in its id."""
    assert shown(2.0**64 / 1000).startswith("9999-12-3")
