"""The data folder of a private Redis, when others can write to it: neither a server nor a record in it is trusted."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate import BusRefused, BusUnavailable
from headgate.redis.data_folder import find_private_redis, open_lock, take_lock, wait_for_private_redis
from headgate.redis.embedded import start_private_redis
from headgate.services.publisher import Publisher
from tests.support.redis_server import DEADLINE_S, record_private_redis


def as_a_link(folder: Path) -> Path:
    link = folder.with_name("link")
    link.symlink_to(folder)
    return link


def writable(folder: Path, mode: int = 0o777) -> Path:
    folder.chmod(mode)
    return folder


def with_writable_record(folder: Path) -> Path:
    (folder / "redis.lock").chmod(0o666)
    return folder


def writable_by_the_group(folder: Path) -> Path:
    return writable(folder, mode=0o770)


def with_linked_record(folder: Path) -> Path:
    (folder / "redis.lock").rename(folder.with_name("elsewhere"))
    (folder / "redis.lock").symlink_to(folder.with_name("elsewhere"))
    return folder


def with_a_pipe_for_a_record(folder: Path) -> Path:
    (folder / "redis.lock").unlink()
    os.mkfifo(folder / "redis.lock", 0o600)
    return folder


# The ways in which another user may have laid out `./.headgate`, and the error for each.
TRAPS = [
    (as_a_link, "is a symbolic link"),
    (writable, "can be written by others (mode 777)"),
    (writable_by_the_group, "can be written by others (mode 770)"),
    (with_writable_record, "can be written by others (mode 666)"),
    (with_linked_record, "is a symbolic link"),
    (with_a_pipe_for_a_record, "is not a regular file"),
]


@pytest.fixture
def somebodys(tmp_path: Path, redis_url: str) -> Path:
    """A data folder with the record of a live server, laid out by hand."""
    folder = tmp_path / ".headgate"
    record_private_redis(folder, redis_url)
    return folder


@pytest.mark.parametrize(("trap", "told"), TRAPS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_folder_that_others_can_write_to_is_not_trusted(somebodys: Path, trap: Callable[[Path], Path], told: str) -> None:
    """Neither to find a server nor to start one, because publishers and the command line would talk to a server of theirs."""
    assert find_private_redis(somebodys) is not None
    folder = trap(somebodys)
    for use in (find_private_redis, start_private_redis):
        with pytest.raises(BusRefused, match="HEADGATE_REDIS_URL") as caught:
            use(folder)
        assert told in caught.value.message
        assert "\n" not in caught.value.message


def test_a_folder_of_somebody_else_is_not_trusted(somebodys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names its owner; the publisher and the command line pass it on."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(somebodys))
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    for use in (lambda: find_private_redis(somebodys), lambda: start_private_redis(somebodys), Publisher):
        with pytest.raises(BusRefused, match=f"belongs to user id {os.getuid()}, and we are"):
            use()


def test_a_socket_in_a_folder_that_others_can_write_to_is_not_trusted(somebodys: Path) -> None:
    """The record outlives a server that was killed, and its temporary folder may have been made again by another user."""
    record = json.loads((somebodys / "redis.lock").read_text())
    writable(Path(record["socket"]).parent)
    try:
        assert find_private_redis(somebodys) is None
    finally:
        writable(Path(record["socket"]).parent, 0o700)


def test_a_command_that_comes_before_its_server_waits_for_it(tmp_path: Path) -> None:
    """As when `headgate serve` is started again and an event is published at once, the folder has the lock of the last one."""
    start_private_redis(tmp_path).close()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(wait_for_private_redis, tmp_path, DEADLINE_S)
        with start_private_redis(tmp_path) as server:
            assert found.result() == server.url


def test_a_server_that_takes_longer_is_said_to_be_starting(tmp_path: Path) -> None:
    """Its owner has the lock. Without one, it does not run."""
    lock = open_lock(tmp_path)
    try:
        assert wait_for_private_redis(tmp_path, 0.0) is None
        take_lock(lock, tmp_path)
        with pytest.raises(BusUnavailable, match="is starting: try again in a moment"):
            wait_for_private_redis(tmp_path, 0.0)
    finally:
        os.close(lock)


def test_nobody_waits_where_no_server_has_ever_run(tmp_path: Path) -> None:
    """A wait would find no server."""
    assert wait_for_private_redis(tmp_path / "none", DEADLINE_S) is None
