"""`headgate config show`: every setting with its origin."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headgate.cli.main import main
from tests.support.service_links import SERVICE_LINKS
from tools.settings_page import describe

SECRET = "a secret of the tests, 0123456789abcdef"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = 'port = 9000\nmax_clients = 5\nqueue_frames = 3\nallowed_origins = ["https://a"]\n'
    (tmp_path / "headgate.toml").write_text(f"[settings]\n{settings}")
    (tmp_path / "configured.py").write_text(
        "from flask import Flask\napp = Flask(__name__)\n"
        "app.config.update(HEADGATE_MAX_CLIENTS=1, HEADGATE_MAX_SUBSCRIPTIONS=500, OTHER=1)\n"
        "app.config.update(HEADGATE_WORKERS=2, HEADGATE_PORT=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def show(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["config", "show", *arguments], env=environment)


def test_each_setting_has_the_origin_that_wins() -> None:
    environment = {"HEADGATE_QUEUE_FRAMES": "4", "HEADGATE_PORT": "9001"}
    shown = show("configured:app", "--port", "9002", "--json", **environment)
    assert shown.stderr.startswith("headgate: HEADGATE_WORKERS in app.config comes too late, as `headgate serve` needs it before")
    assert shown.stderr.count("\n") == 1
    said = json.loads(shown.stdout)
    settings = said["settings"]
    assert said["file"] == "headgate.toml"
    assert list(settings) == [name for name, *_ in describe()]
    assert {name: (each["value"], each["origin"]) for name, each in settings.items() if each["origin"] != "default"} == {
        "HEADGATE_PORT": (9002, "option"),
        "HEADGATE_ALLOWED_ORIGINS": (["https://a"], "file"),
        "HEADGATE_MAX_CLIENTS": (5, "file"),
        "HEADGATE_QUEUE_FRAMES": (4, "environment"),
        "HEADGATE_MAX_SUBSCRIPTIONS": (500, "Flask"),
        "HEADGATE_WORKERS": (2, "Flask"),
    }


def test_a_person_reads_one_line_each(folder: Path) -> None:
    """Only the changed settings, on request."""
    lines = show("--changed").stdout.splitlines()
    assert lines[0] == "file: headgate.toml"
    assert [line.split(maxsplit=2) for line in lines[1:]] == [
        ["HEADGATE_PORT", "file", "9000"],
        ["HEADGATE_ALLOWED_ORIGINS", "file", "https://a"],
        ["HEADGATE_MAX_CLIENTS", "file", "5"],
        ["HEADGATE_QUEUE_FRAMES", "file", "3"],
    ]
    (folder / "headgate.toml").unlink()
    assert show("--changed").stdout == "file: none\n"
    assert "HEADGATE_STATSD" in show().stdout


def test_secrets_are_not_shown() -> None:
    """Of Redis, the place alone."""
    environment = {"HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_REDIS_URL": "redis://user:hunter2@h:7/0"}
    for arguments in ((), ("--json",)):
        said = show(*arguments, **environment).stdout
        assert SECRET not in said
        assert "hunter2" not in said
        assert "h:7" in said
        assert "(hidden)" in said


def test_a_name_that_nobody_knows_is_told_with_the_nearest_right_one(folder: Path) -> None:
    (folder / "headgate.toml").write_text("[settings]\nmax_client = 5\nport = -1\n")
    result = show()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "max_client is not a setting; did you mean max_clients?" in result.stderr
    assert "port=-1: expected" in result.stderr


def test_what_is_no_application_is_one_line() -> None:
    result = show("json:dumps")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith("headgate: invalid request: 'json:dumps' needs arguments")


def test_a_service_link_is_no_origin_of_a_setting() -> None:
    shown = CliRunner().invoke(main, ["config", "show", "--json"], env=SERVICE_LINKS)
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["settings"]["HEADGATE_PORT"] == {"value": 9000, "origin": "file"}


def test_every_command_reads_the_settings_of_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headgate serve` finds Redis and its secret there, and tells its operator to run `headgate tail` next."""
    (folder / "headgate.toml").write_text(f'[settings]\nredis_url = "redis://127.0.0.1:1/0"\ntoken_secret = "{SECRET}"\n')
    for name in ("HEADGATE_REDIS_URL", "HEADGATE_TOKEN_SECRET"):
        monkeypatch.setenv(name, "")
    assert CliRunner().invoke(main, ["token", "--user", "ana"]).exit_code == 0
    for command in (["tail", "#"], ["publish", "a", "1"], ["status"], ["clients"], ["keys", "list"], ["schemas", "list"]):
        assert "127.0.0.1:1: connection refused" in CliRunner().invoke(main, command).output
        environment = {"HEADGATE_REDIS_URL": "redis://127.0.0.1:2/0"}
        assert "127.0.0.1:2: connection refused" in CliRunner().invoke(main, command, env=environment).output
