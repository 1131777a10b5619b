"""The watch on rates, step by step on a small Redis in this process: told, heard, lost, away and taken out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.auth.admission import FailedLogins, LoginsThrottled
from headgate.node.cluster import telling
from headgate.node.cluster.rates_watch import RatesWatch
from headgate.node.cluster.telling import Telling
from headgate.redis.keys import PROCESSES
from headgate.runtime.shared_rates import SharedRates
from tests.support.small_redis import SmallRedis


class Process:
    """A gateway process as far as rates go: two of them, and its watch."""

    def __init__(self, server: SmallRedis, number: int) -> None:
        self.publishes, self.reads = (SharedRates(label, 1, 10, lambda: float(server.now_s)) for label in ("publish", "read"))
        self.telling = Telling(server.client())
        self.watch = RatesWatch(self.telling)
        self.telling.process_id = f"process {number}"
        self.watch.share(self.publishes)
        self.watch.share(self.reads)
        self.telling.look()


@pytest.fixture
def server() -> SmallRedis:
    """The Redis of all watches."""
    return SmallRedis()


@pytest.fixture
def pair(server: SmallRedis) -> Iterator[tuple[Process, Process]]:
    """Two processes that know of each other."""
    one, two = Process(server, 1), Process(server, 2)
    one.telling.look()
    yield one, two
    one.telling.close()
    two.telling.close()


def left(rates: SharedRates, server: SmallRedis) -> int:
    """Spend what a caller may; return how much that was."""
    return next(count for count in range(100) if rates.spend("ana", server.now_s))


def test_what_one_process_lets_a_caller_spend_the_others_take_off(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """Each rate for itself."""
    one, two = pair
    one.publishes.spend("ana", server.now_s, 7)
    assert one.telling._rounds.is_hurried
    one.telling.look()
    two.telling.look()
    assert (left(two.publishes, server), left(two.reads, server)) == (3, 10)


def test_failed_logins_of_an_address_are_told_like_a_rate(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """Of an IPv6 address as well, whose colons are no end of the label."""
    logins = [FailedLogins(0.5, 3, lambda: float(server.now_s)) for _ in pair]
    for process, failed in zip(pair, logins, strict=True):
        process.watch.share(failed.rates)
        process.telling.look()
    pair[0].telling.look()
    for _ in range(3):
        logins[0].failed("2001:db8::/64", server.now_s)
    for process in pair:
        process.telling.look()
    with pytest.raises(LoginsThrottled):
        logins[1].check("2001:db8::/64", server.now_s)
    logins[1].check("192.0.2.7", server.now_s)


def test_a_jump_of_the_servers_clock_and_a_process_that_is_killed_count_nothing_twice(
    server: SmallRedis, pair: tuple[Process, Process]
) -> None:
    """A jump ends all leases, as a death ends one: all tell theirs again, and meanwhile each keeps its share."""
    one, two = pair
    here_s = float(server.now_s)
    for process in pair:
        process.publishes._now_s = lambda: here_s  # the processes' own clocks do not jump
    one.publishes.spend("ana", here_s, 7)
    one.telling.look()
    two.telling.look()
    for jump_s in (3600, -7200, 3600):
        server.now_s += jump_s
        for _ in range(3):
            one.telling.look()
            two.telling.look()
    three = Process(server, 3)
    one.telling.close()  # killed: nobody hears of it again
    two.telling.look()
    for process in (two, three):
        assert next(count for count in range(100) if process.publishes.spend("ana", here_s)) == 3
    three.telling.close()


def test_what_redis_has_lost_is_told_anew(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """Found out with the next look; nothing is taken off twice."""
    one, two = pair
    one.publishes.spend("ana", server.now_s, 7)
    one.telling.look()
    two.telling.look()
    server.flush()
    for _ in range(3):
        one.telling.look()
        two.telling.look()
    assert "publish:ana" in server._hashes["hg:spendings:process 1"]
    assert left(two.publishes, server) == 3


def test_redis_that_is_away_costs_one_line(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """And all is told when it is back."""
    one, two = pair
    server.up = False
    one.publishes.spend("ana", server.now_s, 7)
    with capture_logs() as logs:
        one.telling.look()
        one.telling.look()
    assert [each["event"] for each in logs] == ["shared limits out of reach"]
    server.up = True
    one.telling.look()
    two.telling.look()
    assert left(two.publishes, server) == 3


def test_it_looks_by_itself_when_something_was_spent(server: SmallRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours does not end it. A process that closes is taken out, if Redis answers."""
    monkeypatch.setattr(telling, "GAP_S", 0.0)
    process = Process(server, 1)
    process.telling.start()
    process.telling.start()
    faults = [ValueError("a fault")]
    whole = process.watch.tell

    def faulty(*, anew: bool) -> Any:
        if faults:
            raise faults.pop()
        return whole(anew=anew)

    monkeypatch.setattr(process.watch, "tell", faulty)
    key = f"hg:spendings:{process.telling.process_id}"
    with capture_logs() as logs, gevent.Timeout(30):
        process.telling._rounds.hurry()
        while faults:
            gevent.sleep(0.001)
        process.publishes.spend("ana", server.now_s)
        while key not in server._hashes:
            gevent.sleep(0.001)
    assert "shared limits failed" in [each["event"] for each in logs]
    process.telling.close()
    process.telling.close()
    assert process.telling.process_id not in server._sets[PROCESSES]
    server.up = False
    other = Telling(server.client())
    other.start()
    other.close()
