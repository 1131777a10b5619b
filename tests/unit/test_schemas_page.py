"""docs/schemas.md: its files are schemas, its types are those that the command writes, and its error is the error."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.main import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schemas.md").read_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page, and nothing set."""
    (tmp_path / "schemas").mkdir()
    files = re.findall(r"`(schemas/[^`]+\.json)`:\n\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(files) == 3
    for name, text in files:
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_types_of_the_page_are_those_that_the_command_writes(folder: Path) -> None:
    assert CliRunner().invoke(main, ["types", "-o", "topics.ts"]).exit_code == 0
    assert f"```ts\n{(folder / 'topics.ts').read_text()}```" in PAGE


def test_the_bad_event_of_the_page_is_refused_with_its_error(folder: Path) -> None:
    """Before anything is sent, as there is no Redis."""
    command = re.search(r"headgate (publish) (\S+) '(.*)'\n```\n\n```\n(.*)\n```", PAGE)
    assert command is not None
    environment = {
        "HEADGATE_SCHEMAS": "schemas",
        "HEADGATE_SCHEMA_CHECK": "refuse",
        "HEADGATE_REDIS_URL": f"unix://{folder}/no.sock",
    }
    result = CliRunner().invoke(main, list(command.groups()[:3]), env=environment)
    assert (result.exit_code, result.stderr) == (1, command[4] + "\n")
