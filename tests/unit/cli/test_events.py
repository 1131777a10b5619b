"""`publish` and `tail` without Redis: what is refused before anything is sent, and how an event is printed."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.events import _as_json_text, _print_event
from headgate.cli.main import main
from headgate.event import Event

NOWHERE = ("--redis", "redis://127.0.0.1:1")


@pytest.mark.parametrize("arguments", [(), ("a",), ("a", "1", "--no-such-option"), ("a", "1", "2")])
def test_wrong_usage_of_publish_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    """As every command line does."""
    assert CliRunner().invoke(main, ["publish", *arguments]).exit_code == 2


def test_tail_refuses_a_word_that_is_no_pattern() -> None:
    """Before connecting anywhere."""
    result = CliRunner().invoke(main, ["tail", "orders.a*", *NOWHERE])
    assert result.exit_code == 1
    assert "invalid pattern 'orders.a*'" in result.stderr


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
    _print_event(Event("a.b", b'{"x":\n 1}', "i", 5, "e" if offset else None, offset), as_json)
    assert capsys.readouterr().out == line
