"""A consumer's group in a real Redis: pages of work, answers, leases, deferred tasks, missed events."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from headgate.consumers.work import store as stores
from headgate.consumers.work.store import GROUP_LIBRARY, MAX_UNCONFIRMED, LeasedTask, Store, TaskPage, back, dead, defer_for, done
from headgate.consumers.work.task import Task
from headgate.errors import BusRefused, BusUnavailable, InvalidRequest, UnknownNamespace
from headgate.redis.client import Client, call
from headgate.redis.keys import group_in_log
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from tests.support.consumers_state import count_leased
from tests.support.redis_server import full_memory, wait_until

LOG, HEAD = "hg:{notifications}:log", "hg:{notifications}:head"
GROUP = "hg:{notifications}:group:mail"
# Long, so that nothing is abandoned unless a test says so.
LEASE_MS = 60_000


@pytest.fixture
def unopened(redis_client: Client, redis_url: str) -> Iterator[Store]:
    """The group of a new consumer."""
    store = Store(redis_client, redis_url, "notifications", "mail", 65536)
    yield store
    store.close()


@pytest.fixture
def store(unopened: Store) -> Store:
    """The group, open for new events."""
    unopened.open("new")
    return unopened


def take(store: Store, count: int = 100, lease_ms: int = LEASE_MS, max_waiting: int = 1000) -> TaskPage:
    page = store.take(count, lease_ms, max_waiting, lambda topic: topic != "unwanted")
    assert page is not None
    return page


def offsets(page: TaskPage) -> list[int]:
    return [leased.task.offset for leased in page.work]


def totals(client: Client) -> dict[str, int]:
    found = call(client, "HGETALL", GROUP)
    return {name.decode(): int(value) for name, value in found.items() if name != b"epoch"}


AGE = """
for _, pending in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000)) do
  redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, pending[1], 'IDLE', ARGV[2], 'RETRYCOUNT', pending[4], 'JUSTID')
end
"""


def age(client: Client, idle_ms: int = 10 * LEASE_MS) -> None:
    """Make all leased work look as if its holder had given no sign of life for longer than any lease."""
    epoch = call(client, "HGET", GROUP, "epoch").decode()
    call(client, "EVAL", AGE, 1, LOG, group_in_log("mail", epoch), idle_ms)
    age_tasks(client)


def age_tasks(client: Client) -> None:
    """The same for leased tasks alone."""
    for task in call(client, "HKEYS", f"{GROUP}:out"):
        call(client, "ZADD", f"{GROUP}:held", 1, task)


def no_answer(topic: str) -> bool:
    """Lose the answer of Redis that names this topic."""
    raise BusUnavailable("no answer")


def retained(client: Client, max_events: int) -> None:
    EventLog("notifications", client, 65536).configure(max_events, 86400)


# Where a group begins ------------------------------------------------------------------------------------------------------


def test_a_new_group_begins_with_new_events_and_stays_where_it_is(unopened: Store, publisher: Publisher) -> None:
    """`new`: from now on. A second instance cannot move it at its start."""
    publisher.publish("a", 1)
    assert unopened.open("new")[1] == 1
    publisher.publish("a", 2)

    assert unopened.open("oldest")[1] == unopened.open("new")[1] == 1
    assert offsets(take(unopened)) == [2]


def test_a_new_group_may_begin_with_the_oldest_event(unopened: Store, publisher: Publisher, redis_client: Client) -> None:
    """`oldest`: an earlier trim is no loss."""
    retained(redis_client, 3)
    publisher.publish_many([("a", number) for number in range(10)])
    assert unopened.open("oldest")[1] == 7

    page = take(unopened)

    assert (offsets(page), page.missed) == ([8, 9, 10], 0)


def test_a_group_may_be_there_before_the_log(unopened: Store, publisher: Publisher) -> None:
    """Nothing published before the first publish is lost, and no log was either."""
    assert unopened.open("new") == ("", 0)
    assert take(unopened).work == []
    publisher.publish("a", 1)
    page = take(unopened)

    assert (offsets(page), page.lost, page.missed) == ([1], 0, 0)


# Missed events -----------------------------------------------------------------------------------------------------------


def test_events_that_were_trimmed_unseen_are_counted_exactly(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """At the beginning, and in the middle of a page."""
    retained(redis_client, 1000)
    publisher.publish_many([("a", number) for number in range(20)])
    assert offsets(take(store, count=2)) == [1, 2]
    call(redis_client, "XTRIM", LOG, "MINID", 10)
    call(redis_client, "XDEL", LOG, "15-0")

    page = take(store)

    assert offsets(page) == [10, 11, 12, 13, 14, 16, 17, 18, 19, 20]
    assert page.missed == 8
    assert totals(redis_client)["missed"] == 8


def test_leased_events_that_were_trimmed_are_counted_too(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """Handed out to a process that died, and gone from the log before another could have it."""
    publisher.publish_many([("a", number) for number in range(5)])
    take(store)
    age(redis_client)
    call(redis_client, "XTRIM", LOG, "MINID", 4)

    pages = [take(store) for _ in range(4)]

    assert sum(page.missed for page in pages) == 3
    assert [offsets(page) for page in pages] == [[4], [5], [], []]
    assert totals(redis_client)["missed"] == 3


def test_a_stream_that_was_deleted_is_counted_and_followed(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """The log's offsets go on, so the lost events are known exactly, also before there is anything new."""
    publisher.publish_many([("a", number) for number in range(5)])
    call(redis_client, "DEL", LOG)

    page = take(store)
    assert (page.missed, page.position, page.work) == (5, 5, [])
    publisher.publish("a", 6)
    call(redis_client, "DEL", LOG)
    publisher.publish("a", 7)
    page = take(store)

    assert (offsets(page), page.missed, page.lost) == ([7], 1, 0)


def deferred(store: Store, publisher: Publisher, count: int) -> None:
    """Leave so many more tasks waiting, all of them due."""
    publisher.publish_many([("a", number) for number in range(count)])
    work = [each for each in take(store).work if each.in_log]
    store.settle([answer for each in work for answer in (done(each), defer_for(each.task, 0))])


def test_tasks_whose_bodies_redis_has_evicted_are_missed_and_stop_nothing(
    store: Store, publisher: Publisher, redis_client: Client
) -> None:
    """They are due before every later task."""
    deferred(store, publisher, 5)
    call(redis_client, "UNLINK", f"{GROUP}:body")
    publisher.publish("a", 6)

    pages = [take(store, 4) for _ in range(3)]

    assert [offset for page in pages for offset in offsets(page)] == [6]
    assert sum(page.missed for page in pages) == totals(redis_client)["missed"] == 5
    assert call(redis_client, "EXISTS", f"{GROUP}:held") == 0


def test_tasks_whose_times_redis_has_evicted_are_due_again(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """Their bodies are there."""
    deferred(store, publisher, 3)
    call(redis_client, "UNLINK", f"{GROUP}:held")

    assert offsets(take(store)) == [1, 2, 3]


def test_an_answer_for_the_old_log_does_not_touch_the_new_one(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """The same offset is another event now, and in another hand."""
    publisher.publish_many([("a", 1), ("a", 2)])
    old = take(store)
    call(redis_client, "DEL", HEAD)
    publisher.publish_many([("a", 3), ("a", 4)])
    new = take(store)

    store.acknowledge(old.epoch, [1, 2])
    store.confirm()
    store.settle([done(old.work[0]), back(old.work[1])])
    assert count_leased(redis_client, "mail") == 2
    assert take(store).work == []
    store.acknowledge(new.epoch, [1, 2])
    store.confirm()

    assert count_leased(redis_client, "mail") == 0


# Tasks without an answer ------------------------------------------------------------------------------------------------------


def test_abandoned_tasks_are_handed_out_again_one_by_one(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """One of them may have ended its process, and must not take others along."""
    publisher.publish_many([("a", number) for number in range(3)])
    take(store)
    publisher.publish("a", "new")
    assert take(store, lease_ms=LEASE_MS).work != []  # the new one only, while the others' lease runs
    age(redis_client)
    publisher.publish("a", "newer")

    pages = [take(store).work for _ in range(6)]

    assert [[leased.task.offset for leased in page] for page in pages] == [[1], [2], [3], [4], [5], []]
    assert [page[0].out for page in pages[:5]] == [2, 2, 2, 2, 1]


def test_a_task_that_was_given_back_is_there_for_anyone_at_once(store: Store, publisher: Publisher) -> None:
    """And did not count as handed out, so that a page of it comes as a page."""
    publisher.publish_many([("a", number) for number in range(3)])

    store.settle([back(leased) for leased in take(store).work])
    page = take(store)

    assert offsets(page) == [1, 2, 3]
    assert {leased.out for leased in page.work} == {1}


def test_an_event_that_was_trimmed_before_it_was_given_back_counts_as_missed(
    store: Store, publisher: Publisher, redis_client: Client
) -> None:
    """After its lease, as any other."""
    publisher.publish_many([("a", 1), ("a", 2)])
    page = take(store)
    age(redis_client)
    call(redis_client, "XTRIM", LOG, "MAXLEN", 1)

    store.settle([back(leased) for leased in page.work])
    page = take(store)

    assert (offsets(page), page.missed) == ([2], 1)


def test_a_page_whose_answer_is_lost_comes_again_to_its_worker(
    store: Store, publisher: Publisher, redis_client: Client, redis_url: str
) -> None:
    """In order, before anything new, and it does not count as handed out, however often; the other workers' pages stay theirs."""
    publisher.publish_many([("a", 1), ("a", 2)])
    other = Store(redis_client, redis_url, "notifications", "mail", 65536)
    leased, second = take(store).work
    store.settle([done(leased), defer_for(leased.task, 0), done(second)])
    publisher.publish_many([("a", 3), ("a", 4)])
    for _ in range(4):
        with pytest.raises(BusUnavailable):
            store.take(100, LEASE_MS, 1000, no_answer)
    publisher.publish("a", 5)
    assert offsets(take(other)) == [1, 5]  # the task is anyone's, as the worker gets its entries first
    publisher.publish("a", 6)

    page = take(store)

    assert [(leased.task.offset, leased.out) for leased in page.work] == [(3, 1), (4, 1), (6, 1)]
    other.close()


def test_a_lost_page_that_another_worker_has_had_stays_with_that_one(
    store: Store, publisher: Publisher, redis_client: Client, redis_url: str
) -> None:
    """Whether it was an entry or a task."""
    leased, task = taken_one(store, publisher)
    other = Store(redis_client, redis_url, "notifications", "mail", 65536)
    store.settle([done(leased), defer_for(task, 0)])
    publisher.publish("a", 2)
    with pytest.raises(BusUnavailable):
        store.take(100, LEASE_MS, 1000, no_answer)
    age(redis_client)

    theirs = [take(other).work for _ in range(2)]

    assert [[leased.out for leased in page] for page in theirs] == [[2], [2]]
    assert take(store).work == []
    other.close()


# Deferred tasks -------------------------------------------------------------------------------------------------------------


def taken_one(store: Store, publisher: Publisher, key: str = "") -> tuple[LeasedTask, Task]:
    """Publish an event and take it; return it and a task of it."""
    publisher.publish("a", {"a": 1})
    (leased,) = take(store).work
    return leased, msgspec.structs.replace(leased.task, key=key, split=True)


def test_a_leased_task_is_handed_out_again_after_its_lease(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """And counts how often, as an entry does."""
    leased, task = taken_one(store, publisher)
    store.settle([done(leased), defer_for(task, 0)])

    assert [each.out for each in take(store).work] == [1]
    assert take(store).work == []
    age(redis_client)
    store.settle([defer_for(msgspec.structs.replace(task, key="another"), 0)])
    publisher.publish("a", "new")
    assert [(each.out, each.task.key) for each in take(store).work] == [(2, "")]  # alone
    assert [(each.out, each.task.key, each.task.offset) for each in take(store).work] == [(1, "another", 1), (1, "", 2)]


def test_a_renewed_lease_lasts(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """A slow task is not handed to another; one that was answered in between stays as it was answered."""
    leased, task = taken_one(store, publisher)
    store.settle([done(leased), defer_for(task, 0)])
    (leased,) = take(store).work
    age(redis_client)

    store.renew([leased.name], LEASE_MS)
    assert take(store).work == []
    store.settle([defer_for(task, 10 * LEASE_MS)])
    store.renew([leased.name], LEASE_MS)
    assert (take(store).due_in_s or 0) > 9 * LEASE_MS / 1000
    store.settle([done(leased)])
    store.renew([leased.name], LEASE_MS)

    assert take(store).waiting == 0


def test_a_task_that_is_done_leaves_nothing(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """No key of it stays."""
    leased, task = taken_one(store, publisher)
    task.together = True
    store.settle([done(leased), defer_for(task, 0)])

    store.settle([done(each) for each in take(store).work])

    assert set(call(redis_client, "KEYS", "*group*")) == {GROUP.encode()}


def test_a_settled_answer_may_be_given_twice(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """After a lost reply the state is the same."""
    leased, task = taken_one(store, publisher)

    for _ in range(2):
        assert store.settle([done(leased), defer_for(task, LEASE_MS)]) == (1, 0)
    assert call(redis_client, "ZCARD", f"{GROUP}:held") == 1


def test_deferred_tasks_and_new_events_share_a_page(store: Store, publisher: Publisher) -> None:
    """Half of it at most is deferred tasks, so that neither keeps the other out."""
    publisher.publish_many([("a", number) for number in range(20)])
    page = take(store)
    store.settle([answer for each in page.work for answer in (done(each), defer_for(each.task, 0))])
    publisher.publish_many([("a", number) for number in range(20)])

    page = take(store, count=10)

    assert offsets(page) == [1, 2, 3, 4, 5, 21, 22, 23, 24, 25]


def test_when_many_wait_nothing_new_is_taken(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """Neither new entries nor abandoned ones; deferred tasks go on."""
    publisher.publish_many([("a", number) for number in range(4)])
    page = take(store)
    store.settle([answer for each in page.work[:3] for answer in (done(each), defer_for(each.task, LEASE_MS))])
    age(redis_client)

    assert (take(store, max_waiting=3).work, take(store, max_waiting=3).waiting) == ([], 3)
    store.settle([defer_for(page.work[0].task, 0)])
    (due,) = take(store, max_waiting=3).work
    assert due.task.offset == 1
    store.settle([done(due)])

    assert offsets(take(store, max_waiting=3)) == [4]


def test_an_unreadable_body_comes_with_its_error(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """It can be set aside by its name."""
    leased, task = taken_one(store, publisher)
    store.settle([done(leased), defer_for(task, 0)])
    call(redis_client, "HSET", f"{GROUP}:body", task.name, b"\xffnonsense")

    (found,) = take(store).work

    assert found.error is not None
    assert (found.name, found.task.offset) == (task.name, 1)


def joining(number: int, size: int = 10, *, together: bool = False) -> Task:
    """Return a task of a digest."""
    return Task("e" * 16, number, "a", f"id{number}", 1000 + number, b"1" * size, "ada", together=together)


def test_a_large_task_counts_as_many_as_it_weighs(store: Store, publisher: Publisher) -> None:
    """One for every 8 KiB, because `max_waiting` bounds the bytes in Redis, not only their number. Small ones count one each."""
    assert store.settle([defer_for(joining(number), LEASE_MS) for number in range(10)]) == (10, 0)
    waiting, _ = store.settle([defer_for(joining(number, 64 * 1024), LEASE_MS) for number in range(10)])
    assert waiting == 81  # a few bytes more than the payloads

    publisher.publish("a", 1)
    page = take(store, max_waiting=81)
    assert (page.waiting, page.work) == (81, [])
    assert [taken.in_log for taken in take(store, max_waiting=82).work] == [True]


def test_a_task_that_is_kept_on_or_done_leaves_no_weight_behind(store: Store, redis_client: Client) -> None:
    """A replaced task counts with its present weight."""
    store.settle([defer_for(joining(number, 800 * 1024), LEASE_MS) for number in range(3)])
    waiting, _ = store.settle([defer_for(joining(number, 8 * 1024), LEASE_MS) for number in (1, 2)])
    assert waiting == 103
    waiting, _ = store.settle([("done", joining(0).name)] * 2)
    assert waiting == 3

    assert store.settle([("done", joining(number).name) for number in range(3)]) == (0, 0)
    assert call(redis_client, "HGET", GROUP, "held_bytes") is None


def test_a_batch_comes_again_without_the_tasks_that_joined_since(store: Store, redis_client: Client) -> None:
    """After a kill the same tasks make the same mail, which is recognisable; the others keep their time."""
    store.settle([defer_for(joining(number, together=True), 0) for number in (1, 2)])
    assert offsets(take(store)) == [1, 2]
    store.settle([defer_for(joining(number, together=True), due_ms) for number, due_ms in ((3, 0), (4, 4_000_000_000_000))])
    age_tasks(redis_client)

    again = take(store)
    assert [(taken.task.offset, taken.out) for taken in again.work] == [(1, 2), (2, 2)]
    store.settle([done(taken) for taken in again.work])
    assert offsets(take(store)) == [3, 4]


def test_a_task_that_joins_while_others_are_leased_does_not_wait_for_them(store: Store) -> None:
    """Those are in work, and will be answered."""
    store.settle([defer_for(joining(number, together=True), 0) for number in (1, 2)])
    take(store)
    store.settle([defer_for(joining(3, together=True), 0)])

    assert offsets(take(store)) == [3]


# Dead letters --------------------------------------------------------------------------------------------------------------


def test_dead_letters_are_bounded_and_drops_counted(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """The newest stay."""
    publisher.publish_many([("a", number) for number in range(5)])
    work = take(store).work

    dropped = [store.settle([done(each), dead(each.task, "rejected", "no", 3)])[1] for each in work]

    assert dropped == [0, 0, 0, 1, 1]
    assert call(redis_client, "XLEN", f"{GROUP}:dead") == 3
    assert (totals(redis_client)["dead"], totals(redis_client)["dead_dropped"]) == (5, 2)


# How far it has come -------------------------------------------------------------------------------------------------------


def nothing_open(store: Store) -> bool:
    progress = store.progress()
    return progress.handled_ms == progress.now_ms


def test_progress_is_the_time_of_the_oldest_open_event(unopened: Store, publisher: Publisher, redis_client: Client) -> None:
    """Not yet leased, leased, and leased as a task; a deferred one counts as answered."""
    assert unopened.progress().handled_ms == 0  # it was never opened
    unopened.open("new")
    assert nothing_open(unopened)  # no log, nothing to wait for
    call(redis_client, "XADD", LOG, "1-0", "topic", "a", "id", "x", "time", "1000", "data", "1")
    call(redis_client, "XADD", LOG, "2-0", "topic", "a", "id", "y", "time", "2000", "data", "1")
    call(redis_client, "HSET", HEAD, "epoch", "0123456789abcdef", "offset", 2, "time", 2000)
    assert unopened.progress().handled_ms == 0  # the group has not seen this log yet
    (first,) = take(unopened, count=2).work[:1]
    assert unopened.progress().handled_ms == 1000

    unopened.settle([done(first), defer_for(first.task, 0)])
    assert unopened.progress().handled_ms == 2000
    unopened.settle([("ack", "0123456789abcdef", "2-0")])
    assert nothing_open(unopened)
    take(unopened)
    assert unopened.progress().handled_ms == 1000


def test_now_is_never_before_the_newest_event(unopened: Store, publisher: Publisher, redis_client: Client) -> None:
    """When Redis' clock went back."""
    publisher.publish("a", 1)
    unopened.open("new")
    ahead = int(call(redis_client, "HGET", HEAD, "time")) + 3_600_000
    call(redis_client, "HSET", HEAD, "time", ahead)

    assert unopened.progress().now_ms == ahead


# Waiting ---------------------------------------------------------------------------------------------------------------------


def test_a_wait_ends_with_the_next_event(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """At once, when it is there already."""
    publisher.publish("a", 1)
    store.wait(0, 3600)
    waiting = threading.Thread(target=store.wait, args=(1, 3600))
    waiting.start()
    wait_until(lambda: call(redis_client, "INFO", "clients")["blocked_clients"] == 1, "the wait to begin")
    publisher.publish("a", 2)
    waiting.join()


# Refusals ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("headgate_group_open", "mail", "sometime"),
        ("headgate_group_open", "mail"),
        ("headgate_group_open", "two words", "new"),
        ("headgate_group_open", "m" * 65, "new"),
        ("headgate_group_take", "mail", 1, 1, 1),
        ("headgate_group_take", "mail", 1001, 1, 1),
        ("headgate_group_take", "mail", 10, 0, 1),
        ("headgate_group_take", "mail", "many", 1, 1),
        ("headgate_group_settle", "mail", "forget", "1-0"),
        ("headgate_group_settle", "mail", "defer", "1-0"),
        ("headgate_group_renew", "mail"),
        ("headgate_state_rate", "mail", "x", 0, 1, "u"),
        ("headgate_state_lease", "mail", "x", "me"),
        ("headgate_state_window", "mail", "x", "long"),
    ],
    ids=str,
)
def test_other_arguments_are_refused_and_leave_nothing(redis_client: Client, command: tuple[Any, ...]) -> None:
    """A call that makes no sense has written nothing."""
    function, *arguments = command
    with pytest.raises(InvalidRequest):
        GROUP_LIBRARY.call(redis_client, "FCALL", function, 1, LOG, *arguments)
    assert call(redis_client, "KEYS", "*") == []


@pytest.mark.parametrize("key", ["log", "hg:{}:log", HEAD, "hg:{a b}:log"])
def test_other_keys_are_refused(redis_client: Client, key: str) -> None:
    """The library writes nowhere but in a namespace."""
    with pytest.raises(UnknownNamespace):
        GROUP_LIBRARY.call(redis_client, "FCALL", "headgate_group_open", 1, key, "mail", "new")


READS = "+fcall +fcall_ro +time +hmget +hget +hexists +hstrlen +hkeys "
READS += "+xlen +zscore +zcard +zrange +zrangebyscore +zrangebylex +xrange +xpending"
WRITES = "+xgroup +xreadgroup +xclaim +xack +xadd +xdel +hset +hdel +hincrby +zadd +zrem"


@pytest.mark.parametrize("missing", ["", *WRITES.split()])
def test_a_missing_right_refuses_before_the_first_write(
    store: Store, publisher: Publisher, redis_client: Client, as_user: Callable[..., Client], limited_url: str, missing: str
) -> None:
    """Half a step would lose an event or double it; with all documented rights, everything goes."""
    publisher.publish_many([("a", 1), ("a", 2)])
    (one, _) = take(store).work
    publisher.publish("a", 3)
    rights = f"{READS} {WRITES}".replace(f" {missing}", "") if missing else f"{READS} {WRITES}"
    limited = Store(as_user("-@all", *rights.split()), limited_url, "notifications", "mail", 65536)

    def state() -> Any:
        return (
            call(redis_client, "HGETALL", GROUP), call(redis_client, "ZRANGE", f"{GROUP}:held", 0, -1),
            count_leased(redis_client, "mail"), call(redis_client, "XLEN", f"{GROUP}:dead"),
        )  # fmt: skip

    refusals: list[BusRefused] = []
    for step in (
        lambda: limited.settle([done(one), defer_for(one.task, LEASE_MS), dead(one.task, "rejected", "no", 10)]),
        lambda: take(limited),
    ):
        before = state()
        try:
            step()
        except BusRefused as error:
            refusals.append(error)
            assert state() == before

    assert bool(refusals) == bool(missing)
    assert all("permission" in error.message for error in refusals)


def test_acknowledgements_go_at_once_and_are_confirmed_together(
    store: Store, publisher: Publisher, redis_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They arrive though no caller waits for their answers, and after a hundred of them one should."""
    monkeypatch.setattr(stores, "UNCONFIRMED_S", 3600.0)
    publisher.publish_many([("a", number) for number in range(MAX_UNCONFIRMED + 1)])
    page = take(store, MAX_UNCONFIRMED + 1)
    assert store.acknowledge(page.epoch, [1])  # at first there is no connection
    store.confirm()

    due = [store.acknowledge(page.epoch, [offset]) for offset in range(2, MAX_UNCONFIRMED + 2)]

    assert due == [False] * (MAX_UNCONFIRMED - 1) + [True]
    wait_until(lambda: count_leased(redis_client, "mail") == 0, "all acknowledgements to arrive")
    store.confirm()
    assert not store.acknowledge(page.epoch, [1])
    monkeypatch.setattr(stores, "UNCONFIRMED_S", -1.0)
    assert store.acknowledge(page.epoch, [1])  # it has been on its way for too long


def test_acknowledgements_of_a_cut_connection_go_again(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """Trouble shows when they are confirmed, and nothing is forgotten over it."""
    publisher.publish_many([("a", number) for number in range(3)])
    page = take(store)
    store.acknowledge(page.epoch, [1])
    store.confirm()
    call(redis_client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    store.acknowledge(page.epoch, [2])
    store.acknowledge(page.epoch, [3])

    with suppress(BusUnavailable):  # the second may have found the connection closed, and then there is a new one already
        store.confirm()
    store.confirm()

    assert count_leased(redis_client, "mail") == 0


def test_a_refused_acknowledgement_is_told(
    store: Store, publisher: Publisher, redis_client: Client, as_user: Callable[..., Client], limited_url: str
) -> None:
    """And given again with the next confirmation."""
    publisher.publish("a", 1)
    page = take(store)
    limited = Store(as_user("-@all"), limited_url, "notifications", "mail", 65536)

    limited.acknowledge(page.epoch, [1])
    with pytest.raises(BusRefused, match="permission"):
        limited.confirm()
    call(redis_client, "ACL", "SETUSER", "limited", "+xack")
    limited.confirm()

    assert count_leased(redis_client, "mail") == 0
    limited.close()


def test_a_consumer_that_starts_replaces_an_older_library(redis_client: Client, unopened: Store) -> None:
    """A newer one stays."""
    for loaded, after in ((GROUP_LIBRARY.version - 1, GROUP_LIBRARY.version), (GROUP_LIBRARY.version + 1,) * 2):
        source = GROUP_LIBRARY.source.replace(f"local VERSION = {GROUP_LIBRARY.version}\n", f"local VERSION = {loaded}\n")
        call(redis_client, "FUNCTION", "LOAD", "REPLACE", source)
        unopened.open("new")
        assert GROUP_LIBRARY.loaded_version(redis_client) == after


# A full Redis --------------------------------------------------------------------------------------------------------------


def test_a_full_redis_takes_answers_renewals_and_a_removal(store: Store, publisher: Publisher, redis_client: Client) -> None:
    """They free memory; refused, they would keep a full Redis full for ever."""
    publisher.publish_many([("a", number) for number in range(10)])
    page = take(store)
    store.settle([answer for leased in page.work for answer in (done(leased), defer_for(leased.task, 0))])
    waiting = take(store).work
    with full_memory(redis_client):
        with pytest.raises(BusRefused, match="out of memory"):
            publisher.publish("a", "more")
        store.renew([leased.name for leased in waiting], LEASE_MS)
        still_waiting, _ = store.settle([done(leased) for leased in waiting[:4]])
        assert still_waiting == len(waiting) - 4
        GROUP_LIBRARY.call(redis_client, "FCALL", "headgate_group_remove", 1, LOG, "mail", 0)

    assert call(redis_client, "KEYS", f"{GROUP}*") == []


def test_a_consumer_that_starts_in_a_full_redis_finishes_the_tasks_that_fill_it(
    store: Store, publisher: Publisher, redis_client: Client
) -> None:
    """Its group is opened; a new consumer's group too, which takes events once there is room."""
    publisher.publish_many([("a", number) for number in range(2)])
    store.settle([answer for leased in take(store).work for answer in (done(leased), defer_for(leased.task, 0))])
    with full_memory(redis_client):
        assert store.open("new")[1] == 2
        assert store.settle([done(leased) for leased in take(store).work]) == (0, 0)
        GROUP_LIBRARY.call(redis_client, "FCALL", "headgate_group_open", 1, LOG, "another", "new")
