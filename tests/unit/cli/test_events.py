"""`publish` and `tail` without Redis: refusals before anything is sent, and how an event is printed."""

import json
import re
import shlex
from datetime import datetime

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.events import _as_json_text
from headgate.cli.log import _print_event
from headgate.cli.main import main
from headgate.events.event import Event
from tests.support.answering import answering_each
from tests.support.command_line import running


@given(st.text(max_size=40))
def test_words_that_are_no_json_are_shown_as_json_to_paste(text: str) -> None:
    """Through a shell they come out as the text that was typed; nothing is shown where the text is JSON already."""
    shown = _as_json_text(text)
    if shown is None:
        json.loads(text, parse_constant=float)
        return
    assert shown.isprintable()
    [pasted] = shlex.split(shown)
    assert json.loads(pasted) == text


def test_a_publish_of_unknown_outcome_says_how_to_repeat_it() -> None:
    """With the id of the event that may be there; a new one would add it once more."""
    with answering_each(b":99\r\n", lost=b"headgate_append", then=b"-OOM command not allowed\r\n") as url:
        shown = CliRunner().invoke(main, ["publish", "a", "1", "--redis", url, "--id", "x7"]).stderr
        assert re.search(r"^headgate: raise maxmemory.*; if it was published .* --id x7 adds nothing$", shown, re.MULTILINE)


@pytest.mark.parametrize("text", ["1", "[" * 20_000, "x" * 201, "\udcff"], ids=["JSON", "deep", "long", "not UTF-8"])
def test_nothing_is_shown_where_quotes_would_not_help(text: str) -> None:
    """The fault is another one, or there is nothing to paste."""
    assert _as_json_text(text) is None


@pytest.mark.parametrize(
    ("offset", "as_json", "line"),
    [
        (7, False, '7 a.b {"x":  1}\n'),
        (None, False, '- a.b {"x":  1}\n'),
        (7, True, '{"topic":"a.b","data":{"x":  1},"id":"i","time":5,"epoch":"e","offset":7}\n'),
        (None, True, '{"topic":"a.b","data":{"x":  1},"id":"i","time":5}\n'),
    ],
)
def test_an_event_is_one_line(capsys: pytest.CaptureFixture[str], offset: int | None, as_json: bool, line: str) -> None:
    """A plain PUBLISH has no position; data that was laid out over several lines is put on one."""
    with running(as_json=as_json):
        _print_event(Event("a.b", b'{"x":\n 1}', "i", 5, "e" if offset else None, offset))
    assert capsys.readouterr().out == line


def test_a_time_goes_before_an_event_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    """To the millisecond, by this machine's clock and zone."""
    _print_event(Event("a.b", b"1", "i", 1_700_000_000_123, "e", 7), True)
    line = capsys.readouterr().out
    assert line[:19] == datetime.fromtimestamp(1_700_000_000).strftime("%Y-%m-%d %H:%M:%S")
    assert line[19:] == ".123 7 a.b 1\n"


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colour_is_for_a_terminal_without_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_colour: str
) -> None:
    """See https://no-color.org; a payload cannot have any."""
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _print_event(Event("a.b", b'"\\u001b[31m"', "i", 5, "e", 7))
    assert capsys.readouterr().out.count("\x1b") == (0 if no_colour else 4)
