"""A periodic task: one step at a time, sooner on request, and none after its end."""

from collections.abc import Callable

import gevent
import pytest

from headgate.runtime.periodic import PeriodicTask


class Work:
    """A periodic task with counted steps; the first ones raise these faults."""

    def __init__(self, *faults: Exception, gap_s: float = 0.0) -> None:
        self.faults, self.failed = list(faults), 0
        self.begun = self.done = 0
        self.held = gevent.event.Event()
        self.held.set()
        self.task = PeriodicTask(self.step, self.fail, 1e6, gap_s)

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
                    self.task.hurry()
                gevent.sleep(0.0001)


def test_they_begin_with_a_round_and_the_next_is_when_somebody_is_in_a_hurry() -> None:
    work = Work()
    work.task.start()
    work.task.start()
    work.until(lambda: work.done == 1)
    gevent.sleep(0.01)
    assert work.done == 1
    work.task.hurry()
    work.until(lambda: work.done == 2)
    assert work.task.close()


def test_a_fault_is_told_and_does_not_end_them() -> None:
    """The next hurry is a round as any other."""
    work = Work(ValueError("a fault"), RuntimeError("another"))
    work.task.start()
    work.until(lambda: work.failed == 2 and work.done == 1, hurry=True)
    assert work.task.close()


def test_a_hurry_in_the_middle_of_a_round_is_another_round() -> None:
    """Something may have changed after the round has looked at it."""
    work = Work()
    work.held.clear()
    work.task.start()
    work.until(lambda: work.begun == 1)
    work.task.hurry()
    work.held.set()
    work.until(lambda: work.done == 2)
    assert work.task.close()


def test_the_end_waits_for_the_round_under_way_and_is_behind_all_of_them() -> None:
    work = Work()
    work.held.clear()
    work.task.start()
    work.until(lambda: work.begun == 1)
    ending = gevent.spawn(work.task.close)
    work.until(lambda: work.task.ended)
    assert not ending.ready()
    work.held.set()
    assert ending.get(timeout=30)
    work.task.hurry()
    gevent.sleep(0.001)
    assert (work.begun, work.done) == (1, 1)
    assert not work.task.close()


@pytest.mark.parametrize("started_late", [False, True])
def test_rounds_that_never_began_say_so_at_the_end(started_late: bool) -> None:
    work = Work()
    assert not work.task.close()
    if started_late:
        work.task.start()
        gevent.sleep(0.001)
    assert work.begun == 0


def test_between_two_rounds_is_a_gap_however_many_are_in_a_hurry() -> None:
    """Its length is that of the loop's clock, so the test compares with a round without one."""
    work = Work(gap_s=1e6)
    work.task.start()
    work.until(lambda: work.done == 1)
    for _ in range(100):
        work.task.hurry()
        gevent.sleep(0)
    assert work.begun == 1
