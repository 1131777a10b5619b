"""The registration of a gateway: renewed, taken back, and honest about the others. On the test's own clock and registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.errors import BusUnavailable
from headgate.node.cluster import registration as module
from headgate.node.cluster.registration import RENEW_EVERY_S, TIDY_EVERY, Registration
from headgate.redis.registry import LEASE_S
from headgate.runtime import rounds
from tests.support.loop_clock import LoopClock
from tests.support.small_redis import SmallRedis

GONE = BusUnavailable("connection refused")


class Registry:
    """A registry in memory: it answers, or raises."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.registered = self.tidied = 0
        self.fault: Exception | None = None

    def register(self, client: Any, gateway_id: str, namespaces: Any, *, tidy: bool) -> bool:
        self._check()
        self.registered += 1
        self.tidied += tidy
        known = gateway_id in self.members
        self.members.add(gateway_id)
        return known

    def leave(self, client: Any, gateway_id: str, namespaces: Any) -> bool:
        self._check()
        known = gateway_id in self.members
        self.members.discard(gateway_id)
        return known and not self.members

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    clock = LoopClock()
    monkeypatch.setattr(module, "monotonic", clock.time)
    monkeypatch.setattr(rounds, "Signal", clock.signal)
    return clock


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    monkeypatch.setattr(module, "register", registry.register)
    monkeypatch.setattr(module, "leave", registry.leave)
    return registry


@pytest.fixture
def registration(clock: LoopClock, registry: Registry) -> Iterator[Registration]:
    """One that has been made, and not started."""
    registration = Registration(SmallRedis().client(), ["chat"])
    yield registration
    registry.fault = None
    registration.leave()
    clock.advance(2 * RENEW_EVERY_S)


def start(registration: Registration) -> None:
    """Start it, and let it register."""
    registration.start()
    gevent.idle(-2)


def test_it_registers_at_once_and_renews_within_the_lease(
    registration: Registration, registry: Registry, clock: LoopClock
) -> None:
    """Three times, so that one lost renewal costs nothing. Start is idempotent."""
    start(registration)
    registration.start()
    assert registration.tried.is_set()
    clock.advance(LEASE_S - 0.5)
    assert registry.registered == 3


def test_it_tidies_up_at_first_and_about_once_a_minute(registration: Registration, registry: Registry, clock: LoopClock) -> None:
    """And with the next round after Redis has lost everything, as nothing there has an end then."""
    start(registration)
    clock.advance(TIDY_EVERY * RENEW_EVERY_S - 1)
    assert (registry.registered, registry.tidied) == (TIDY_EVERY, 1)
    clock.advance(RENEW_EVERY_S)
    assert registry.tidied == 2
    registry.members.clear()
    clock.advance(2 * RENEW_EVERY_S)
    assert registry.tidied == 3


def test_the_only_gateway_knows_that_it_is_alone(registration: Registration, registry: Registry, clock: LoopClock) -> None:
    """It says so once, and does not register again."""
    start(registration)
    assert registration.leave() is True
    assert registration.leave() is False
    clock.advance(3 * RENEW_EVERY_S)
    assert registry.registered == 1


def test_a_gateway_with_another_beside_it_is_not_alone(registration: Registration, registry: Registry) -> None:
    """Its clients have somewhere to go."""
    start(registration)
    registry.members.add("another")
    assert registration.leave() is False


def test_a_gateway_that_never_started_knows_nothing_of_others(registration: Registration) -> None:
    """Nor does it ask."""
    assert registration.leave() is False


@pytest.mark.parametrize(("after_s", "alone"), [(LEASE_S - 5, False), (LEASE_S + 5, True)])
def test_after_the_registry_was_emptied_others_have_a_lease_to_come_back(
    registration: Registration, registry: Registry, clock: LoopClock, after_s: float, alone: bool
) -> None:
    """Not known is not none."""
    start(registration)
    registry.members.clear()
    with capture_logs() as lines:
        registration.renew()
        gevent.idle(-2)
    assert [line["event"] for line in lines] == ["registered again"]
    clock.advance(after_s)
    assert registration.leave() is alone


def test_a_registry_out_of_reach_is_logged_once_and_says_nothing_about_others(
    registration: Registration, registry: Registry, clock: LoopClock
) -> None:
    """When the gateway stops it drains: another one may be there."""
    with capture_logs() as lines:
        registry.fault = GONE
        start(registration)
        assert registration.tried.is_set()
        clock.advance(3 * RENEW_EVERY_S)
        assert registration.leave() is False
    assert [(line["event"], line["log_level"]) for line in lines] == [("registry out of reach", "warning")]


def test_a_registry_that_is_back_is_written_again_and_its_next_fault_is_logged_again(
    registration: Registration, registry: Registry, clock: LoopClock
) -> None:
    """Each outage has its line."""
    with capture_logs() as lines:
        for fault in (GONE, None, GONE):
            registry.fault = fault
            start(registration)
            clock.advance(RENEW_EVERY_S)
    assert [line["event"] for line in lines] == ["registry out of reach"] * 2
    assert registry.registered > 0


def test_a_fault_of_ours_does_not_end_the_registration(registration: Registration, registry: Registry, clock: LoopClock) -> None:
    """It is logged whole."""
    with capture_logs() as lines:
        registry.fault = RuntimeError("a fault of ours")
        start(registration)
        registry.fault = None
        clock.advance(RENEW_EVERY_S + 1)
    assert [line["event"] for line in lines] == ["registration failed"]
    assert registry.registered == 1
