"""Rounds: one at a time, sooner in a hurry, and none after the end."""

from collections.abc import Callable

import gevent
import pytest

from headgate.runtime.periodic import Rounds


class Work:
    """Rounds with counted steps; the first raise these faults."""

    def __init__(self, *faults: Exception, gap_s: float = 0.0) -> None:
        self.faults, self.failed = list(faults), 0
        self.begun = self.done = 0
        self.held = gevent.event.Event()
        self.held.set()
        self.rounds = Rounds(self.step, self.fail, 1e6, gap_s)

    def step(self) -> float:
        assert self.begun == self.done + self.failed, "one at a time"
        self.begun += 1
        self.held.wait()
        if self.faults:
            raise self.faults.pop()
        self.done += 1
        return 1e6

    def fail(self) -> None:
        self.failed += 1

    def until(self, condition: Callable[[], bool], *, hurry: bool = False) -> None:
        with gevent.Timeout(30):
            while not condition():
                if hurry:
                    self.rounds.hurry()
                gevent.sleep(0.0001)


def test_they_begin_with_a_round_and_the_next_is_when_somebody_is_in_a_hurry() -> None:
    """Starting twice is starting once."""
    work = Work()
    work.rounds.start()
    work.rounds.start()
    work.until(lambda: work.done == 1)
    gevent.sleep(0.01)
    assert work.done == 1
    work.rounds.hurry()
    work.until(lambda: work.done == 2)
    assert work.rounds.close()


def test_a_fault_is_told_and_does_not_end_them() -> None:
    """The next hurry is a round as any other."""
    work = Work(ValueError("a fault"), RuntimeError("another"))
    work.rounds.start()
    work.until(lambda: work.failed == 2 and work.done == 1, hurry=True)
    assert work.rounds.close()


def test_a_hurry_in_the_middle_of_a_round_is_another_round() -> None:
    """Something may have changed after the round has looked at it."""
    work = Work()
    work.held.clear()
    work.rounds.start()
    work.until(lambda: work.begun == 1)
    work.rounds.hurry()
    work.held.set()
    work.until(lambda: work.done == 2)
    assert work.rounds.close()


def test_the_end_waits_for_the_round_under_way_and_is_behind_all_of_them() -> None:
    """However many are in a hurry."""
    work = Work()
    work.held.clear()
    work.rounds.start()
    work.until(lambda: work.begun == 1)
    ending = gevent.spawn(work.rounds.close)
    work.until(lambda: work.rounds.ended)
    assert not ending.ready()
    work.held.set()
    assert ending.get(timeout=30)
    work.rounds.hurry()
    gevent.sleep(0.001)
    assert (work.begun, work.done) == (1, 1)
    assert not work.rounds.close()


@pytest.mark.parametrize("started_late", [False, True])
def test_rounds_that_never_began_say_so_at_the_end(started_late: bool) -> None:
    """And none begins later."""
    work = Work()
    assert not work.rounds.close()
    if started_late:
        work.rounds.start()
        gevent.sleep(0.001)
    assert work.begun == 0


def test_between_two_rounds_is_a_gap_however_many_are_in_a_hurry() -> None:
    """Its length is that of the loop's clock, so the test compares with a round without one."""
    work = Work(gap_s=1e6)
    work.rounds.start()
    work.until(lambda: work.done == 1)
    for _ in range(100):
        work.rounds.hurry()
        gevent.sleep(0)
    assert work.begun == 1
