"""Bursts of the demo: bounded, one at a time, paced by plan, and counted by receipts."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from headgate.errors import BusUnavailable, InvalidRequest, LimitReached
from headgate_server.demo.bursts import (
    MAX_BURST_EVENTS,
    MAX_EVENTS_PER_WINDOW,
    MAX_RECORDS,
    WINDOW_S,
    Burst,
    BurstNotFound,
    Bursts,
)

DEADLINE_S = 30.0


class Scanner:
    """Records what is scanned, on a clock that only sleeping and `advance` move; refuses from the `fails_at`-th on."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.now_s = 1000.0
        self.fails_at = fails_at
        self.scans: list[tuple[float, int, str, Mapping[str, object]]] = []
        self.ended = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.bursts = Bursts(self.scan, now_s=lambda: self.now_s, sleep=self.advance)

    def scan(self, turn: int, by: str, stamp: Mapping[str, object]) -> None:
        assert self.may_go_on.wait(DEADLINE_S)
        if self.fails_at is not None and turn >= self.fails_at:
            self.ended.set()
            raise BusUnavailable("gone")
        self.scans.append((self.now_s, turn, by, stamp))
        if stamp["number"] == stamp["of"]:
            self.ended.set()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def wait_until_done(self, burst_id: str) -> Burst:
        """Return the record of a burst that runs in a thread, when it is over."""
        assert self.ended.wait(DEADLINE_S)
        for thread in threading.enumerate():
            if thread.name == "demo burst":
                thread.join(DEADLINE_S)
        return self.bursts.record(burst_id)


def test_a_burst_stamps_each_event_with_its_number() -> None:
    """A reader can tell whether one is missing, and which."""
    scanner = Scanner()
    burst = scanner.bursts.start({"events": 3, "id": "abc"}, "ana")
    assert [stamp for *_, stamp in scanner.scans] == [{"id": "abc", "number": n, "of": 3} for n in (1, 2, 3)]
    assert {by for _, _, by, _ in scanner.scans} == {"ana"}
    assert (burst.published, burst.done) == (3, True)


def test_fifty_when_nothing_is_asked() -> None:
    """And an id of its own."""
    scanner = Scanner()
    burst = scanner.bursts.start({}, "ana")
    assert burst.published == len(scanner.scans) == 50
    assert scanner.bursts.record(burst.id).published == 50


def test_a_paced_burst_keeps_to_its_plan() -> None:
    """The n-th event n-th of the way through; the last a step before the end."""
    scanner = Scanner()
    scanner.bursts.start({"events": 4, "over_s": 2, "id": "slow"}, "ana")
    assert scanner.wait_until_done("slow").published == 4
    assert [at_s - 1000.0 for at_s, *_ in scanner.scans] == [0.0, 0.5, 1.0, 1.5]


def test_a_second_burst_waits_for_the_first() -> None:
    """It is refused with the limit's name while one runs, and let in afterwards."""
    scanner = Scanner()
    scanner.may_go_on.clear()
    scanner.bursts.start({"events": 2, "over_s": 1, "id": "first"}, "ana")
    with pytest.raises(LimitReached, match="bursts at a time") as refused:
        scanner.bursts.start({}, "ben")
    assert refused.value.retry
    scanner.may_go_on.set()
    assert scanner.wait_until_done("first").done
    assert scanner.bursts.start({}, "ben").done


def test_events_are_limited_over_time() -> None:
    """So many in a window; when it has passed, as many again."""
    scanner = Scanner()
    for _ in range(MAX_EVENTS_PER_WINDOW // MAX_BURST_EVENTS):
        scanner.bursts.start({"events": MAX_BURST_EVENTS}, "ana")
    with pytest.raises(LimitReached) as refused:
        scanner.bursts.start({"events": 1}, "ana")
    assert (refused.value.retry, refused.value.retry_after_s) == (True, WINDOW_S)
    scanner.advance(WINDOW_S)
    assert scanner.bursts.start({"events": MAX_BURST_EVENTS}, "ana").done


def test_a_burst_at_once_that_the_bus_cuts_short_raises() -> None:
    """The record tells how many receipts there were, and why it ended."""
    scanner = Scanner(fails_at=7)
    with pytest.raises(BusUnavailable):
        scanner.bursts.start({"id": "cut"}, "ana")
    record = scanner.bursts.record("cut")
    assert (record.published, record.events, record.done) == (7, 50, True)
    assert "gone" in record.error


def test_a_paced_burst_that_the_bus_cuts_short_is_told_in_its_record() -> None:
    """Nobody waits for its answer; whoever asks is told, and the next burst may run."""
    scanner = Scanner(fails_at=2)
    scanner.bursts.start({"events": 4, "over_s": 1, "id": "cut"}, "ana")
    record = scanner.wait_until_done("cut")
    assert (record.published, record.done) == (2, True)
    assert "gone" in record.error


def test_records_are_bounded() -> None:
    """The oldest goes, and asking for it says so."""
    scanner = Scanner()
    for number in range(MAX_RECORDS + 1):
        scanner.bursts.start({"events": 1, "id": f"b{number}"}, "ana")
    assert scanner.bursts.record("b1").done
    with pytest.raises(BurstNotFound):
        scanner.bursts.record("b0")


@pytest.mark.parametrize(
    "asked",
    [
        {"events": 0}, {"events": 501}, {"events": True}, {"events": "50"}, {"events": 1.5}, {"over_s": -1}, {"over_s": 10.5},
        {"over_s": "1"}, {"over_s": float("nan")}, {"over_s": None}, {"id": ""}, {"id": "a b"}, {"id": "x" * 41}, {"id": 7},
        {"speed": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_request_is_refused(asked: dict[str, object]) -> None:
    """Out of range, of the wrong type or unknown: refused, and nothing is scanned."""
    scanner = Scanner()
    with pytest.raises(InvalidRequest):
        scanner.bursts.start(asked, "ana")
    assert scanner.scans == []


def test_an_id_is_used_once() -> None:
    """Two bursts under one id could not be told apart."""
    scanner = Scanner()
    scanner.bursts.start({"events": 1, "id": "same"}, "ana")
    with pytest.raises(InvalidRequest, match="already"):
        scanner.bursts.start({"events": 1, "id": "same"}, "ana")
