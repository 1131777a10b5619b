"""The record in the data folder: a crash may leave anything there, and looking for a server never fails on it."""

import json
from pathlib import Path

import pytest

from headgate.errors import BusUnavailable
from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher

NOWHERE = json.dumps({"socket": "/nowhere/redis.sock", "pid": 1}).encode()


@pytest.mark.parametrize("record", [None, b"", b"{", b"[]", b'{"socket": 7}', b'{"socket": ""}', b"\xff", NOWHERE])
def test_a_record_that_leads_nowhere_is_no_server(tmp_path: Path, record: bytes | None) -> None:
    """A crash may leave anything, and none was there at first."""
    if record is not None:
        (tmp_path / "redis.lock").write_bytes(record)
    assert find_private_redis(tmp_path) is None


def test_a_deleted_folder_has_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher without a URL gets the error of a missing Redis, and not one of the file system."""
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(BusUnavailable, match="the current folder was deleted"):
        Publisher()
