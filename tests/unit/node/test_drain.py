"""The drain: clients are told, and end in turn. On a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate.node.drain import Drain
from tests.unit.node.connections import RecordedNamespace, joined


class Clock:
    """Time passes only while the drain waits; `meanwhile` is what happens then."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.now_s = 50.0
        self.meanwhile = meanwhile

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()


def test_a_newcomer_is_refused_from_the_beginning_of_the_drain() -> None:
    """With an error that says to try again, at another gateway."""
    drain = Drain({})
    drain.check()
    drain.begin()
    with pytest.raises(BusUnavailable, match="about to stop"):
        drain.check()


def test_all_are_told_first_and_those_who_stay_end_in_turn() -> None:
    """Evenly over the time that there is, so that they do not all come to the next gateway at once."""
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    clients = [joined(namespace, f"s{number}", done) for number in range(4)]
    ended_at_s: list[float] = []

    def note() -> None:
        for client in clients:
            if client.connection.closed and client.session in namespace.clients:
                del namespace.clients[client.session]
                ended_at_s.append(clock.now_s)

    clock.meanwhile = note
    Drain({"notifications": namespace.real()}, clock, clock.wait).run(8)

    assert [what for what, *_ in done] == ["notice"] * 4 + ["end"] * 4
    assert {entry[2] for entry in done if entry[0] == "end"} == {"restart"}
    assert clock.now_s == pytest.approx(58)


def test_nobody_waits_for_a_client_that_has_left() -> None:
    """The drain is over as soon as the last one has gone by itself."""
    done: list[tuple[Any, ...]] = []
    namespace = RecordedNamespace()
    clock = Clock(meanwhile=namespace.clients.clear)
    for number in range(3):
        joined(namespace, f"s{number}", done)

    Drain({"notifications": namespace.real()}, clock, clock.wait).run(600)

    assert [what for what, *_ in done] == ["notice"] * 3
    assert clock.now_s < 51


def test_a_gateway_without_clients_drains_at_once() -> None:
    """And lets nobody in any more."""
    clock = Clock()
    drain = Drain({"notifications": RecordedNamespace().real()}, clock, clock.wait)
    drain.run(600)
    assert (drain.begun, clock.now_s) == (True, 50.0)
