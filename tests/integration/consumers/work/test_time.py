"""Leases and due times of a group in a real Redis with a wall clock that is set: an hour on, an hour back, once and again.

And those of a consumer on a machine that shows another time than Redis.
"""

from collections.abc import Iterator

import pytest

from headgate.consumers import Retry
from headgate.consumers.work.state import State
from headgate.consumers.work.store import Store, TaskPage, defer_for, done
from headgate.redis.client import Client, call
from headgate.redis.keys import group_in_log, log_key
from headgate.redis.time_watch import TimeWatch
from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from tests.support.recording_consumer import fail
from tests.support.stepped_worker import Site
from tests.support.wall_clock import HOUR_MS, WallClock

LEASE_MS = 30_000
SET = pytest.mark.parametrize("set_ms", [HOUR_MS, -HOUR_MS], ids=["on", "back"])


class Consumers:
    """A group, the wall clock of its Redis, and the true time, in which one instance watches."""

    def __init__(self, client: Client, url: str) -> None:
        self.wall = WallClock(client)
        self._true_s = 0.0
        self.store = Store(client, url, "notifications", "mail", 65536)
        self.publisher = Publisher(url)
        self._watch = TimeWatch(lambda: self._true_s)
        self.store.open("oldest")
        self._tick()

    def pass_time(self, ms: int) -> None:
        """Let true time pass, by seconds. Redis' wall clock runs with it, and the instance calls every five."""
        for second in range(ms // 1000):
            self._true_s += 1
            self.wall.advance(1000)
            if second % 5 == 4:
                self._tick()

    def forget(self) -> None:
        """Be another instance, which was not there before."""
        self._watch.observe(0)

    def take(self) -> TaskPage:
        """Hand out as much as possible."""
        page = self.store.take(100, LEASE_MS, 10_000, lambda topic: True)
        assert page is not None
        return page

    def _tick(self) -> None:
        self._watch.observe(self.store.tick(*self._watch.words()))


def set_idle(client: Client, page: TaskPage, ms: int) -> None:
    """Have Redis think that the entries of a page were handed out so long ago."""
    group = group_in_log("mail", page.epoch)
    ids = [f"{leased.task.offset}-0" for leased in page.work]
    claim = "return redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, unpack(ARGV, 2))"
    call(client, "EVAL", claim, 1, log_key("notifications"), group, *ids, "IDLE", ms, "JUSTID")


@pytest.fixture
def consumers(redis_client: Client, redis_url: str) -> Iterator[Consumers]:
    """A group on an empty log."""
    found = Consumers(redis_client, redis_url)
    yield found
    found.store.close()
    found.publisher.close()


@SET
def test_a_rate_has_room_again_after_its_period(consumers: Consumers, redis_client: Client, set_ms: int) -> None:
    """Neither at once nor an hour late. An attempt that was refused did not count."""
    state = State(consumers.store)
    assert state.within_rate("r", 1, 60) is None
    consumers.wall.advance(set_ms)
    consumers.pass_time(30_000)
    assert state.within_rate("r", 1, 60) is not None
    consumers.pass_time(41_000)  # the group's clock may stand still for ten seconds
    assert state.within_rate("r", 1, 60) is None


@SET
def test_a_delayed_task_is_due_when_its_time_has_passed(consumers: Consumers, set_ms: int) -> None:
    """Neither at once, as Redis' wall clock has it, nor an hour late."""
    consumers.publisher.publish("a", 1)
    (leased,) = consumers.take().work
    consumers.store.settle([done(leased), defer_for(leased.task, 60_000)])
    consumers.pass_time(20_000)

    consumers.wall.advance(set_ms)
    due = []
    for _ in range(6):
        due.append(len(consumers.take().work))
        consumers.pass_time(10_000)

    assert due in ([0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1])  # within the tolerance of ten seconds


@SET
def test_a_task_in_hand_is_not_handed_to_another(consumers: Consumers, set_ms: int) -> None:
    """As long as its lease is renewed, and for a lease after that."""
    consumers.publisher.publish("a", 1)
    (leased,) = consumers.take().work
    consumers.store.settle([done(leased), defer_for(leased.task, LEASE_MS, 1)])
    name = leased.task.name
    for turn in range(6):
        if turn in (2, 4):
            consumers.wall.advance(set_ms if turn == 2 else -set_ms)
        assert not consumers.take().work
        consumers.store.renew([name], LEASE_MS)
        consumers.pass_time(10_000)

    consumers.pass_time(LEASE_MS)

    assert [again.name for again in consumers.take().work] == [name]


def test_an_entry_in_hand_is_not_handed_to_another_before_a_lease_is_over(consumers: Consumers, redis_client: Client) -> None:
    """Redis keeps its lease by its own wall clock, so it starts again when that is set; and ends."""
    consumers.publisher.publish("a", 1)
    page = consumers.take()
    consumers.pass_time(15_000)
    consumers.wall.advance(HOUR_MS)
    set_idle(redis_client, page, HOUR_MS)  # Redis does this itself, and the test's wall clock is not the one for this

    assert not consumers.take().work
    set_idle(redis_client, page, LEASE_MS + 1000)

    (again,) = consumers.take().work
    assert (again.task.offset, again.out) == (1, 2)


@SET
def test_due_times_survive_another_process_with_another_wall_clock(consumers: Consumers, set_ms: int) -> None:
    """A failover to a machine that is an hour ahead, or slow."""
    consumers.publisher.publish("a", 1)
    (leased,) = consumers.take().work
    consumers.store.settle([done(leased), defer_for(leased.task, 60_000)])
    consumers.pass_time(30_000)

    consumers.wall.restart()
    consumers.wall.advance(set_ms)
    assert not consumers.take().work
    consumers.pass_time(5_000)
    assert not consumers.take().work
    consumers.pass_time(35_000)

    assert len(consumers.take().work) == 1


def test_what_was_due_while_all_were_stopped_is_handed_out_soon(consumers: Consumers) -> None:
    """Without a watcher for an hour: an instance that comes then believes the wall clock when none has contradicted for 20 s."""
    consumers.publisher.publish("a", 1)
    (leased,) = consumers.take().work
    consumers.store.settle([done(leased), defer_for(leased.task, HOUR_MS // 2)])
    consumers.wall.advance(HOUR_MS)
    consumers.forget()

    assert not consumers.take().work
    consumers.pass_time(25_000)

    assert len(consumers.take().work) == 1


def test_what_is_stored_after_all_were_stopped_waits_its_whole_time(consumers: Consumers) -> None:
    """The clock catches up with the hour twenty seconds later, which ends neither a wait nor a lease."""
    consumers.publisher.publish_many([("a", 1), ("a", 2)])
    for leased in consumers.take().work:
        consumers.store.settle([done(leased), defer_for(leased.task, 0)])
    deferred, in_hand = consumers.take().work
    consumers.wall.advance(HOUR_MS)
    consumers.forget()

    consumers.store.settle([defer_for(deferred.task, 600_000)])
    consumers.store.renew([in_hand.name], 600_000)

    consumers.pass_time(590_000)
    assert consumers.take().work == []
    consumers.pass_time(20_000)
    assert len(consumers.take().work) == 1


def due_in_s(client: Client) -> list[float]:
    """Return after how long each waiting task is due."""
    seconds, _ = call(client, "TIME")
    due = call(client, "ZRANGE", "hg:{notifications}:group:mail:held", 0, -1, "WITHSCORES")
    return [float(at_ms) / 1000 - int(seconds) for at_ms in due[1::2]]


@pytest.mark.parametrize("ahead_s", [3600, -3600])
@pytest.mark.parametrize("how", ["unless_read_s", "rate"])
def test_a_wait_is_as_long_where_the_machine_shows_another_time_than_redis(site: Site, how: str, ahead_s: float) -> None:
    """Else an hour more, or none at all, which reminds people of items that they have just read."""
    site.clock.set_ahead(ahead_s)
    worker = site.make(**{"unless_read_s": {"unless_read_s": 600}, "rate": {"rate": 1, "rate_period_s": 600}}[how])
    inbox = Inbox(site.publisher)
    for number in (1, 2):
        inbox.send("ann", "news", number)

    worker.work()

    waiting = due_in_s(site.redis)
    assert len(waiting) == (2 if how == "unless_read_s" else 1)
    assert all(590 < left_s <= 602 for left_s in waiting)


def test_a_wait_is_as_long_long_after_the_wall_clock_of_redis_was_set_back(site: Site, redis_client: Client) -> None:
    """Events of a log do not go back in time, so that one of now has the time before the clock was set."""
    wall, inbox = WallClock(redis_client), Inbox(site.publisher)
    worker = site.make(unless_read_s=600)
    inbox.send("ann", "news", 1)
    worker.work()
    wall.advance(-HOUR_MS)
    for _ in range(80):
        worker.store.tick()
        site.publisher.publish("other", 0)
        wall.advance(9_000)
    inbox.send("ann", "news", 2)

    worker.work()

    assert [value for value in site.values() if value] == [1]
    assert worker.waiting() == 1


def test_a_consumer_that_begins_after_the_wall_clock_of_redis_was_set_on_waits_as_long(site: Site, redis_client: Client) -> None:
    """Its clock is the wall clock, of which the log's differs."""
    wall, inbox = WallClock(redis_client), Inbox(site.publisher)
    site.publisher.publish("other", 0)
    wall.advance(HOUR_MS)
    site.publisher.publish("other", 0)
    worker = site.make(unless_read_s=600)
    inbox.send("ann", "news", 1)

    worker.work()

    assert (site.values(), worker.waiting()) == ([], 1)


def test_a_machine_whose_clock_is_set_gives_nothing_up(site: Site) -> None:
    """It booted without a clock, and the time server set it a year ahead between two attempts."""
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("busy")) if delivery.attempt == 1 else None)
    worker = site.make()
    site.publisher.publish("a", 1)
    worker.work()

    site.clock.set_ahead(365 * 86400)
    worker.finish()

    assert site.values() == [1, 1]
    assert not call(site.redis, "EXISTS", "hg:{notifications}:group:mail:dead")
