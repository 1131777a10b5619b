"""The tallies of single events: which have one, their counts, and that they are bounded."""

from collections import defaultdict
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.tally import MAX_TALLIES, QUIET_EVENTS, Tallies, Tally
from headgate.events.wire.frames import Frame


def changed(tallies: Tallies) -> list[Tally]:
    return list(chain.from_iterable(tallies.changed()))


def frames(first: int, last: int) -> list[Frame]:
    return [Frame(b"42", topic="a", offset=offset) for offset in range(first, last + 1)]


def busy(every: int) -> Tallies:
    """Those of a gateway with more events than it counts each of."""
    tallies = Tallies(every)
    tallies.left_out(QUIET_EVENTS + 1, 0)
    return tallies


def test_all_busy_gateways_count_the_same_events() -> None:
    """Those at multiples of a number; with 0 none."""
    assert [offset for offset in range(1, 31) if busy(10).of(offset)] == [10, 20, 30]
    assert not any(Tallies(0).of(offset) for offset in range(1, 31))


@pytest.mark.parametrize(
    ("first", "last", "counted"), [(1, 9, []), (1, 10, [10]), (10, 10, [10]), (11, 19, []), (5, 25, [10, 20]), (20, 21, [20])]
)
def test_frames_that_were_read_from_the_log_are_counted(first: int, last: int, counted: list[int]) -> None:
    """Only those with a tally are examined."""
    tallies = busy(10)
    tallies.left_out(1, last)
    tallies.read(frames(first, last))
    assert [(tally.offset, tally.from_log) for tally in changed(tallies)] == [(offset, 1) for offset in counted]


def test_a_tally_is_told_when_it_has_changed() -> None:
    """Once for each change, and also one that was reported before."""
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
    tallies.not_written(told[:2])
    assert changed(tallies) == told[:2]


def quiet(tallies: Tallies) -> None:
    """End a round, and one without an event."""
    changed(tallies)
    changed(tallies)


def test_each_event_of_a_quiet_gateway_has_a_tally() -> None:
    """Up to QUIET_EVENTS in a round; from the next on, those that all gateways count, until a round is quiet."""
    tallies = Tallies(100)
    counted = [offset for offset in range(1, 501) if tallies.of(offset)]
    assert counted == [*range(1, QUIET_EVENTS + 1), 200, 300, 400, 500]
    changed(tallies)
    assert [offset for offset in range(501, 701) if tallies.of(offset)] == [600, 700]
    changed(tallies)
    assert tallies.of(701) is None, "the round before was not quiet"
    changed(tallies)
    assert tallies.of(702)


@given(st.lists(st.one_of(st.integers(1, 300), st.tuples(st.integers(1, 4000), st.integers(1, 300)), st.none()), max_size=30))
def test_a_tally_counts_all_that_became_of_its_event(steps: list[int | tuple[int, int] | None]) -> None:
    """In any order of events, reads and rounds: it has all clients and readers of its event, or is not there."""
    tallies, newest = Tallies(10), 0
    came: dict[int, int] = defaultdict(int)
    read: dict[int, int] = defaultdict(int)
    for step in steps:
        if step is None:
            changed(tallies)
        elif isinstance(step, int):
            for offset in range(newest + 1, newest + step + 1):
                came[offset] += 1
                if tally := tallies.of(offset):
                    tally.matched += 1
            newest += step
        else:
            first, last = step[0], min(step[0] + step[1], newest)
            tallies.read(frames(first, last))
            for offset in range(first, last + 1):
                read[offset] += 1
    tallies.read(frames(1, newest))
    for tally in [each for kept in tallies._by_epoch.values() for each in kept.values()]:
        assert (tally.matched, tally.from_log) == (came[tally.offset], read[tally.offset] + 1)
