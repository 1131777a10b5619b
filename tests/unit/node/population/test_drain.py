"""The drain: clients are notified, and end in turn. On a clock of the test's own."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headgate.errors import BusUnavailable
from headgate.node.population.drain import Drain
from tests.unit.node.connections import RecordedNamespace, joined


class Site:
    """A drain of clients on a clock. Time passes only while it waits; `meanwhile` runs then. `now_s` counts from its beginning.

    Attributes:
        done: the notices and ends, in order.
    """

    def __init__(self, count: int = 0) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.now_s = 0.0
        self.meanwhile: Callable[[], object] = lambda: None
        namespace = RecordedNamespace()
        self.clients = [joined(namespace, f"s{number}", self.done) for number in range(count)]
        self.drain = Drain({"notifications": namespace.real()}, lambda: 50 + self.now_s, self._wait)

    def _wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()

    def times(self, what: str, within_s: float) -> dict[str, float]:
        """Run the drain; return when each client was given a notice, or was ended."""
        at_s: dict[str, float] = {}

        def note() -> None:
            for step, sid, *_ in self.done:
                if step == what:
                    at_s.setdefault(sid, self.now_s)

        self.meanwhile = note
        self.drain.run(within_s)
        note()
        return at_s

    @property
    def steps(self) -> list[str]:
        """The kinds of `done`."""
        return [what for what, *_ in self.done]


def test_a_newcomer_is_refused_from_the_beginning_of_the_drain() -> None:
    """With an error that says to try again, at another gateway."""
    drain = Site().drain
    drain.check()
    drain.begun = True
    with pytest.raises(BusUnavailable, match="about to stop"):
        drain.check()


@pytest.mark.parametrize(("what", "expected_s"), [("notice", [0, 2, 4, 6]), ("end", [1, 3, 5, 7])])
def test_each_is_told_in_its_turn_and_ends_if_it_stays(what: str, expected_s: list[float]) -> None:
    """Evenly over the time that there is, so that they do not all come to the next gateway at once."""
    site = Site(4)
    assert sorted(site.times(what, 9).values()) == pytest.approx(expected_s, abs=0.2)
    assert {entry[2] for entry in site.done if entry[0] == "end"} == {"restart"}


def test_without_time_all_are_told_and_end_at_once() -> None:
    """The clock stands still in that time."""
    site = Site(3)
    site.drain.run(0)
    assert (site.steps, site.now_s) == (["notice"] * 3 + ["end"] * 3, 0)


def test_nobody_waits_for_a_client_that_has_left() -> None:
    """The drain is over as soon as the last one has gone by itself."""
    site = Site(3)

    def leave() -> None:
        for client in site.clients:
            client.connection.closed = True

    site.meanwhile = leave
    site.drain.run(600)
    assert site.steps == ["notice"]
    assert site.now_s < 1


def test_more_clients_than_the_others_can_take_in_that_time_are_named_in_the_log() -> None:
    """With the setting that helps. They move all the same."""
    site = Site(2001)
    with capture_logs() as lines:
        site.drain.run(3)
    assert [(line["event"], line["per_s"]) for line in lines] == [("clients move too fast", 1000)]
    assert site.steps.count("end") == 2001


def test_a_gateway_without_clients_drains_at_once() -> None:
    """And admits no client any more."""
    site = Site()
    site.drain.run(600)
    assert (site.drain.begun, site.now_s) == (True, 0)


def test_a_client_that_waits_for_an_answer_moves_after_it() -> None:
    """And the others in their turns."""
    site = Site(3)
    site.drain.asking = lambda: {site.clients[1].connection} if site.now_s < 7 else ()
    at_s = site.times("notice", 10)
    assert at_s.pop("s1") == pytest.approx(7, abs=0.2)
    assert max(at_s.values()) < 6.2
    assert site.now_s < 11


def test_a_client_that_asks_after_its_notice_gets_its_answer_before_its_end() -> None:
    """A stock client stays until it is ended."""
    site = Site(1)
    site.drain.asking = lambda: {site.clients[0].connection} if 0.5 < site.now_s < 4 else ()
    assert site.times("end", 10) == {"s0": pytest.approx(4, abs=0.2)}


def test_a_function_whose_page_has_left_is_waited_for() -> None:
    """Its request may be an order."""
    site = Site()
    site.drain.asking = lambda: {None} if site.now_s < 3 else ()
    site.drain.run(10)
    assert site.now_s == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize(("answered_s", "ended_s"), [(3, 3), (40, 10)])
def test_clients_that_no_other_gateway_serves_move_together_after_the_last_answer(answered_s: float, ended_s: float) -> None:
    """Or at the end of the time."""
    site = Site(2)
    site.drain.asking = lambda: {site.clients[0].connection} if site.now_s < answered_s else ()
    site.meanwhile = lambda: None if site.now_s < ended_s - 0.1 else site.done.clear()
    site.drain.run(10, alone=True)
    assert site.steps == ["notice", "notice", "end", "end"]
    assert site.now_s == pytest.approx(ended_s, abs=0.2)


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
    within_s, site = within_ds / 10, Site(len(asked))
    waits = [
        (client.connection, begin_s, begin_s + lasts_s) for client, (begin_s, lasts_s) in zip(site.clients, asked, strict=True)
    ]
    early: list[str] = []

    def asking() -> set[Any]:
        return {each for each, begin_s, end_s in waits if begin_s <= site.now_s < end_s and not each.closed}

    def leave() -> None:
        for number in gone & set(range(len(asked))):
            site.clients[number].connection.closed = True

    class Noting(list[Any]):
        def append(self, entry: Any) -> None:
            spread_s = within_s - min(1.0, within_s / 2)
            if entry[1] in {each.sid for each in asking()} and site.now_s < (within_s if alone else spread_s):
                early.append(entry[1])
            site.done.append(entry)

    for client in site.clients:
        client.connection.done = Noting()
    site.drain.asking, site.meanwhile = asking, leave
    site.drain.run(within_s, alone=alone)
    assert not early
    assert site.now_s <= within_s + 0.2
    moved = [sid for what, sid, *_ in site.done if what == "notice"]
    assert len(moved) == len(set(moved))
    assert set(moved) >= {f"s{number}" for number in range(len(asked)) if number not in gone}
    assert all(client.connection.closed for client in site.clients)
