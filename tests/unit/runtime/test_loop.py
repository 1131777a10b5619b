"""Timers without a greenlet, and long work that leaves others their turns."""

import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import gevent
import gevent.os
import pytest

from headgate.runtime.loop import (
    READ,
    Arrivals,
    DeferredWrites,
    Idle,
    Share,
    Signal,
    Turns,
    in_hub,
    in_hub_after,
    io_watcher,
    one_round,
    sleep,
    spawn,
)
from tests.support.session_clock import until


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


@pytest.mark.parametrize(("slice_s", "had_a_turn"), [(60.0, False), (0.0, True)])
def test_a_pause_says_whether_others_have_had_a_turn(slice_s: float, had_a_turn: bool) -> None:
    """An earlier look holds until they have."""
    turns: list[str] = []
    share = Share(slice_s)
    with share:
        gevent.spawn(turns.append, "other")
        assert share.pause() is had_a_turn
        assert bool(turns) is had_a_turn


def test_a_greenlet_that_waits_outside_keeps_nobody_out() -> None:
    """And is in again after the wait, also when that fails."""
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


def rest(rests: list[Idle]) -> None:
    rests.append(Idle())
    rests[0].wait()


@pytest.mark.parametrize("wait", [rest, lambda rests: one_round()], ids=["rest", "round"])
def test_a_greenlet_that_is_thrown_out_of_a_wait_is_not_woken_from_its_next_one(wait: Callable[[list[Idle]], None]) -> None:
    """It was to be woken in the next turn, and has gone on to wait for something else."""
    rests: list[Idle] = []
    went_on: list[bool] = []
    other = Signal()

    def work() -> None:
        with suppress(TimeoutError):
            wait(rests)
        went_on.append(other.wait(30))

    greenlet = gevent.spawn(work)
    sleep()
    gevent.get_hub().loop.run_callback(greenlet.throw, TimeoutError())
    for each in rests:
        each.wake()
    for _ in range(3):
        one_round()
    assert went_on == []
    other.set()
    greenlet.join(30)
    assert went_on == [True]


def test_closing_wakes_whoever_waits_for_bytes() -> None:
    """Once, and no later waiter for something else. Without a limit on the time it would wait for ever."""
    ours, theirs = socket.socketpair()
    other, went_on = Signal(), list[bool]()
    arrivals = Arrivals(ours.fileno())

    def work() -> None:
        went_on.append(arrivals.wait())
        went_on.append(other.wait(30))

    greenlet = spawn(work)
    sleep()
    arrivals.close()
    arrivals.close()
    for _ in range(3):
        sleep()
    assert went_on == [False]
    other.set()
    greenlet.join(30)
    assert went_on == [False, True]
    ours.close()
    theirs.close()


def test_bytes_are_waited_for_again_and_again() -> None:
    """Also those that came without a waiter; the end of the stream counts, and elapsed time is reported."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    arrivals = Arrivals(ours.fileno())
    try:
        assert not arrivals.wait(0.001)
        for sent in (b"first", b"again"):
            spawn(theirs.sendall, sent)
            assert arrivals.wait(3600)
            assert ours.recv(100) == sent
        theirs.sendall(b"early")
        for _ in range(3):
            sleep(0.001)
        assert arrivals.wait()
        assert ours.recv(100) == b"early"
        theirs.close()
        assert arrivals.wait()
    finally:
        arrivals.close()
        arrivals.close()
        ours.close()


def test_a_callback_gets_bytes_or_the_end_of_its_time_once() -> None:
    """In the hub, where it may begin the next wait."""
    ours, theirs = socket.socketpair()
    arrivals, called = Arrivals(ours.fileno()), list[tuple[bool, bool]]()

    def take(are_there: bool) -> None:
        called.append((are_there, in_hub()))
        if are_there:
            ours.recv(1)
            arrivals.begin(take, 0.01)

    try:
        theirs.sendall(b"ab")
        arrivals.begin(take)
        until(lambda: len(called) == 3)
        theirs.sendall(b"c")
        one_round()
        assert called == [(True, True), (True, True), (False, True)]
    finally:
        arrivals.close()
        ours.close()
        theirs.close()


@pytest.fixture
def caller() -> Iterator[tuple[socket.socket, list[bytes]]]:
    """A socket to write to, and the bytes that the loop has read at its other end."""
    ours, theirs = socket.socketpair()
    read: list[bytes] = []
    watcher = io_watcher(ours.fileno(), READ)
    watcher.start(lambda: read.append(ours.recv(1)))
    yield theirs, read
    watcher.stop()
    watcher.close()
    ours.close()
    theirs.close()


def test_sockets_are_read_in_a_round_before_work_goes_on(caller: tuple[socket.socket, list[bytes]]) -> None:
    """Each time; a sleep of no time would go on with the work again and again."""
    theirs, read = caller
    for number in range(1, 4):
        theirs.send(b"x")
        one_round()
        assert len(read) == number


def test_work_goes_on_for_as_long_as_others_have_had_the_loop(
    caller: tuple[socket.socket, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd of others has half of the time; ready greenlets go on all the same."""
    theirs, read = caller
    times_s = iter([0.0, 10.0, 15.0, 20.0, 20.5, 20.75])
    monkeypatch.setattr("headgate.runtime.loop.thread_time", lambda: next(times_s))
    turns, others = Turns(), list[str]()
    turns.give()  # took ten seconds
    theirs.send(b"x")
    gevent.spawn(others.append, "ready")
    turns.give()  # after five of work
    assert (others, read) == (["ready"], [])
    turns.give()  # after ten
    assert read == [b"x"]
    assert next(times_s) == 20.75, "a round was a round, and no more"


def test_what_is_done_together_comes_in_the_hub_in_order_and_behind_the_greenlets_that_are_ready() -> None:
    """Later ones come in another turn, and a failing one does not cost the others theirs."""
    done: list[object] = []
    together = DeferredWrites(lambda: done.append("failed"))

    def fail() -> None:
        raise RuntimeError

    def first() -> None:
        done.append(("first", gevent.getcurrent() is gevent.get_hub()))
        together.add(lambda: done.append("added"))

    def greenlet(name: str) -> None:
        done.append(name)
        together.add(lambda: done.append(f"written by {name}"))

    one = spawn(greenlet, "one")
    together.add(first)
    together.add(fail)
    two = spawn(greenlet, "two")
    one.join()
    two.join()
    sleep()

    assert done == ["one", ("first", True), "failed", "written by one", "two", "added", "written by two"]


def test_a_forked_child_runs_nothing_of_its_parent_and_its_own_greenlets() -> None:
    """gevent keeps all greenlets in a child. Neither one that is ready nor one that waits for a socket or a time runs there."""
    ran: list[str] = []
    here, there = socket.socketpair()

    def wait_for_time() -> None:
        sleep(0.01)
        ran.append("time")

    reading = io_watcher(here.fileno(), READ)
    reading.start(ran.append, "socket")
    waiting = spawn(wait_for_time)
    sleep()
    ready = spawn(ran.append, "ready")
    there.send(b"x")
    child = gevent.os.fork()
    if child == 0:
        sleep(0.05)
        spawn(ran.append, "own").join()
        os._exit(0 if ran == ["own"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    waiting.join()
    ready.join()
    reading.close()
    assert set(ran) == {"ready", "socket", "time"}
    here.close()
    there.close()


FORK_UNDER_LIBUV = """
import os, gevent.os
from headgate.runtime.loop import sleep, spawn
ran = []
spawn(ran.append, "of the parent")
if (child := gevent.os.fork()) == 0:
    sleep(0.01)
    os._exit(len(ran))
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_leaves_its_parent_with_libuv_too() -> None:
    """libuv, gevent's other loop, cannot watch what a service manager gives as the standard input."""
    environ = {**os.environ, "GEVENT_LOOP": "libuv"}
    done = subprocess.run([sys.executable, "-c", FORK_UNDER_LIBUV], env=environ, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
