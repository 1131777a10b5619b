"""Shedding: newcomers are refused without room or with a late loop, and come in again. On a clock of the test's own."""

from functools import partial
from random import Random

import pytest
import structlog
from prometheus_client import REGISTRY

from headgate.errors import LimitReached, Overloaded
from headgate.node.population.shedding import CALM_S, FULL_RETRY_S, LAG_RETRY_S, LATE_BEATS, Shedding


class Gateway:
    """As many clients as a test says, and time that passes with each beat."""

    def __init__(self, max_clients: int = 0) -> None:
        self.clients, self.now_s = 0, 100.0
        self.shedding = Shedding(max_clients, lambda: self.clients, lambda: self.now_s, Random(1).randint)

    def beats(self, *lags_s: float) -> str:
        for lag_s in lags_s:
            self.now_s += 0.1 + lag_s
            self.shedding.beat(lag_s)
        return self.shedding.word()

    def calm(self, seconds: float, lag_s: float = 0.0) -> str:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.beats(lag_s)
        return self.shedding.word()


def test_one_pause_of_the_process_refuses_nobody() -> None:
    """However long. Its machine was stopped, or collected garbage."""
    gateway = Gateway()
    assert gateway.beats(60.0) == "admitting"
    gateway.shedding.check_session(0)
    assert gateway.beats(0.0) == "admitting"
    assert [gateway.beats(30.0, 0.0) for _ in range(20)] == ["admitting"] * 20


def test_a_loop_that_stays_late_refuses_newcomers_until_it_has_been_calm() -> None:
    """At the handshake and at CONNECT, returning ones too, because a loop that lags could not serve them either."""
    gateway = Gateway()
    assert gateway.beats(*[1.0] * LATE_BEATS) == "shedding"
    checks = (partial(gateway.shedding.check_session, 0), partial(gateway.shedding.check_client, returning=True))
    for check in checks:
        with pytest.raises(Overloaded) as refused:
            check()
        assert refused.value.retry
        assert LAG_RETRY_S[0] <= (refused.value.retry_after_s or 0) <= LAG_RETRY_S[1]
    assert gateway.calm(CALM_S - 1) == "shedding"
    with pytest.raises(Overloaded):
        gateway.shedding.check_session(0)
    assert gateway.calm(2) == "admitting"
    gateway.shedding.check_session(0)


def test_the_lag_that_ends_shedding_is_half_of_what_begins_it() -> None:
    """Else it would flap around the limit."""
    gateway = Gateway()
    assert gateway.beats(*[0.6] * 50) == "admitting"
    gateway.beats(*[1.0] * LATE_BEATS)
    assert gateway.calm(3 * CALM_S, lag_s=0.6) == "shedding"
    gateway.calm(CALM_S / 2)
    assert gateway.beats(0.6) == "shedding"  # and calm is counted from zero
    assert gateway.calm(CALM_S - 1) == "shedding"


def test_beyond_the_most_clients_a_newcomer_is_refused_with_the_limit_and_a_time() -> None:
    """A session before its join takes a place too."""
    gateway = Gateway(max_clients=10)
    gateway.shedding.check_session(9)
    with pytest.raises(LimitReached) as refused:
        gateway.shedding.check_session(10)
    assert refused.value.parts == {"name": "clients", "limit": 10}
    assert FULL_RETRY_S[0] <= (refused.value.retry_after_s or 0) <= FULL_RETRY_S[1]
    gateway.clients = 10
    for returning in (True, False):
        with pytest.raises(LimitReached):
            gateway.shedding.check_client(returning=returning)
    assert gateway.shedding.word() == "full"
    gateway.clients = 9
    gateway.shedding.check_client(returning=False)


def test_one_place_in_twenty_is_for_clients_that_come_back() -> None:
    """A newcomer finds none of them."""
    gateway = Gateway(max_clients=100)
    gateway.clients = 94
    gateway.shedding.check_client(returning=False)
    for gateway.clients in range(95, 100):
        gateway.shedding.check_client(returning=True)
        with pytest.raises(LimitReached):
            gateway.shedding.check_client(returning=False)


def test_those_who_are_refused_together_come_back_apart() -> None:
    """The time is a random one."""
    gateway = Gateway(max_clients=1)
    waits = set()
    for _ in range(200):
        with pytest.raises(LimitReached) as refused:
            gateway.shedding.check_session(1)
        waits.add(refused.value.retry_after_s)
    assert waits == set(range(FULL_RETRY_S[0], FULL_RETRY_S[1] + 1))


def test_a_refusal_is_counted_and_the_beginning_and_the_end_are_logged_once() -> None:
    """By its reason; nothing is logged for each."""

    def shed(reason: str) -> float:
        return REGISTRY.get_sample_value("headgate_shed_total", {"reason": reason}) or 0.0

    gateway, before = Gateway(max_clients=1), (shed("lag"), shed("clients"))
    with structlog.testing.capture_logs() as entries:
        gateway.beats(*[2.0] * 9)
        assert REGISTRY.get_sample_value("headgate_shedding") == 1
        for _ in range(3):
            with pytest.raises(Overloaded):
                gateway.shedding.check_session(0)
        gateway.calm(2 * CALM_S)
    with pytest.raises(LimitReached):
        gateway.shedding.check_session(1)
    assert [entry["event"] for entry in entries] == ["shedding began", "shedding ended"]
    assert (shed("lag") - before[0], shed("clients") - before[1]) == (3, 1)
    assert REGISTRY.get_sample_value("headgate_shedding") == 0
