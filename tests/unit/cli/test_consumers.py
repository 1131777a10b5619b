"""`consumers` and `consume` without Redis: their refusals, and how a consumer is printed."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.consumers import _status_line
from headgate.cli.main import main
from headgate.consumers.work.groups import GroupStatus, check_consumer
from headgate.errors import InvalidRequest


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 65, "a/b", "a\n"])
def test_a_name_that_no_consumer_can_have_is_refused(name: str) -> None:
    """It would be a key of Redis without an owner."""
    with pytest.raises(InvalidRequest, match="expected a name of 1 to 64 characters"):
        check_consumer(name)


def test_a_name_that_a_consumer_can_have_is_taken() -> None:
    """Letters, digits, `_` and `-`."""
    assert check_consumer("on-call_2") == "on-call_2"


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
    assert bad.stderr == f"headgate: {file} [consumers.hook] secret is missing; expected secret or secret_env\n"
