"""The tallies of single events: which have one, what they count, and that they are bounded."""

from __future__ import annotations

from itertools import chain

import pytest

from headgate.delivery.tally import MAX_TALLIES, NAMES, Tallies, Tally, values
from headgate.protocol.frames import Frame


def changed(tallies: Tallies) -> list[Tally]:
    return list(chain.from_iterable(tallies.changed()))


def frames(first: int, last: int) -> list[Frame]:
    return [Frame(b"42", topic="a", offset=offset) for offset in range(first, last + 1)]


def test_all_gateways_count_the_same_events() -> None:
    """Those whose offset is a multiple of a number; with 0 none."""
    assert [offset for offset in range(1, 31) if Tallies(10).of(offset)] == [10, 20, 30]
    assert not any(Tallies(0).of(offset) for offset in range(1, 31))


@pytest.mark.parametrize(
    ("first", "last", "counted"), [(1, 9, []), (1, 10, [10]), (10, 10, [10]), (11, 19, []), (5, 25, [10, 20]), (20, 21, [20])]
)
def test_frames_that_were_read_from_the_log_are_counted(first: int, last: int, counted: list[int]) -> None:
    """Only those that have a tally are looked at."""
    tallies = Tallies(10)
    tallies.read(frames(first, last))
    assert [(tally.offset, tally.from_log) for tally in changed(tallies)] == [(offset, 1) for offset in counted]


def test_what_went_straight_to_a_socket_is_the_rest() -> None:
    """It is counted nowhere."""
    [tally] = [found for found in [Tallies(1).of(7)] if found]
    tally.matched, tally.queued, tally.left_to_log, tally.gone = 10, 2, 3, 1
    assert tally.written == 4
    assert dict(zip(NAMES, values(tally), strict=True))["written"] == 4


def test_a_tally_is_told_when_it_has_changed() -> None:
    """Once for each change, and also one that was told before."""
    tallies = Tallies(1)
    first = tallies.of(1)
    assert first is not None
    assert tallies.of(1) is first
    assert [tally.offset for tally in changed(tallies)] == [1]
    assert changed(tallies) == []
    tallies.of(2)
    first.from_log += 1
    assert [tally.offset for tally in changed(tallies)] == [1, 2]


def test_the_newest_are_kept() -> None:
    """However many come between two looks."""
    tallies = Tallies(1)
    for offset in range(1, MAX_TALLIES + 11):
        tallies.of(offset)
    told = changed(tallies)
    assert [tally.offset for tally in told] == list(range(11, MAX_TALLIES + 11))
    assert changed(tallies) == []
    tallies.not_told(told[:2])
    assert changed(tallies) == told[:2]


def test_each_epoch_has_its_own_tally_of_an_offset() -> None:
    """The one before keeps what was not told yet, and what still becomes of its event."""
    epoch = "e1"
    tallies = Tallies(1, lambda: epoch)
    before = tallies.of(7)
    assert before is not None
    before.matched = before.queued = 1
    epoch = "e2"
    after = tallies.of(7)
    assert after is not before
    assert [(tally.epoch, tally.offset) for tally in changed(tallies)] == [("e1", 7), ("e2", 7)]
    before.queued, before.gone = 0, 1
    assert changed(tallies) == [before]
