"""A fixture that tests of whole consumers share: a publisher."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.services.publisher import Publisher


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher into the log that consumers read."""
    with Publisher(redis_url) as publisher:
        yield publisher
