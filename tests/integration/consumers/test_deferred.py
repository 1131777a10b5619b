"""The deferred tasks of a group in a real Redis: their bound, and the batch that comes together again after a kill."""

from collections.abc import Iterator

import pytest

from headgate.consumers.work.store import Store, TaskPage, defer_for, done
from headgate.consumers.work.task import Task
from headgate.redis.client import Client, call
from headgate.services.publisher import Publisher

GROUP = "hg:{notifications}:group:mail"
LEASE_MS = 60_000
KIB = 1024


@pytest.fixture
def store(redis_client: Client, redis_url: str) -> Iterator[Store]:
    """The group, open, and two events that it has not taken."""
    Publisher(redis_url).publish("a", 0)
    store = Store(redis_client, redis_url, "notifications", "mail", 1024 * KIB)
    store.open("oldest")
    yield store
    store.close()


def task(number: int, size: int = 10, *, together: bool = False) -> Task:
    return Task("e" * 16, number, "a", f"id{number}", 1000 + number, b"1" * size, "ada", together=together)


def take(store: Store, max_waiting: int = 100) -> TaskPage:
    page = store.take(100, LEASE_MS, max_waiting, lambda topic: True)
    assert page is not None
    return page


def died(client: Client) -> None:
    """Make it look as if the instance that had tasks leased died longer ago than a lease."""
    for name in call(client, "HKEYS", f"{GROUP}:out"):
        call(client, "ZADD", f"{GROUP}:held", 1, name)


def offsets(page: TaskPage) -> list[int]:
    """Of the tasks that were deferred."""
    return [taken.task.offset for taken in page.work if not taken.in_log]


def test_a_large_task_counts_as_many_as_it_weighs(store: Store) -> None:
    """One for every 8 KiB, because `max_waiting` bounds the bytes in Redis, not only their number. Small ones count one each."""
    assert store.settle([defer_for(task(number), LEASE_MS) for number in range(10)]) == (10, 0)
    waiting, _ = store.settle([defer_for(task(number, 64 * KIB), LEASE_MS) for number in range(10)])
    assert waiting == 81  # a few bytes more than the payloads

    page = take(store, max_waiting=81)
    assert (page.waiting, page.work) == (81, [])
    assert [taken.in_log for taken in take(store, max_waiting=82).work] == [True]


def test_a_task_that_is_kept_on_or_done_leaves_no_weight_behind(store: Store, redis_client: Client) -> None:
    """A replaced task counts with its present weight."""
    store.settle([defer_for(task(number, 800 * KIB), LEASE_MS) for number in range(3)])
    waiting, _ = store.settle([defer_for(task(1, 8 * KIB), LEASE_MS), defer_for(task(2, 8 * KIB), LEASE_MS)])
    assert waiting == 103
    waiting, _ = store.settle([("done", task(0).name), ("done", task(0).name)])
    assert waiting == 3

    assert store.settle([("done", task(number).name) for number in range(3)]) == (0, 0)
    assert call(redis_client, "HGET", GROUP, "held_bytes") is None


def test_a_batch_comes_again_without_the_tasks_that_joined_since(store: Store, redis_client: Client) -> None:
    """After a kill the same tasks make the same mail, which is recognisable; the others keep their time."""
    store.settle([defer_for(task(number, together=True), 0) for number in (1, 2)])
    assert offsets(take(store)) == [1, 2]
    store.settle([defer_for(task(number, together=True), due_ms) for number, due_ms in ((3, 0), (4, 4_000_000_000_000))])
    died(redis_client)

    again = take(store)
    assert [(taken.task.offset, taken.out) for taken in again.work] == [(1, 2), (2, 2)]
    store.settle([done(taken) for taken in again.work])
    assert offsets(take(store)) == [3, 4]


def test_a_task_that_joins_while_others_are_leased_does_not_wait_for_them(store: Store) -> None:
    """Those are in work, and will be answered."""
    store.settle([defer_for(task(number, together=True), 0) for number in (1, 2)])
    take(store)
    store.settle([defer_for(task(3, together=True), 0)])

    assert offsets(take(store)) == [3]
