"""`consumers`, `consume` and `dead-letters` without Redis: their refusals, and how a consumer or a letter is printed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.consumers import _print_letter, _status_line
from headgate.cli.main import main
from headgate.consumers.work.dead_letters import DeadLetter
from headgate.consumers.work.groups import GroupStatus, check_consumer
from headgate.consumers.work.task import Task
from headgate.errors import InvalidRequest
from tests.support.command_line import running


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 65, "a/b", "a\n"])
def test_a_name_that_no_consumer_can_have_is_refused(name: str) -> None:
    """It would be a key of Redis without an owner."""
    assert check_consumer("on-call_2") == "on-call_2"
    with pytest.raises(InvalidRequest, match="expected a name of 1 to 64 characters"):
        check_consumer(name)


@pytest.mark.parametrize(
    ("idle_s", "configured", "end"),
    [
        (None, None, "never at work"),
        (3.4, True, "at work 3 s ago, configured"),
        (3.4, False, "at work 3 s ago, not configured"),
    ],
)
def test_a_consumer_is_one_line(idle_s: float | None, configured: bool | None, end: str) -> None:
    """Its counts, when it was at work, and whether the file has it, where there is a file."""
    status = GroupStatus("mail", "n", lag=1, leased=2, waiting=3, dead=4, missed=5, idle_s=idle_s)
    assert _status_line(status, configured) == f"mail: lag 1, leased 2, waiting 3, dead 4, missed 5, {end}"


def test_a_check_of_the_file_alone_names_each_consumer_or_fault(tmp_path: Path) -> None:
    """Redis is not asked, as it may not be started yet; the process of a gateway checks its consumers so."""
    file = tmp_path / "headgate.toml"
    table = '[consumers.hook]\ntype = "webhook"\npatterns = ["a.#"]\nurl = "https://example.com/"\n'
    file.write_text(f'{table}secret = "whsec_{"A" * 44}"\n')
    command = ["consume", "--check", "--file-only", "--config", str(file)]
    good = CliRunner().invoke(main, command, env={"HEADGATE_REDIS_URL": "redis://127.0.0.1:1"})
    assert (good.exit_code, good.stdout) == (0, "headgate: notifications as hook (webhook): a.#\n")

    file.write_text(table)
    bad = CliRunner().invoke(main, command)
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert bad.stderr.startswith(f"headgate: {file} [consumers.hook] secret is missing; expected 1 to 3 secrets")
    assert bad.stderr.endswith(", or secret_env\n")


PIECE = Task("e" * 16, 7, "orders.7.paid", "id7", 1000, b'{"a": "\x1b"}', "ana@example.com")


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
