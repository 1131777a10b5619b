"""The demo's secret: made once, kept for the servers that follow, never taken from a file that others could have made or read."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headgate_server.demo.secret import MAX_SECRET_BYTES, SECRET_BYTES, SECRET_NAME, demo_secret


def test_the_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    """The folder is made too; the file is for its owner alone, and nothing else is left behind."""
    folder = tmp_path / "new" / "data"
    with capture_logs() as lines:
        secret = demo_secret(folder)
        assert demo_secret(folder) == secret
    assert lines == []
    assert len(secret) == SECRET_BYTES
    assert os.listdir(folder) == [SECRET_NAME]
    assert stat.S_IMODE((folder / SECRET_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0


def test_another_folder_has_another_secret(tmp_path: Path) -> None:
    """It is random."""
    assert demo_secret(tmp_path / "one") != demo_secret(tmp_path / "two")


def test_servers_that_start_together_have_one_secret(tmp_path: Path) -> None:
    """The first one makes it; none reads half of it."""
    together = threading.Barrier(8)
    found: list[bytes] = []

    def start() -> None:
        together.wait()
        found.append(demo_secret(tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {demo_secret(tmp_path)}
    assert os.listdir(tmp_path) == [SECRET_NAME]


def _plant(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def _link(path: Path) -> None:
    _plant(path.with_name("elsewhere"), bytes(SECRET_BYTES))
    path.symlink_to("elsewhere")


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a symbolic link": (_link, "symbolic link"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "symbolic link"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "a pipe": (lambda path: os.mkfifo(path, 0o600), "not a regular file"),
    "readable by others": (lambda path: _plant(path, bytes(SECRET_BYTES), 0o644), "its mode is 644; expected 600"),
    "writable by the group": (lambda path: _plant(path, bytes(SECRET_BYTES), 0o620), "its mode is 620; expected 600"),
    "empty": (lambda path: _plant(path, b""), "it has 0 bytes; expected 32 to 4096"),
    "too short": (lambda path: _plant(path, bytes(SECRET_BYTES - 1)), "it has 31 bytes; expected 32 to 4096"),
    "too long": (lambda path: _plant(path, bytes(MAX_SECRET_BYTES + 1)), "it has 4097 bytes; expected 32 to 4096"),
}


@pytest.mark.parametrize("make", UNUSABLE)
def test_a_file_that_is_not_ours_alone_is_not_used(tmp_path: Path, make: str) -> None:
    """The log names the file and what is wrong, once for each start; the file stays; each start has a secret of its own."""
    plant, reason = UNUSABLE[make]
    path = tmp_path / SECRET_NAME
    plant(path)
    before = path.lstat()
    with capture_logs() as lines:
        first, second = demo_secret(tmp_path), demo_secret(tmp_path)
    assert first != second
    assert bytes(SECRET_BYTES) not in (first, second)
    assert len(first) == len(second) == SECRET_BYTES
    assert [(line["event"], line["log_level"], line["path"]) for line in lines] == [
        ("demo secret not kept", "warning", str(path)),
    ] * 2
    assert reason in lines[0]["reason"]
    assert path.lstat().st_mtime_ns == before.st_mtime_ns


def test_a_file_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That user knows what is in it."""
    _plant(tmp_path / SECRET_NAME, bytes(SECRET_BYTES))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with capture_logs() as lines:
        assert demo_secret(tmp_path) != bytes(SECRET_BYTES)
    assert lines[0]["reason"] == f"it belongs to user {os.getuid()}; expected {os.getuid() + 1}"


@pytest.mark.parametrize("under", ["file", "file/data"])
def test_without_a_folder_to_write_to_the_secret_lasts_as_long_as_the_process(tmp_path: Path, under: str) -> None:
    """The demo starts all the same, and says what that means."""
    (tmp_path / "file").write_text("not a folder")
    with capture_logs() as lines:
        secret = demo_secret(tmp_path / under)
    assert len(secret) == SECRET_BYTES
    assert lines[0]["effect"] == "tokens of the demo end with this process"


def test_a_folder_that_refuses_links_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some shared file systems do."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with capture_logs() as lines:
        demo_secret(tmp_path)
    assert lines[0]["reason"] == "Operation not permitted"
    assert os.listdir(tmp_path) == []
