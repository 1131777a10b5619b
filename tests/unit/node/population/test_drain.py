"""The drain: clients are told, and end in turn. On a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.errors import BusUnavailable
from headgate.node.population.drain import Drain
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


def test_each_is_told_in_its_turn_and_ends_if_it_stays() -> None:
    """Evenly over the time that there is, so that they do not all come to the next gateway at once."""
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    for number in range(4):
        joined(namespace, f"s{number}", done)
    at_s: list[tuple[str, float]] = []

    def note() -> None:
        at_s.extend((entry[0], clock.now_s) for entry in done[len(at_s) :])

    clock.meanwhile = note
    Drain({"notifications": namespace.real()}, clock, clock.wait).run(9)
    note()

    told_s = [moment_s - 50 for what, moment_s in at_s if what == "notice"]
    ended_s = [moment_s - 50 for what, moment_s in at_s if what == "end"]
    assert told_s == pytest.approx([0, 2, 4, 6], abs=0.2)
    assert ended_s == pytest.approx([1, 3, 5, 7], abs=0.2)
    assert {entry[2] for entry in done if entry[0] == "end"} == {"restart"}


def test_without_time_all_are_told_and_end_at_once() -> None:
    """The clock stands still meanwhile."""
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    for number in range(3):
        joined(namespace, f"s{number}", done)
    Drain({"notifications": namespace.real()}, clock, clock.wait).run(0)
    assert [what for what, *_ in done] == ["notice"] * 3 + ["end"] * 3
    assert clock.now_s == 50.0


def test_nobody_waits_for_a_client_that_has_left() -> None:
    """The drain is over as soon as the last one has gone by itself."""
    done: list[tuple[Any, ...]] = []
    namespace = RecordedNamespace()
    clients = [joined(namespace, f"s{number}", done) for number in range(3)]

    def leave() -> None:
        for client in clients:
            client.connection.closed = True

    clock = Clock(meanwhile=leave)
    Drain({"notifications": namespace.real()}, clock, clock.wait).run(600)

    assert [what for what, *_ in done] == ["notice"]
    assert clock.now_s < 51


def test_more_clients_than_the_others_can_take_in_that_time_are_named_in_the_log() -> None:
    """With the setting that helps. They move all the same."""
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    for number in range(2001):
        joined(namespace, f"s{number}", done)
    with capture_logs() as lines:
        Drain({"notifications": namespace.real()}, clock, clock.wait).run(3)
    assert [(line["event"], line["per_s"]) for line in lines] == [("clients move too fast", 1000)]
    assert sum(what == "end" for what, *_ in done) == 2001


def test_a_gateway_without_clients_drains_at_once() -> None:
    """And lets nobody in any more."""
    clock = Clock()
    drain = Drain({"notifications": RecordedNamespace().real()}, clock, clock.wait)
    drain.run(600)
    assert (drain.begun, clock.now_s) == (True, 50.0)
