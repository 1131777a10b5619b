"""`headgate vapid-keys`: a pair of keys, and a file that is never overwritten."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.consumers.webpush.encryption import ApplicationKey
from headgate.installation import install_command


def lines(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_keys_are_printed_as_lines_of_an_environment_file() -> None:
    """The public key is that of the private one, and each run makes others."""
    first, second = (lines(CliRunner().invoke(main, ["vapid-keys"]).stdout) for _ in range(2))

    assert list(first) == ["VAPID_PUBLIC_KEY", "VAPID_PRIVATE_KEY"]
    assert ApplicationKey(first["VAPID_PRIVATE_KEY"]).public_text == first["VAPID_PUBLIC_KEY"]
    assert first != second


def test_a_file_gets_both_keys_and_the_screen_only_the_public_one(tmp_path: Path) -> None:
    """Only its owner can read the file."""
    path = tmp_path / "push.env"

    done = CliRunner().invoke(main, ["vapid-keys", "--file", str(path)])

    written = lines(path.read_text())
    assert done.stdout == f"VAPID_PUBLIC_KEY={written['VAPID_PUBLIC_KEY']}\n"
    assert written["VAPID_PRIVATE_KEY"] not in done.output
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("push.env", "the file exists already, and is not changed; expected a new file"),
        ("none/push.env", "no such file or directory"),
    ],
)
def test_a_file_that_cannot_be_made_is_one_line(tmp_path: Path, name: str, told: str) -> None:
    """With the path and the reason. The keys in a file that is there stay."""
    (tmp_path / "push.env").write_text("VAPID_PRIVATE_KEY=mine\n")
    done = CliRunner().invoke(main, ["vapid-keys", "--file", str(tmp_path / name)])
    assert (done.exit_code, done.stderr) == (1, f"headgate: {tmp_path / name}: {told}\n")
    assert (tmp_path / "push.env").read_text() == "VAPID_PRIVATE_KEY=mine\n"


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher's installation has the command, and not the packages for it."""
    for name in [each for each in sys.modules if each.startswith(("cryptography", "headgate.consumers.webpush"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)

    done = CliRunner().invoke(main, ["vapid-keys"])

    assert done.stderr == f"headgate: headgate vapid-keys needs the package cryptography: run {install_command('push')}\n"


def test_json_has_the_keys_and_never_the_private_one_beside_a_file(tmp_path: Path) -> None:
    printed = json.loads(CliRunner().invoke(main, ["vapid-keys", "--json"]).stdout)
    assert set(printed) == {"public_key", "private_key"}
    path = tmp_path / "push.env"
    written = json.loads(CliRunner().invoke(main, ["vapid-keys", "--json", "--file", str(path)]).stdout)
    assert set(written) == {"public_key", "file"}
    assert f"VAPID_PUBLIC_KEY={written['public_key']}" in path.read_text()
