"""`dead-letters` without Redis: its arguments, and how a dead letter is printed."""

import json

import pytest
from click.testing import CliRunner

from headgate.cli.consumers import _print_letter
from headgate.cli.main import main
from headgate.consumers.work.dead_letters import DeadLetter
from headgate.consumers.work.task import Task
from tests.support.command_line import running

PIECE = Task("e" * 16, 7, "orders.7.paid", "id7", 1000, b'{"a": "\x1b"}', "ana@example.com")


@pytest.mark.parametrize("command", ["retry", "drop"])
@pytest.mark.parametrize("arguments", [(), ("1-0", "--all")])
def test_a_command_on_letters_takes_ids_or_all(command: str, arguments: tuple[str, ...]) -> None:
    """Neither and both are wrong usage, before anything is touched."""
    result = CliRunner().invoke(main, ["dead-letters", command, "mail", *arguments, "--redis", "redis://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "expected one or more IDs, or --all" in result.stderr


def test_a_letter_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """When, why, where in the log, and the reason, of which no control character gets through."""
    _print_letter(DeadLetter("5-0", 1_700_000_000_000, "rejected", "it is \x1b[2Jbad", PIECE))
    assert capsys.readouterr().out == (
        "5-0 2023-11-14T22:13:20+00:00 rejected 7 orders.7.paid (ana@example.com): it is \\u001b[2Jbad\n"
    )


@pytest.mark.parametrize(
    ("why", "kept", "data"),
    [("rejected", b'{"a": 1}', {"a": 1}), ("unreadable", b'{"a": 1}', '{"a": 1}'), ("unreadable", b"\xff{", "\ufffd{")],
)
def test_a_letter_as_json_has_its_data(capsys: pytest.CaptureFixture[str], why: str, kept: bytes, data: object) -> None:
    """As JSON; as text where it could not be read, as it may be no JSON then."""
    task = Task("e" * 16, 7, "orders.7.paid", "id7", 1000, kept, "")
    with running(as_json=True):
        _print_letter(DeadLetter("5-0", 1_700_000_000_000, why, "bad", task))
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "id": "5-0", "time": 1_700_000_000_000, "why": why, "reason": "bad", "epoch": "e" * 16, "offset": 7,
        "topic": "orders.7.paid", "event_id": "id7", "key": "", "data": data,
    }  # fmt: skip
