"""Greenlets that are used again."""

import weakref
from collections.abc import Callable, Iterator

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.runtime.greenlet_pool import GreenletPool
from tests.support.session_clock import turn


@pytest.fixture
def pool() -> Iterator[GreenletPool]:
    pool = GreenletPool()
    yield pool
    while pool.idle:
        pool.trim()
        turn()


def test_functions_start_in_order_each_in_a_greenlet_in_which_no_other_runs(pool: GreenletPool) -> None:
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
            pool.start(lambda number=number: work(number))  # type: ignore[misc]
        assert began == list(range(start))
        turn()
    assert began == list(range(40))
    assert (pool.idle, running) == (20, {})


def test_a_greenlet_is_used_again(pool: GreenletPool) -> None:
    greenlets = set()
    for _ in range(3):
        pool.start(lambda: greenlets.add(id(gevent.getcurrent())))
        turn()
    assert (len(greenlets), pool.idle) == (1, 1)


def test_a_function_that_raises_is_logged_and_its_greenlet_goes_on(pool: GreenletPool) -> None:
    with capture_logs() as logs:
        pool.start(lambda: 1 / 0)
        turn()
    assert [entry["event"] for entry in logs] == ["a function in a greenlet failed"]
    assert pool.idle == 1


def test_idle_greenlets_end(pool: GreenletPool) -> None:
    """One that runs a function stays, and so does one that has it to run."""
    ran: list[int] = []
    for _ in range(3):
        pool.start(gevent.sleep)
    turn()
    assert pool.idle == 3
    pool.start(lambda: ran.append(1))
    pool.trim()
    turn()
    assert (pool.idle, ran) == (1, [1])


def test_an_idle_greenlet_holds_nothing_of_its_last_function(pool: GreenletPool) -> None:
    """A finished session is freed at once."""

    class Session:
        def work(self) -> None:
            pass

    session = Session()
    gone = weakref.ref(session)
    pool.start(session.work)
    del session
    turn()
    assert pool.idle == 1
    assert gone() is None


def switch_to(greenlet: gevent.Greenlet) -> None:
    gevent.get_hub().loop.run_callback(greenlet.switch)
    turn()


@pytest.mark.parametrize(
    ("meddle", "idle"),
    [
        (lambda greenlet: greenlet.kill(), 0),
        (lambda greenlet: greenlet.kill(block=False), 1),
        (switch_to, 0),
    ],
    ids=["ends", "ends as it is woken", "switches to"],
)
def test_an_idle_greenlet_that_somebody_ends_or_switches_to_loses_no_function(
    pool: GreenletPool, meddle: Callable[[gevent.Greenlet], object], idle: int
) -> None:
    """A function may have left its greenlet to others, or a timeout in it that comes later. Another runs the next function."""
    greenlets: list[gevent.Greenlet] = []
    ran: list[int] = []
    pool.start(lambda: greenlets.append(gevent.getcurrent()))
    turn()
    meddle(greenlets[0])
    assert pool.idle == idle
    pool.start(lambda: ran.append(1))
    turn()
    turn()
    assert (ran, pool.idle) == ([1], 1)


@pytest.mark.parametrize("end", [gevent.Timeout(), gevent.GreenletExit()])
def test_a_function_that_ends_its_greenlet_ends_no_other_function(pool: GreenletPool, end: BaseException) -> None:
    ran: list[int] = []

    def fail() -> None:
        raise end

    pool.start(fail)
    pool.start(lambda: ran.append(1))
    turn()
    pool.start(lambda: ran.append(2))
    turn()
    assert ran == [1, 2]
