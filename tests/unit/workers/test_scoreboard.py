"""The scoreboard of the workers: each worker writes its own row, and all of them read it."""

import os
import random

import pytest

from headgate.runtime.machine import IllegalStep
from headgate.workers.scoreboard import LEAVE_S, MACHINE, Scoreboard, State, turns


def scoreboard_of(living: set[int], rows: int = 4) -> Scoreboard:
    return Scoreboard(rows, is_alive=living.__contains__)


def test_a_worker_that_is_about_to_be_forked_is_booting_and_has_no_process() -> None:
    """Its row is taken before the fork, so that an older worker sees it."""
    scoreboard = scoreboard_of(set())
    row = scoreboard.take(7)
    assert (row.number, row.state, row.age, row.process_id, row.connections) == (1, State.BOOTING, 7, 0, 0)
    assert scoreboard.rows() == [row]


def test_a_child_writes_what_its_parent_reads() -> None:
    """The rows are shared memory."""
    scoreboard = Scoreboard(2)
    row = scoreboard.take(1)
    child = os.fork()
    if child == 0:
        scoreboard.begin(row.slot, os.getppid())
        scoreboard.move(row.slot, State.SERVING)
        scoreboard.count(row.slot, 1234)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert scoreboard.rows() == [(0, State.SERVING, 1, os.getpid(), 1234)]


def test_the_row_of_a_worker_that_is_gone_is_not_listed_and_is_taken_again() -> None:
    """So a killed worker's successor has its number."""
    living = {10, 11}
    scoreboard = scoreboard_of(living)
    for age, process_id in ((1, 10), (2, 11)):
        scoreboard.begin(scoreboard.take(age).slot, process_id)
    living.remove(10)
    assert [row.age for row in scoreboard.rows()] == [2]
    assert (scoreboard.take(3).number, scoreboard.take(4).number) == (1, 3)


def test_workers_that_die_while_they_boot_are_counted_until_one_serves() -> None:
    """Each successor waits longer before its own boot."""
    scoreboard = scoreboard_of(set())
    for age in range(1, 4):
        scoreboard.begin(scoreboard.take(age).slot, 10 + age)
        assert scoreboard.failed_boots == age - 1
    scoreboard.move(0, State.SERVING)
    scoreboard.take(4)
    assert scoreboard.failed_boots == 0


def test_more_workers_than_rows_are_refused() -> None:
    scoreboard = scoreboard_of({1}, rows=1)
    scoreboard.begin(scoreboard.take(1).slot, 1)
    with pytest.raises(RuntimeError, match="more than 1"):
        scoreboard.take(2)


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_worker_goes_only_where_the_table_says(before: State, after: State) -> None:
    scoreboard = scoreboard_of(set())
    path = {
        State.FREE: [State.BOOTING, State.FREE],
        State.BOOTING: [State.BOOTING],
        State.SERVING: [State.BOOTING, State.SERVING],
        State.DRAINING: [State.BOOTING, State.SERVING, State.DRAINING],
        State.ALONE: [State.BOOTING, State.SERVING, State.DRAINING, State.ALONE],
    }[before]
    for state in path:
        scoreboard.move(0, state)
    if (before, after) in MACHINE:
        scoreboard.move(0, after)
        assert scoreboard.row(0).state is after
    else:
        with pytest.raises(IllegalStep, match=f"worker: {before.name} allows no step {after.name}"):
            scoreboard.move(0, after)
        assert scoreboard.row(0).state is before


def test_only_workers_that_serve_have_a_share_of_the_port() -> None:
    """One that boots or drains takes no connections."""
    scoreboard = scoreboard_of(set())
    for age in range(1, 4):
        scoreboard.count(scoreboard.take(age).slot, 10 * age)
    scoreboard.move(0, State.SERVING)
    scoreboard.move(1, State.SERVING)
    scoreboard.move(1, State.DRAINING)
    assert scoreboard.connections() == [10]


def test_the_process_manager_stops_when_every_worker_leaves() -> None:
    """One that boots takes the clients of the others, so then it does not."""
    scoreboard = scoreboard_of(set())
    for age in (1, 2):
        scoreboard.move(scoreboard.take(age).slot, State.SERVING)
        scoreboard.move(age - 1, State.DRAINING)
    assert (scoreboard.none_serves(), scoreboard.someone_was_last()) == (True, False)
    scoreboard.move(1, State.ALONE)
    assert (scoreboard.none_serves(), scoreboard.someone_was_last()) == (True, True)
    scoreboard.take(3)
    assert not scoreboard.none_serves()


@pytest.mark.parametrize("index", [-1, 4, 1000])
def test_a_row_that_is_not_there_is_an_error(index: int) -> None:
    """An invented id must not wrap around."""
    with pytest.raises(IndexError):
        scoreboard_of(set()).row(index)


@pytest.mark.parametrize(
    ("own", "counts", "moments_s"),
    [
        *((own, [own], [0, 0]) for own in (0, 10, 10_000)),
        (5, [5, 0], [0, 0]),
        (10, [10, 100], [0, 0]),
        (100, [100, 0], [LEAVE_S, 0, LEAVE_S, 0]),
    ],
    ids=["alone and empty", "alone", "alone with many", "few", "below its share", "above its share"],
)
def test_only_a_worker_above_its_share_leaves_a_connection_for_one_moment(
    own: int, counts: list[int], moments_s: list[float]
) -> None:
    """Then it takes what nobody has taken: a blocked sibling costs a moment, and never the connection. A moment for each of few
    would cost more than it is worth."""
    leave_s = turns()
    assert [leave_s(own, counts) for _ in moments_s] == moments_s


def test_no_worker_gets_above_its_share_when_one_is_always_the_first_to_be_asked() -> None:
    """5,000 connections, four workers; the first worker is woken first each time, as an inherited listener may do."""
    random.seed(5)
    counts, leave_s = [0] * 4, [turns() for _ in range(4)]
    for _ in range(5000):
        order = [0, *random.sample([1, 2, 3], 3)]
        taker = next((each for each in order if not leave_s[each](counts[each], counts)), 0)
        counts[taker] += 1
    assert sum(counts) == 5000
    assert max(counts) <= 1.2 * 5000 / 4


def test_a_board_remembers_that_a_worker_has_served() -> None:
    """Also when it has ended, and another one boots in its row."""
    scoreboard = Scoreboard(rows=1)
    scoreboard.take(1)
    assert not scoreboard.has_served
    scoreboard.move(0, State.SERVING)
    scoreboard.move(0, State.FREE)
    scoreboard.take(2)
    assert scoreboard.has_served


def test_a_worker_that_was_forked_before_a_stop_sees_it() -> None:
    """It may have missed the signal. Whether any worker has served is another matter."""
    scoreboard = Scoreboard(rows=1)
    assert not scoreboard.is_stopping
    scoreboard.stop()
    assert (scoreboard.is_stopping, scoreboard.has_served) == (True, False)
