"""The fixtures of tests of a namespace: a connection that writes down what it is sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.wired_client import WiredClient


@pytest.fixture
def wired() -> Iterator[WiredClient]:
    """A connection."""
    wired = WiredClient({})
    yield wired
    wired.close()
