"""The drain: clients are notified, and end in turn. On a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headgate.errors import BusUnavailable
from headgate.node.population.drain import Drain
from tests.unit.node.connections import RecordedNamespace, joined


class Clock:
    """Time passes only while the drain waits; `meanwhile` runs then."""

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
    drain.begun = True
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
    """The clock stands still in that time."""
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
    """And admits no client any more."""
    clock = Clock()
    drain = Drain({"notifications": RecordedNamespace().real()}, clock, clock.wait)
    drain.run(600)
    assert (drain.begun, clock.now_s) == (True, 50.0)


def test_a_client_that_waits_for_an_answer_moves_after_it() -> None:
    """And the others in their turns."""
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    clients = [joined(namespace, f"s{number}", done) for number in range(3)]
    drain = Drain({"notifications": namespace.real()}, clock, clock.wait)
    drain.asking = lambda: {clients[1].connection} if clock.now_s < 57 else ()
    at_s: dict[str, float] = {}

    def note() -> None:
        for what, sid, *_ in done:
            if what == "notice":
                at_s.setdefault(sid, clock.now_s - 50)

    clock.meanwhile = note
    drain.run(10)
    assert at_s.pop("s1") == pytest.approx(7, abs=0.2)
    assert max(at_s.values()) < 6.2
    assert clock.now_s < 61


def test_a_client_that_asks_after_its_notice_gets_its_answer_before_its_end() -> None:
    """A stock client stays until it is ended."""
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    client = joined(namespace, "s", done)
    drain = Drain({"notifications": namespace.real()}, clock, clock.wait)
    drain.asking = lambda: {client.connection} if 50.5 < clock.now_s < 54 else ()
    drain.run(10)
    assert [what for what, *_ in done] == ["notice", "end"]
    assert clock.now_s == pytest.approx(54, abs=0.2)


def test_a_function_whose_page_has_left_is_waited_for() -> None:
    """Its request may be an order."""
    clock = Clock()
    drain = Drain({}, clock, clock.wait)
    drain.asking = lambda: {None} if clock.now_s < 53 else ()
    drain.run(10)
    assert clock.now_s == pytest.approx(53, abs=0.2)


@pytest.mark.parametrize(("answered_s", "ended_s"), [(53, 53), (90, 60)])
def test_clients_that_no_other_gateway_serves_move_together_after_the_last_answer(answered_s: float, ended_s: float) -> None:
    """Or at the end of the time."""
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    client, _ = joined(namespace, "s0", done), joined(namespace, "s1", done)
    drain = Drain({"notifications": namespace.real()}, clock, clock.wait)
    drain.asking = lambda: {client.connection} if clock.now_s < answered_s else ()
    clock.meanwhile = lambda: None if clock.now_s < ended_s - 0.1 else done.clear()
    drain.run(10, alone=True)
    assert [what for what, *_ in done] == ["notice", "notice", "end", "end"]
    assert clock.now_s == pytest.approx(ended_s, abs=0.2)


@given(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 20)), max_size=12),
    st.integers(0, 150),
    st.booleans(),
    st.sets(st.integers(0, 11)),
)
def test_whoever_asks_has_the_answer_before_its_turn_or_the_time_is_over(
    asked: list[tuple[float, float]], within_ds: int, alone: bool, gone: set[int]
) -> None:
    """Whenever it asks, and however long that takes; and every client has moved once, in time."""
    within_s = within_ds / 10
    done: list[tuple[Any, ...]] = []
    namespace, clock = RecordedNamespace(), Clock()
    clients = [joined(namespace, f"s{number}", done) for number in range(len(asked))]
    drain = Drain({"notifications": namespace.real()}, clock, clock.wait)
    waits = [
        (client.connection, 50 + begin_s, 50 + begin_s + lasts_s)
        for client, (begin_s, lasts_s) in zip(clients, asked, strict=True)
    ]
    drain.asking = lambda: {each for each, begin_s, end_s in waits if begin_s <= clock.now_s < end_s and not each.closed}
    early: list[str] = []

    def meanwhile() -> None:
        for number in gone & set(range(len(clients))):
            clients[number].connection.closed = True

    clock.meanwhile = meanwhile
    noted = done.append

    class Noting(list[Any]):
        def append(self, entry: Any) -> None:
            asks = {each.sid for each, begin_s, end_s in waits if begin_s <= clock.now_s < end_s and not each.closed}
            spread_s = within_s - min(1.0, within_s / 2)
            if entry[1] in asks and clock.now_s - 50 < (within_s if alone else spread_s):
                early.append(entry[1])
            noted(entry)

    for client in clients:
        client.connection.done = Noting()
    drain.run(within_s, alone=alone)
    assert not early
    assert clock.now_s - 50 <= within_s + 0.2
    moved = [sid for what, sid, *_ in done if what == "notice"]
    assert len(moved) == len(set(moved))
    assert set(moved) >= {f"s{number}" for number in range(len(clients)) if number not in gone}
    assert all(client.connection.closed for client in clients)
