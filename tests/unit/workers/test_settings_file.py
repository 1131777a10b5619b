"""The configuration file of a process that serves, read again."""

from pathlib import Path

import pytest

from headgate.errors import SettingsError
from headgate.workers.settings_file import SettingsFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "headgate.toml"
    path.write_text("[settings]\nmax_clients = 5\nport = 9000\n")
    return path


def test_the_environment_wins_and_an_earlier_file_does_not(path: Path) -> None:
    """A name that left the file leaves the environment; other names stay."""
    environ = {"HEADGATE_PORT": "1", "PATH": "/bin"}
    file = SettingsFile(str(path))
    file.put(file.read(environ), environ)
    assert (environ["HEADGATE_PORT"], environ["HEADGATE_MAX_CLIENTS"]) == ("1", "5")

    environ["HEADGATE_REDIS_URL"] = "redis://h"
    path.write_text("[settings]\nmax_subscriptions = 9\nport = 9000\n")
    file.put(file.read(environ), environ)
    ours = {name: value for name, value in environ.items() if name.startswith("HEADGATE_")}
    assert ours == {"HEADGATE_PORT": "1", "HEADGATE_MAX_SUBSCRIPTIONS": "9", "HEADGATE_REDIS_URL": "redis://h"}
    assert environ["PATH"] == "/bin"


def test_the_files_port_wins_over_a_service_link(path: Path) -> None:
    """`HEADGATE_PORT=tcp://…` is no setting, so the file's is the one that applications and workers read."""
    environ = {"HEADGATE_PORT": "tcp://10.96.4.7:80", "HEADGATE_SERVICE_HOST": "10.96.4.7"}
    file = SettingsFile(str(path))
    file.put(file.read(environ), environ)

    assert environ["HEADGATE_PORT"] == "9000"


def test_a_process_that_inherits_the_environment_knows_what_the_file_has_put_there(path: Path) -> None:
    """One that replaces another on SIGUSR2."""
    environ: dict[str, str] = {}
    SettingsFile(str(path)).put(SettingsFile(str(path)).read(environ), environ)
    path.write_text("[settings]\nmax_clients = 6\n")
    assert SettingsFile(str(path)).read(environ) == {"HEADGATE_MAX_CLIENTS": "6"}


def test_a_file_that_is_wrong_changes_nothing(path: Path) -> None:
    """An unknown name is reported with the nearest right one; so are faults that only all settings together have."""
    environ = {"HEADGATE_DEV": "1"}
    file = SettingsFile(str(path))
    path.write_text("[settings]\nmax_client = 5\n")
    with pytest.raises(SettingsError, match="max_client is not a setting; did you mean max_clients"):
        file.read(environ)
    path.write_text('[settings]\nhost = "0.0.0.0"\n')
    with pytest.raises(SettingsError, match="HEADGATE_DEV"):
        file.read(environ)
    assert environ == {"HEADGATE_DEV": "1"}


def test_without_a_file_the_environment_is_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application's own settings are checked with it."""
    monkeypatch.chdir(tmp_path)
    file = SettingsFile.of_config(None)
    assert file.path is None
    assert file.read({"HEADGATE_PORT": "1", "PATH": "/bin"}) == {"HEADGATE_PORT": "1"}
    with pytest.raises(SettingsError, match="HEADGATE_MAX_CLIENTS"):
        file.read({}, {"HEADGATE_MAX_CLIENTS": "many"})
