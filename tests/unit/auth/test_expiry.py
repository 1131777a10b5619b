"""Expiry: who is due, when, once, and nothing kept of those who left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import gevent
import pytest

from headgate.auth.expiry import TICK_S, Expiry

DEADLINE_S = 30.0
NOW_S = 1_800_000_000.0


@pytest.fixture
def due() -> list[str]:
    """Everyone that was due, in order."""
    return []


@pytest.fixture
def expiry(due: list[str]) -> Iterator[Expiry[str]]:
    """By a wall clock that stands still: what is waited for is on the monotonic one."""
    made: Expiry[str] = Expiry(due.extend, lambda: NOW_S)
    yield made
    made.close()


def wait(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up
        gevent.sleep(0.01)


def test_a_client_is_due_when_its_time_has_come_and_not_before(expiry: Expiry[str], due: list[str]) -> None:
    """By its own timer, once."""
    begin = time.monotonic()
    expiry.set("soon", NOW_S + TICK_S)
    expiry.set("late", NOW_S + 3600)
    expiry.set("never", None)
    wait(lambda: due)
    assert due == ["soon"]
    assert time.monotonic() - begin >= TICK_S


def test_a_time_that_has_passed_is_due_at_the_next_tick(expiry: Expiry[str], due: list[str]) -> None:
    """A token that expires while its client joins."""
    expiry.set("gone", NOW_S - 100)
    wait(lambda: due)
    assert due == ["gone"]


def test_a_renewed_client_is_due_at_its_new_time_only(expiry: Expiry[str], due: list[str]) -> None:
    """Later, or never."""
    expiry.set("a", NOW_S - 1)
    expiry.set("b", NOW_S - 1)
    expiry.set("c", NOW_S - 1)
    expiry.set("a", NOW_S + 3600)
    expiry.set("b", None)
    wait(lambda: due)
    assert due == ["c"]


def test_nothing_is_kept_of_who_left_or_was_due(expiry: Expiry[str], due: list[str]) -> None:
    """A day's token does not hold a minute's browser in memory."""
    expiry.set("left", NOW_S + 86400)
    expiry.set("due", NOW_S - 1)
    expiry.forget("left")
    expiry.forget("left")
    wait(lambda: due)
    assert not expiry._slots
    assert not expiry._slot_of


def test_a_wall_clock_that_jumps_does_not_move_who_is_in(due: list[str]) -> None:
    """An hour forward or back: the time was reckoned when it was set."""
    clock = [1000.0]
    expiry: Expiry[str] = Expiry(due.extend, lambda: clock[0])
    expiry.set("hour", 1000.0 + 600)
    expiry.set("soon", 1000.0 - 1)
    clock[0] += 3600
    wait(lambda: due)
    expiry.close()
    assert due == ["soon"]


def test_a_time_beyond_all_reason_is_no_fault(expiry: Expiry[str], due: list[str]) -> None:
    """An application's authenticator may say anything."""
    expiry.set("far", 1e300)
    expiry.set("infinite", float("inf"))
    expiry.set("past", -1e300)
    wait(lambda: due)
    assert due == ["past"]


def test_who_is_renewed_while_others_are_disconnected_stays() -> None:
    """Putting out many takes several turns of the loop, in which a `refresh` may be answered."""
    out: list[str] = []

    def disconnect(clients: Iterable[str]) -> None:
        for client in clients:
            out.append(client)
            for other in {"a", "b"} - {client}:
                made.set(other, NOW_S + 3600)

    made: Expiry[str] = Expiry(disconnect, lambda: NOW_S)
    made.set("a", NOW_S - 1)
    made.set("b", NOW_S - 1)
    wait(lambda: out)
    made.close()
    assert len(out) == 1
