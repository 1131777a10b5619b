"""The leases of a worker: kept from a third of their length on, until the work is about to be answered."""

from collections.abc import Iterable, Sequence

import pytest

from headgate.consumers.work.store import Answer, LeasedTask, Store, defer_for, done, held
from headgate.consumers.work.task import Task
from headgate.consumers.work.worker import TaskLeases

LEASE_S = 120


class RecordingStore(Store):
    """Notes the calls to settle and to renew."""

    def __init__(self) -> None:
        self.settled: list[Answer] = []
        self.renewed: list[tuple[Sequence[str], int]] = []

    def settle(self, answers: Iterable[Answer]) -> tuple[int, int]:
        """Note the answers."""
        self.settled += answers
        return 0, 0

    def renew(self, names: Sequence[str], lease_ms: int) -> None:
        """Note the names."""
        self.renewed.append((names, lease_ms))


def leased(offset: int, name: str = "") -> LeasedTask:
    """Return an entry of the log, or the task of this name."""
    return LeasedTask(Task("epoch", offset, "a", None, 1, b"0"), name, 1)


@pytest.fixture
def store() -> RecordingStore:
    """A store that nothing has reached."""
    return RecordingStore()


@pytest.fixture
def leases() -> TaskLeases:
    """The leases of an idle worker."""
    return TaskLeases(LEASE_S * 1000)


def test_nothing_is_kept_before_a_third_of_the_lease(leases: TaskLeases, store: RecordingStore) -> None:
    """Most work is done by then, and costs Redis nothing more."""
    leases.take([leased(1)], 100.0)
    leases.keep(store, 100.0 + LEASE_S / 3 - 1)
    assert (store.settled, store.renewed) == ([], [])


def test_an_entry_of_the_log_becomes_a_task_whose_lease_is_renewed(leases: TaskLeases, store: RecordingStore) -> None:
    """It moves once, in one step, with the times that it was handed out."""
    entry = leased(1)
    moved = [held(entry), done(entry), defer_for(entry.task, LEASE_S * 1000, entry.out)]
    leases.take([entry], 100.0)
    leases.keep(store, 100.0 + LEASE_S / 3)
    assert store.settled == moved
    assert (entry.name, entry.in_log) == (entry.task.name, False)
    leases.keep(store, 100.0 + LEASE_S / 3 * 1.9)
    assert store.renewed == []  # not before the next third
    leases.keep(store, 100.0 + LEASE_S)
    assert store.settled == moved
    assert store.renewed == [([entry.task.name], LEASE_S * 1000)]


def test_work_that_is_about_to_be_answered_is_kept_no_longer(leases: TaskLeases, store: RecordingStore) -> None:
    """Its place must not change under the answer."""
    first, second = leased(1, "first"), leased(2, "second")
    leases.take([first, second], 0.0)
    leases.release([first])
    leases.release([first])
    leases.keep(store, LEASE_S / 2)
    assert [names for names, _ in store.renewed] == [["second"]]
    leases.take([], 0.0)
    leases.keep(store, LEASE_S / 2)
    assert len(store.renewed) == 1


def test_the_work_of_a_page_takes_the_place_of_the_page_before(leases: TaskLeases, store: RecordingStore) -> None:
    """Its leases begin with it."""
    leases.take([leased(1, "first")], 0.0)
    leases.take([leased(2, "second")], 100.0)
    leases.keep(store, 101.0)
    assert store.renewed == []
    leases.keep(store, 100.0 + LEASE_S / 3)
    assert [names for names, _ in store.renewed] == [["second"]]


def test_work_that_has_not_begun_is_given_up_with_its_lease(leases: TaskLeases, store: RecordingStore) -> None:
    """Others may have it by then. Work that has begun is renewed all the same, as nothing else can end it."""
    first, second = leased(1, "first"), leased(2, "second")
    leases.take([first, second], 100.0)
    assert leases.begin([first], 100.0)
    leases.keep(store, 100.0 + LEASE_S)
    assert [names for names, _ in store.renewed] == [["first"]]
    assert not leases.begin([second], 100.0 + LEASE_S + 1)


def test_an_entry_of_the_log_gets_the_only_key_of_its_event(leases: TaskLeases) -> None:
    """A task has its key in its name, so that only an empty one fits."""
    entry, task = leased(1), leased(2, "task")
    assert [leases.name(entry, "key"), leases.name(task, "key"), leases.name(task, "")] == [True, False, True]
    assert (entry.task.key, entry.task.split, task.task.key, task.task.split) == ("key", True, "", True)
