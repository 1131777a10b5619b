"""Rates in the shared table, on a small Redis in this process: reported, received, lost and removed."""

from collections.abc import Iterator

import pytest

from headgate.auth.admission import FailedLogins
from headgate.errors import LimitReached
from headgate.redis.keys import table_key
from headgate.redis.shared_table import SharedTable
from headgate.runtime.shared_rates import SharedRates
from tests.support.small_redis import SmallRedis


class Process:
    """A gateway process as far as rates go: two of them, and its table."""

    def __init__(self, server: SmallRedis, number: int) -> None:
        self.publishes, self.reads = (SharedRates(label, 1, 10, lambda: float(server.now_s)) for label in ("publish", "read"))
        clock = lambda: float(server.now_s)  # noqa: E731
        self.table = SharedTable(server.client(), ["shop"], lambda: f"process {number}", clock, clock)
        self.share(self.publishes)
        self.share(self.reads)
        self.table.turn()

    def share(self, rates: SharedRates) -> None:
        rates.wanted = self.table.add(rates)


@pytest.fixture
def pair(server: SmallRedis) -> Iterator[tuple[Process, Process]]:
    """Two processes that know of each other."""
    one, two = Process(server, 1), Process(server, 2)
    one.table.turn()
    yield one, two
    one.table.close()
    two.table.close()


def left(rates: SharedRates, server: SmallRedis) -> int:
    """Spend all that a caller may; return how much that was."""
    return next(count for count in range(100) if rates.spend("ana", server.now_s))


def test_what_one_process_lets_a_caller_spend_the_others_take_off(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """Each rate for itself."""
    one, two = pair
    one.publishes.spend("ana", server.now_s, 7)
    assert one.table._task._wakeup.is_set()
    one.table.turn()
    two.table.turn()
    assert (left(two.publishes, server), left(two.reads, server)) == (3, 10)


def test_failed_logins_of_an_address_are_told_like_a_rate(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """Of an IPv6 address as well."""
    logins = [FailedLogins(0.5, 3, lambda: float(server.now_s)) for _ in pair]
    for process, failed in zip(pair, logins, strict=True):
        process.share(failed.rates)
        process.table.turn()
    pair[0].table.turn()
    for _ in range(3):
        logins[0].failed("2001:db8::/64", server.now_s)
    for process in pair:
        process.table.turn()
    with pytest.raises(LimitReached):
        logins[1].check("2001:db8::/64", server.now_s)
    logins[1].check("192.0.2.7", server.now_s)


def test_a_jump_of_the_clock_or_a_kill_counts_nothing_twice(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """A jump ends all leases, as a death ends one. All report theirs again, and each keeps its share until then."""
    one, two = pair
    here_s = float(server.now_s)
    for process in pair:
        process.publishes._now_s = lambda: here_s  # the processes' own clocks do not jump
    one.publishes.spend("ana", here_s, 7)
    one.table.turn()
    two.table.turn()
    for jump_s in (3600, -7200, 3600):
        server.now_s += jump_s
        for _ in range(3):
            one.table.turn()
            two.table.turn()
    three = Process(server, 3)
    one.table.close()  # killed; no process hears of it again
    two.table.turn()
    for process in (two, three):
        assert next(count for count in range(100) if process.publishes.spend("ana", here_s)) == 3
    three.table.close()


def test_what_redis_has_lost_is_told_anew(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """Found out with the next look; nothing is taken off twice."""
    one, two = pair
    one.publishes.spend("ana", server.now_s, 7)
    one.table.turn()
    two.table.turn()
    server.flush()
    for _ in range(3):
        one.table.turn()
        two.table.turn()
    assert "ana" in server._hashes[table_key("rates:publish", one.table.id)]
    assert left(two.publishes, server) == 3


@pytest.mark.parametrize("value", ["", "1", "-1 1", "1 x", "\xb2 1", "9" * 50 + " 1"])
def test_an_entry_that_is_no_spending_does_not_count(server: SmallRedis, pair: tuple[Process, Process], value: str) -> None:
    """Whatever has written it."""
    one, two = pair
    one.publishes.spend("ben", server.now_s, 7)
    one.table.turn()
    server._hset(table_key("rates:publish", one.table.id), "ana", value)
    two.table.turn()
    assert left(two.publishes, server) == 10
