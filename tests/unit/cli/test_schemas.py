"""`types`: its output and where, `--check`, and how faults are reported. Without Redis."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headgate.cli.main import main
from tests.support.schema_files import write


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path / "schemas", {"a.b.json": {"type": "object", "properties": {"n": {"type": "integer"}}}})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def test_a_file_is_up_to_date_until_the_schemas_change(here: Path) -> None:
    """`--check` writes nothing, because it is for continuous integration."""
    assert run("types", "-o", "out", "--check").exit_code == 1
    assert not (here / "out").exists()
    assert run("types", "-o", "out").exit_code == 0
    written = (here / "out").read_text()
    assert run("types").stdout == written
    assert run("types", "-o", "out", "--check").exit_code == 0
    write(here / "schemas", {"a.c.json": True})
    result = run("types", "-o", "out", "--check")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "headgate: out is not up to date with the schemas",
        "headgate: Run the same command without --check, and commit the file.",
    ]
    assert (here / "out").read_text() == written


def test_the_folder_is_the_one_that_is_named_else_that_of_the_setting(here: Path) -> None:
    """Else `schemas`, also where the setting names the registry."""
    write(here / "set", {"set.json": True})
    write(here / "given", {"given.json": True})
    assert '"set": Set;' in run("types", HEADGATE_SCHEMAS="set").stdout
    assert '"given": Given;' in run("types", "--schemas", "given", HEADGATE_SCHEMAS="set").stdout
    assert '"a.b": AB;' in run("types", HEADGATE_SCHEMAS="redis").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("types", "--schemas", "nowhere"), "schema nowhere: cannot be read: No such file or directory"),
        (
            ("types", "--schemas", "empty"),
            "schema empty/: has no schema of a topic; expected files such as orders.*.shipped.json",
        ),
        (("schemas", "push", "empty"), "schema empty/: has no schema of a topic; expected files such as orders.*.shipped.json"),
        (("types", "-o", "nowhere/out"), "nowhere/out: No such file or directory"),
        (("types", "--registry", "--namespace", "ö"), "unknown namespace 'ö'; expected 1 to 64 ASCII letters, digits, _ and -"),
    ],
)
def test_a_fault_is_one_line(here: Path, arguments: tuple[str, ...], told: str) -> None:
    (here / "empty").mkdir()
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (1, f"headgate: {told}\n")
