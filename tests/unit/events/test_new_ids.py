"""New ids: each is another, alone and in a batch."""

import re
from itertools import islice

from headgate.events.new_ids import endless_ids, new_id


def test_no_id_comes_twice() -> None:
    """Of 128 random bits each."""
    ids = [*(new_id() for _ in range(100)), *islice(endless_ids(), 200)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[0-9a-f]{32}", made) for made in ids)
