"""The fixtures of several tests of a gateway's parts: a connection that records its messages, a small Redis, a clock."""

from collections.abc import Iterator

import pytest

from tests.support.gateway_here import GatewayOnModel, StartGatewayOnModel
from tests.support.held_clock import HeldClock
from tests.support.small_redis import SmallRedis
from tests.support.wired_client import WiredClient


@pytest.fixture
def wired() -> Iterator[WiredClient]:
    """A connection."""
    wired = WiredClient({})
    yield wired
    wired.close()


@pytest.fixture
def server() -> SmallRedis:
    """The Redis of all processes of the test."""
    return SmallRedis()


@pytest.fixture
def clock() -> HeldClock:
    """Its clock, where it has one."""
    return HeldClock(100.0)


@pytest.fixture
def gateway(gateway_on_model: StartGatewayOnModel) -> GatewayOnModel:
    """A gateway in development."""
    return gateway_on_model()
