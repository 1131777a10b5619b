"""Timers without a greenlet, and long work that leaves others their turns."""

from __future__ import annotations

import gc
import time
from contextlib import suppress

import gevent

from headgate.runtime.loop import Share, Signal, in_hub_after, sleep


def test_a_call_after_a_while_comes_once_and_in_the_hub_though_nobody_holds_its_timer() -> None:
    """A greenlet that waits for it need not remember it."""
    callers: list[object] = []
    called = Signal()

    def note() -> None:
        callers.append(gevent.getcurrent())
        called.set()

    in_hub_after(0.001, note)
    gc.collect()
    assert callers == []
    assert called.wait(30)
    assert callers == [gevent.get_hub()]


def work(share: Share, name: str, steps: int, done: list[str]) -> None:
    """Do some steps of long work."""
    with share:
        for _ in range(steps):
            done.append(name)
            share.pause()


def test_work_of_one_kind_goes_one_slice_at_a_time_and_everybody_has_a_turn_between_two() -> None:
    """With slices of no length, each step is one: however many work, another greenlet has its turn after each step."""
    share = Share(0)
    done: list[str] = []

    def witness() -> None:
        while not all(worker.dead for worker in workers):
            done.append("witness")
            sleep()

    workers = [gevent.spawn(work, share, name, 5, done) for name in "abc"]
    gevent.joinall([*workers, gevent.spawn(witness)], raise_error=True)
    steps = "".join(step[0] for step in done)
    assert sorted(steps.replace("w", "")) == sorted("abc" * 5)
    assert all(len(between) <= 1 for between in steps.strip("w").split("w"))


def test_short_work_of_many_counts_together() -> None:
    """Each takes less than a slice; together they take more."""
    share, turns = Share(0.002), 0

    def witness() -> None:
        nonlocal turns
        while not done:
            turns += 1
            sleep()

    def spend() -> None:
        with share:
            until_s = time.monotonic() + 0.0005
            while time.monotonic() < until_s:
                pass

    done = False
    other = gevent.spawn(witness)
    gevent.sleep()
    before = turns
    for _ in range(40):
        spend()
    assert turns > before
    done = True
    other.join()


def test_a_greenlet_that_waits_outside_keeps_nobody_out() -> None:
    """And is in again behind the wait, also when that fails."""
    share = Share(60.0)
    done: list[str] = []
    with share:
        with suppress(TimeoutError), share.outside():
            gevent.spawn(work, share, "other", 1, done).join()
            raise TimeoutError
        another = gevent.spawn(work, share, "another", 1, done)
        gevent.sleep()
        assert done == ["other"]
    another.join()
    assert done == ["other", "another"]
