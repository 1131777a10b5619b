"""The timer wheel, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport import timers as deadlines
from headgate.transport.timers import Deadlines

TICK_S = 0.25


class Clock:
    """Stands for the monotonic clock and for the loop's repeating timer."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.callback: Callable[[], Any] | None = None
        self.next_tick_s = 0.0
        self.stopped = 0

    def repeat(self, interval_s: float, callback: Callable[[], Any]) -> Clock:
        assert interval_s == TICK_S
        self.callback = callback
        self.next_tick_s = self.now_s + interval_s
        return self

    def close(self) -> None:
        self.stopped += 1
        self.callback = None

    def advance(self, seconds: float) -> None:
        """Let time pass, with every tick at its time."""
        end_s = self.now_s + seconds
        while self.callback is not None and self.next_tick_s <= end_s:
            self.now_s = self.next_tick_s
            self.next_tick_s += TICK_S
            self.fire()
        self.now_s = end_s

    def stall(self, seconds: float) -> None:
        """Let time pass while the loop is busy: one tick at the end, and the loop's ready one after it."""
        self.late_tick(seconds)
        self.fire()

    def late_tick(self, seconds: float) -> None:
        """The same without the second."""
        self.now_s += seconds
        self.next_tick_s = self.now_s + TICK_S
        self.fire()

    def fire(self) -> None:
        if self.callback is not None:
            self.callback()


@contextmanager
def wheel() -> Iterator[tuple[Clock, Deadlines]]:
    """A wheel on a separate clock."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(deadlines, "monotonic", lambda: clock.now_s)
        patch.setattr(deadlines, "repeat", clock.repeat)
        yield clock, Deadlines(TICK_S)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40)), max_size=30))
def test_callbacks_come_no_earlier_than_asked_and_at_most_two_ticks_late(asked: list[tuple[int, int]]) -> None:
    """One tick for the slot, one for where the timer stands in it; each exactly once. Times in 64ths of a second."""
    with wheel() as (clock, timer):
        called: dict[int, float] = {}
        due: dict[int, float] = {}

        def call(index: int) -> None:
            assert index not in called
            called[index] = clock.now_s

        for index, (delay, pause) in enumerate(asked):
            clock.advance(pause / 64)
            due[index] = clock.now_s + delay / 64
            timer.after(delay / 64, call, index)
        clock.advance(10)

        assert called.keys() == due.keys()
        for index, asked_s in due.items():
            assert asked_s <= called[index] <= asked_s + 2 * TICK_S


@pytest.fixture
def clocked() -> Iterator[tuple[Clock, Deadlines]]:
    with wheel() as made:
        yield made


def test_nothing_is_skipped_in_a_stall(clocked: tuple[Clock, Deadlines]) -> None:
    """However long the loop was busy, everything due is called, in order of its time."""
    clock, timer = clocked
    called: list[int] = []
    for delay_s in (5, 1, 300, 40):
        timer.after(delay_s, called.append, delay_s)
    clock.stall(1000)

    assert called == [1, 5, 40, 300]


@pytest.mark.parametrize("stalls", [[20], [1, 20]], ids=["one", "right behind another"])
def test_bytes_that_came_in_during_a_stall_are_read_before_anybody_is_blamed(
    clocked: tuple[Clock, Deadlines], stalls: list[int]
) -> None:
    """The loop serves timers before sockets. The first tick after a stall calls none, the second everyone due."""
    clock, timer = clocked
    called: list[int] = []
    timer.after(5, called.append, 5)
    for seconds in stalls:
        clock.late_tick(seconds)
    assert called == []
    clock.fire()

    assert called == [5]


def test_a_loop_that_is_always_late_still_calls_back(clocked: tuple[Clock, Deadlines]) -> None:
    """One tick later, however long each turn takes."""
    clock, timer = clocked
    called: list[int] = []
    for delay_s in (1, 12, 23):
        timer.after(delay_s, called.append, delay_s)
    for _ in range(6):
        clock.late_tick(10)

    assert called == [1, 12, 23]


def test_a_callback_may_ask_again(clocked: tuple[Clock, Deadlines]) -> None:
    """Even for no delay at all, it comes with a later tick, and the wheel does not spin."""
    clock, timer = clocked
    called: list[float] = []

    def again() -> None:
        called.append(clock.now_s)
        timer.after(0, again)

    timer.after(0, again)
    clock.advance(2)

    assert 3 <= len(called) <= 8
    assert called == sorted(set(called))


def test_a_broken_callback_does_not_cost_the_others_theirs(clocked: tuple[Clock, Deadlines]) -> None:
    """It is logged; the wheel turns on."""
    clock, timer = clocked
    called: list[int] = []
    timer.after(1, lambda: 1 / 0)
    timer.after(1, called.append, 1)
    timer.after(2, called.append, 2)
    clock.advance(5)

    assert called == [1, 2]


def test_closing_forgets_everything_and_stops_the_timer(clocked: tuple[Clock, Deadlines]) -> None:
    """Twice is as good as once; a callback may do it."""
    clock, timer = clocked
    called: list[int] = []
    timer.after(1, timer.close)
    timer.after(1.3, called.append, 1)
    timer.after(50, called.append, 2)
    clock.stall(100)
    timer.close()

    assert called == []
    assert clock.stopped == 1


def test_an_unused_wheel_has_no_timer(clocked: tuple[Clock, Deadlines]) -> None:
    """It starts with the first deadline."""
    clock, timer = clocked
    assert clock.callback is None
    timer.after(1, print)
    assert clock.callback is not None
