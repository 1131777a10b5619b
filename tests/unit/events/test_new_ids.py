"""New ids: each is used once, whatever the fate of the process."""

import os
import re

import pytest

from headgate.events import new_ids
from headgate.events.new_ids import NEW_IDS, spare_id


def test_ids_that_were_made_ahead_are_used_once_by_one_process_and_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child, or a copy of the machine, would publish other events by the same ids, and they would be taken for duplicates."""
    now_s = 1000.0
    monkeypatch.setattr(new_ids, "monotonic", lambda: now_s)
    monkeypatch.setattr(new_ids, "_spare_until_s", 0.0)
    ids = [spare_id() for _ in range(2 * NEW_IDS + 1)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[0-9a-f]{32}", made) for made in ids)
    assert new_ids._spare_ids
    spare = set(new_ids._spare_ids)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, spare_id().encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as told:
        made = told.read()
    assert len(made) == 32
    assert made not in spare
    now_s += 1
    assert spare_id() not in spare
