"""The pool of connections: the owner of each one, the waiters, and which one is asked whether it is open."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from headgate.redis.faults import AllInUse
from headgate.redis.pool import Pool
from tests.support.processes import in_child
from tests.support.redis_server import wait_until


class Link:
    """Stands for a connection: open or closed, and noting how often it was opened."""

    def __init__(self, **_: object) -> None:
        self.is_open = self.is_broken = False
        self.opened = 0

    def connect(self) -> None:
        if not self.is_open:
            self.is_open, self.is_broken = True, False
            self.opened += 1

    def disconnect(self) -> None:
        self.is_open = False

    def can_read(self, timeout: float) -> bool:
        if self.is_broken:
            raise redis.ConnectionError("Connection closed by server.")
        return False


def pool_of(most: int = 1, timeout_s: float = 30.0) -> Pool:
    return Pool(connection_class=Link, max_connections=most, timeout=timeout_s)


def test_the_connection_that_came_back_last_is_lent_first() -> None:
    """A second caller gets a second connection, and the next one the last that was returned."""
    pool = pool_of(2)
    first, second = pool.get_connection(), pool.get_connection()
    assert first is not second

    pool.release(second)
    pool.release(first)

    assert pool.get_connection() is first


def test_a_connection_that_has_broken_is_opened_again() -> None:
    """A connection that the server has closed since is opened before it is lent."""
    pool = pool_of()
    link = pool.get_connection()
    pool.release(link)
    link.is_broken = True

    assert pool.get_connection() is link
    assert (link.opened, link.is_open) == (2, True)


def test_one_caller_too_many_waits_no_longer_than_the_timeout() -> None:
    """Without a connection that comes back, the caller gets AllInUse."""
    pool = pool_of(timeout_s=0.01)
    lent = pool.get_connection()

    with pytest.raises(AllInUse, match="in use"):
        pool.get_connection()
    assert pool.waiting == 0
    pool.release(lent)


def test_a_connection_that_an_interrupted_caller_has_lost_leaves_its_place() -> None:
    """A signal may end a call before it has noted the connection that it got. The next call opens another one."""
    pool = pool_of(timeout_s=0.01)
    for _ in range(2):
        assert pool.get_connection().is_open


@pytest.mark.parametrize("most", [1, 2])
def test_who_has_a_connection_again_and_again_waits_after_the_others(most: int) -> None:
    """Its calls follow each other at once, before a waiter has woken."""
    pool, got = pool_of(most), list[str]()
    link, *others = [pool.get_connection() for _ in range(most)]

    def wait() -> None:
        other = pool.get_connection()
        got.append("waiter")
        pool.release(other)

    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(wait)
        wait_until(lambda: pool.waiting, "the waiter")
        for _ in range(3):
            pool.release(link)
            link = pool.get_connection()
            got.append("holder")
        waiter.result(30)

    assert got == ["waiter", "holder", "holder", "holder"]
    assert len(others) == most - 1


@pytest.mark.parametrize("waits", [1, 2, 3])
def test_a_pause_of_the_process_is_no_connection_in_use(waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stands still for longer than a caller may wait. The one before it reads its reply in one of the next turns.

    A process that always stands still does not let it wait for ever.
    """
    pool = pool_of(timeout_s=1.0)
    link = pool.get_connection()
    clock_s, paused = [0.0], []

    def wait(timeout: float) -> bool:
        clock_s[0] += timeout + 0.5
        paused.append(timeout)
        if len(paused) == waits:
            pool._idle.append(link)  # returned just after the time was over, so the wait ended without it
        return False

    monkeypatch.setattr("headgate.redis.pool.monotonic", lambda: clock_s[0])
    monkeypatch.setattr(pool._returned, "wait", wait)
    if waits < 3:
        assert pool.get_connection() is link
    else:
        with pytest.raises(AllInUse):
            pool.get_connection()
        assert paused == [1.0, 0.5]


def test_a_connection_that_comes_back_wakes_one_that_waits() -> None:
    """The waiting thread gets the very connection that is released, long before it would look again by itself."""
    pool = pool_of(timeout_s=60.0)
    link = pool.get_connection()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.get_connection)
        wait_until(lambda: pool.waiting, "the thread waits")

        pool.release(link)

        assert waiting.result(30) is link


def test_a_connection_that_does_not_open_goes_back() -> None:
    """After a failed connect the next caller may try with the same connection."""
    pool = pool_of()
    link = pool.get_connection()
    link.disconnect()
    pool.release(link)
    link.connect = lambda: (_ for _ in ()).throw(redis.ConnectionError("refused"))

    with pytest.raises(redis.ConnectionError, match="refused"):
        pool.get_connection()
    del link.connect

    assert pool.get_connection() is link


def test_threads_never_share_a_connection_and_never_make_too_many() -> None:
    """Eight threads borrow three connections a thousand times; each is alone with its own."""
    pool = pool_of(3)
    lock, lent, seen = threading.Lock(), set[object](), set[object]()

    def borrow() -> None:
        for _ in range(1000):
            link = pool.get_connection()
            with lock:
                assert link not in lent
                lent.add(link)
                seen.add(link)
            with lock:
                lent.remove(link)
            pool.release(link)

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(borrow) for _ in range(8)]:
            each.result(60)

    assert len(seen) <= 3


def test_close_closes_those_in_use_too() -> None:
    """`disconnect` closes every connection, or with `inuse_connections` False the idle ones."""
    pool = pool_of(2)
    used, idle = pool.get_connection(), pool.get_connection()
    pool.release(idle)

    pool.disconnect(inuse_connections=False)
    assert (used.is_open, idle.is_open) == (True, False)

    pool.disconnect()
    assert not used.is_open


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_begins_without_connections() -> None:
    """The child of a fork neither uses nor closes its parent's connections, and waits for none of them."""
    pool = pool_of()
    link = pool.get_connection()
    assert in_child(lambda: pool.get_connection() is not link and link.is_open)
    pool.release(link)
    assert pool.get_connection() is link
