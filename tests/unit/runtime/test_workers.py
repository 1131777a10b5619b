"""Greenlets that are used again."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.runtime.workers import Workers
from tests.support.session_clock import turn


@pytest.fixture
def workers() -> Iterator[Workers]:
    """None yet; they are all ended behind the test."""
    workers = Workers()
    yield workers
    while workers.idle:
        workers.look()
        turn()


def test_functions_start_in_order_each_in_a_greenlet_in_which_no_other_runs(workers: Workers) -> None:
    """Also when they wait, and when greenlets of others are used again."""
    began: list[int] = []
    running: dict[object, int] = {}

    def work(number: int) -> None:
        greenlet = gevent.getcurrent()
        assert greenlet not in running
        running[greenlet] = number
        began.append(number)
        gevent.sleep(0)
        del running[greenlet]

    for start in (0, 20):
        for number in range(start, start + 20):
            workers.start(lambda number=number: work(number))  # type: ignore[misc]
        assert began == list(range(start))
        turn()
    assert began == list(range(40))
    assert (workers.idle, running) == (20, {})


def test_a_greenlet_is_used_again(workers: Workers) -> None:
    """One after the other need only one."""
    greenlets = set()
    for _ in range(3):
        workers.start(lambda: greenlets.add(id(gevent.getcurrent())))
        turn()
    assert (len(greenlets), workers.idle) == (1, 1)


def test_a_function_that_raises_is_logged_and_its_greenlet_goes_on(workers: Workers) -> None:
    """The others do not meet the fault of one."""
    with capture_logs() as logs:
        workers.start(lambda: 1 / 0)
        turn()
    assert [entry["event"] for entry in logs] == ["worker failed"]
    assert workers.idle == 1


def test_greenlets_that_are_not_needed_end(workers: Workers) -> None:
    """Those that were needed since the last look stay."""
    for _ in range(3):
        workers.start(gevent.sleep)
    turn()
    workers.look()
    assert workers.idle == 3
    workers.start(lambda: None)
    turn()
    workers.look()
    turn()
    assert workers.idle == 1


def test_an_idle_greenlet_holds_nothing_of_its_last_function(workers: Workers) -> None:
    """A session that is over is freed at once."""

    class Session:
        def work(self) -> None:
            pass

    session = Session()
    gone = weakref.ref(session)
    workers.start(session.work)
    del session
    turn()
    assert workers.idle == 1
    assert gone() is None


def test_a_greenlet_that_somebody_ends_while_it_is_idle_loses_no_function(workers: Workers) -> None:
    """A function may have left its greenlet to others, or a timeout in it that comes later."""
    greenlets: list[gevent.Greenlet] = []
    ran: list[int] = []
    workers.start(lambda: greenlets.append(gevent.getcurrent()))
    turn()
    greenlets[0].kill()
    assert workers.idle == 0
    workers.start(lambda: ran.append(1))
    turn()
    assert ran == [1]


def test_a_greenlet_that_somebody_ends_as_it_is_woken_loses_no_function(workers: Workers) -> None:
    """Another runs what it was woken for."""
    greenlets: list[gevent.Greenlet] = []
    ran: list[int] = []
    workers.start(lambda: greenlets.append(gevent.getcurrent()))
    turn()
    greenlets[0].kill(block=False)
    workers.start(lambda: ran.append(1))
    turn()
    turn()
    assert ran == [1]


def test_a_greenlet_that_somebody_switches_to_while_it_is_idle_loses_no_function(workers: Workers) -> None:
    """It ends, and is not asked again."""
    greenlets: list[gevent.Greenlet] = []
    ran: list[int] = []
    workers.start(lambda: greenlets.append(gevent.getcurrent()))
    turn()
    gevent.get_hub().loop.run_callback(greenlets[0].switch)
    turn()
    workers.start(lambda: ran.append(1))
    turn()
    assert (ran, workers.idle) == ([1], 1)


@pytest.mark.parametrize("end", [gevent.Timeout(), gevent.GreenletExit()])
def test_a_function_that_ends_its_greenlet_ends_no_other_function(workers: Workers, end: BaseException) -> None:
    """What came with it runs."""
    ran: list[int] = []

    def fail() -> None:
        raise end

    workers.start(fail)
    workers.start(lambda: ran.append(1))
    turn()
    workers.start(lambda: ran.append(2))
    turn()
    assert ran == [1, 2]
