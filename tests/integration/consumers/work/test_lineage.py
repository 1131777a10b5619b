"""A consumer's group in a log with several epochs: its deliveries, and which answers count."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.consumers.work.store import GROUP_LIBRARY, Store, TaskPage, back, done
from headgate.redis.client import Client, call
from headgate.redis.functions import SOURCE
from headgate.services.publisher import Publisher
from tests.support.consumers_state import count_leased

LOG, HEAD, EPOCHS = "hg:{notifications}:log", "hg:{notifications}:head", "hg:{notifications}:epochs"
GROUP = "hg:{notifications}:group:mail"
LEASE_MS = 60_000


@pytest.fixture
def store(redis_client: Client, redis_url: str) -> Iterator[Store]:
    """The group, open from the first event on."""
    store = Store(redis_client, redis_url, "notifications", "mail", 65536)
    with Publisher(redis_url) as publisher:
        publisher.publish("a", 0)
    store.open("new")
    yield store
    store.close()


def take(store: Store, count: int = 100, lease_ms: int = LEASE_MS) -> TaskPage:
    page = store.take(count, lease_ms, 1000, lambda topic: True)
    assert page is not None
    return page


def offsets(page: TaskPage) -> list[int]:
    return [leased.task.offset for leased in page.work]


def restart(client: Client) -> None:
    """Make the process forget its writes, like another process."""
    call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)


def copy(client: Client) -> list[tuple[str, Any]]:
    return [(key, call(client, "DUMP", key)) for key in (LOG, HEAD, EPOCHS, GROUP)]


def put_back(client: Client, copied: list[tuple[str, Any]]) -> None:
    for key, dump in copied:
        call(client, "RESTORE", key, 0, dump, "REPLACE")


def values(page: TaskPage) -> list[bytes]:
    return [leased.task.data for leased in page.work]


def test_a_restart_that_lost_nothing_costs_nothing(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """Events of both epochs are handed out once each, in order, no log counts as lost, and each task has its event's epoch."""
    receipts = publisher.publish_many([("a", 1), ("a", 2)])
    restart(redis_client)
    receipts += publisher.publish_many([("a", 3), ("a", 4)])

    page = take(store)

    assert [(leased.task.epoch, leased.task.offset) for leased in page.work] == [(each.epoch, each.offset) for each in receipts]
    assert (page.missed, page.lost, offsets(take(store))) == (0, 0, [])


def test_entries_leased_when_an_epoch_begins_are_answered(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """The answers come after the new epoch has begun, and before or after the group has followed it."""
    publisher.publish_many([("a", number) for number in range(1, 5)])
    page = take(store)
    restart(redis_client)
    publisher.publish("a", 5)

    store.acknowledge(page.work[0].leased_in, [2])
    store.settle([done(page.work[1])])
    store.confirm()
    assert offsets(take(store)) == [6]
    store.acknowledge(page.work[2].leased_in, [4])
    store.confirm()
    store.settle([done(page.work[3])])

    assert count_leased(redis_client, "mail") == 1
    take(store)
    assert len(call(redis_client, "XINFO", "GROUPS", LOG)) == 1


def test_what_an_older_epoch_gave_back_is_handed_out_again(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """They keep their names, come alone if they had not been answered, and nothing is missed or doubled."""
    publisher.publish_many([("a", 1), ("a", 2), ("a", 3)])
    first = take(store)
    restart(redis_client)
    publisher.publish("a", 4)
    assert offsets(take(store)) == [5]
    store.settle([back(first.work[0])])

    page = take(store)
    assert offsets(page) == [2]
    assert page.work[0].task == first.work[0].task
    store.settle([done(page.work[0])])
    assert offsets(take(store, lease_ms=1)) in ([3], [])  # abandoned once its lease of a millisecond is over


def test_an_answer_about_a_lost_event_leaves_the_new_one(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """The end of the log is lost while its events are in hand; other events get their offsets, and are in another's hand."""
    publisher.publish("a", "kept")
    copied = copy(redis_client)
    publisher.publish_many([("a", "lost") for _ in range(10)])
    lost = take(store)
    put_back(redis_client, copied)
    publisher.publish_many([("a", "new") for _ in range(10)])
    new = take(store)

    store.acknowledge(lost.epoch, offsets(lost))
    store.confirm()
    store.settle([done(leased) for leased in lost.work[:5]] + [back(leased) for leased in lost.work[5:]])

    assert values(new) == [b'"kept"', *[b'"new"'] * 10]
    assert count_leased(redis_client, "mail") == 11
    assert take(store).work == []


def test_an_answer_may_come_before_the_new_event_is_taken(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """The new event is handed out all the same."""
    copied = copy(redis_client)
    publisher.publish_many([("a", "lost") for _ in range(3)])
    lost = take(store)
    put_back(redis_client, copied)
    publisher.publish_many([("a", "new") for _ in range(3)])

    store.acknowledge(lost.epoch, offsets(lost))
    store.confirm()

    assert values(take(store)) == [b'"new"'] * 3


def test_many_epochs_in_a_row_leave_a_bounded_number_of_groups(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """Something is leased in each; the oldest are given up, and counted as missed."""
    taken, missed = 0, 0
    for number in range(24):
        publisher.publish("a", number)
        page = take(store)
        taken, missed = taken + len(page.work), missed + page.missed
        restart(redis_client)
    publisher.publish("a", "last")
    missed += take(store).missed

    assert taken == 24
    assert missed == 8
    assert len(call(redis_client, "XINFO", "GROUPS", LOG)) == 17


def test_progress_and_status_go_on_across_epochs(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """The oldest unanswered event may be of an older epoch; the lag counts from the position."""
    publisher.publish("a", 1)
    taken = take(store)
    restart(redis_client)
    publisher.publish_many([("a", 2), ("a", 3)])

    lag, leased, *_ = GROUP_LIBRARY.call(redis_client, "FCALL_RO", "headgate_group_look", 1, LOG, "mail")
    assert (lag, leased) == (2, 1)
    take(store)
    assert store.progress().handled_ms == taken.work[0].task.time_ms
