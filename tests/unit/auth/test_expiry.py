"""Expiry: each client is due once, at its time, and nothing is kept of those that left. On clocks of the test's own."""

from collections.abc import Iterable, Iterator

import gevent
import pytest

from headgate.auth.expiry import TICK_S, Expiry

DEADLINE_S = 30.0


class Clocks:
    """A wall clock and a monotonic one, which `pass_time` moves together."""

    def __init__(self) -> None:
        self.wall_s, self.monotonic_s = 1_800_000_000.0, 1000.0

    def pass_time(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def due() -> list[str]:
    """Everyone that was due, in order."""
    return []


@pytest.fixture
def expiry(due: list[str], clocks: Clocks) -> Iterator[Expiry[str]]:
    made: Expiry[str] = Expiry(due.extend, lambda: clocks.wall_s, lambda: clocks.monotonic_s)
    yield made
    made.close()


def tick(expiry: Expiry[str]) -> None:
    """Act like the timer, and let the call to `on_due` run."""
    expiry.tick()
    gevent.idle(-2)


def test_a_client_is_due_when_its_time_has_come_and_not_before(expiry: Expiry[str], due: list[str], clocks: Clocks) -> None:
    """Once, and at most one tick late."""
    expiry.set("soon", clocks.wall_s + 2 * TICK_S)
    expiry.set("late", clocks.wall_s + 3600)
    expiry.set("never", None)
    clocks.pass_time(2 * TICK_S - 0.01)
    tick(expiry)
    assert due == []
    clocks.pass_time(0.01 + TICK_S)
    tick(expiry)
    tick(expiry)
    assert due == ["soon"]


def test_the_timer_calls_back_by_itself() -> None:
    """On the real clocks; it starts with the first client."""
    called = gevent.event.Event()
    expiry: Expiry[str] = Expiry(lambda clients: called.set())
    expiry.set("gone", 0.0)
    assert called.wait(DEADLINE_S)
    expiry.close()


def test_a_renewed_client_is_due_at_its_new_time_only(expiry: Expiry[str], due: list[str], clocks: Clocks) -> None:
    """Later, or never."""
    for client in ("a", "b", "c"):
        expiry.set(client, clocks.wall_s + 1)
    expiry.set("a", clocks.wall_s + 3600)
    expiry.set("b", None)
    clocks.pass_time(10)
    tick(expiry)
    assert due == ["c"]
    clocks.pass_time(3600)
    tick(expiry)
    assert due == ["c", "a"]


def test_nothing_is_kept_of_a_client_that_left_or_was_due(expiry: Expiry[str], due: list[str], clocks: Clocks) -> None:
    """A day's token does not hold a minute's browser in memory."""
    expiry.set("left", clocks.wall_s + 86400)
    expiry.set("due", clocks.wall_s - 1)
    expiry.forget("left")
    expiry.forget("left")
    tick(expiry)
    assert due == ["due"]
    assert not expiry._slots
    assert not expiry._slot_of


def test_clients_of_one_tick_share_a_slot_until_the_last_has_left(expiry: Expiry[str], clocks: Clocks) -> None:
    """A pass costs the slots in use, and not the clients."""
    for client in ("a", "b"):
        expiry.set(client, clocks.wall_s + 10)
    assert len(expiry._slots) == 1
    expiry.forget("a")
    assert len(expiry._slots) == 1
    expiry.forget("b")
    assert not expiry._slots


def test_a_wall_clock_that_jumps_does_not_move_a_client_that_is_in(expiry: Expiry[str], due: list[str], clocks: Clocks) -> None:
    """An hour forward or back: the time was reckoned when it was set."""
    expiry.set("hour", clocks.wall_s + 600)
    clocks.wall_s += 3600
    tick(expiry)
    assert due == []
    clocks.wall_s -= 7200
    clocks.pass_time(601)
    tick(expiry)
    assert due == ["hour"]


def test_a_time_beyond_all_reason_is_no_fault(expiry: Expiry[str], due: list[str]) -> None:
    """An application's authenticator may say anything."""
    expiry.set("far", 1e300)
    expiry.set("infinite", float("inf"))
    expiry.set("past", -1e300)
    tick(expiry)
    assert due == ["past"]


def test_a_client_that_is_renewed_while_others_are_disconnected_stays(clocks: Clocks) -> None:
    """To disconnect many takes several turns of the loop, in which a `refresh` may be answered."""
    out: list[str] = []

    def disconnect(clients: Iterable[str]) -> None:
        for client in clients:
            out.append(client)
            for other in {"a", "b"} - {client}:
                made.set(other, clocks.wall_s + 3600)

    made: Expiry[str] = Expiry(disconnect, lambda: clocks.wall_s, lambda: clocks.monotonic_s)
    made.set("a", clocks.wall_s - 1)
    made.set("b", clocks.wall_s - 1)
    tick(made)
    made.close()
    assert len(out) == 1


def test_after_the_close_nobody_is_due(expiry: Expiry[str], due: list[str], clocks: Clocks) -> None:
    """Also when it is closed twice."""
    expiry.set("soon", clocks.wall_s + 1)
    expiry.close()
    expiry.close()
    clocks.pass_time(10)
    tick(expiry)
    assert due == []
