"""Shared rates on a clock of the test's own: processes report to each other what callers have spent when the test says so."""

import random

import pytest

from headgate.runtime import shared_rates
from headgate.runtime.shared_rates import OUT_OF_TOUCH_S, SETTLE_S, SharedRates


class World:
    """Processes with one rate each, and their reports."""

    def __init__(self, processes: int, per_s: float = 2, burst: int = 10) -> None:
        self.now_s = 0.0
        self.per_s, self.burst = per_s, burst
        self.rates = [self._made() for _ in range(processes)]
        self.told: list[dict[str, bytes | None]] = [{} for _ in range(processes)]
        self.look()

    def _made(self) -> SharedRates:
        return SharedRates("publish", self.per_s, self.burst, lambda: self.now_s)

    def spend(self, process: int, count: int = 1, name: str = "ana") -> bool:
        return not self.rates[process].spend(name, self.now_s, count)

    def spend_all(self, process: int, name: str = "ana") -> int:
        """Spend all there is; return how much that was."""
        spent = 0
        while self.spend(process, name=name):
            spent += 1
        return spent

    def look_of(self, process: int) -> None:
        for name, spending in self.rates[process].fields(whole_row=False).items():
            if spending is None:
                self.told[process].pop(name, None)
            else:
                self.told[process][name] = spending.encode()
        others = {str(other): dict(told) for other, told in enumerate(self.told) if other != process}
        self.rates[process].receive(others, lost=False)

    def look(self) -> None:
        """Let each process look, and each once more, so that all have heard of all."""
        for _ in range(2):
            for process in range(len(self.rates)):
                self.look_of(process)


def test_a_caller_has_one_burst_and_one_rate_at_all_processes() -> None:
    """With a look between, the spent part of one is gone at the others."""
    world = World(3)
    assert world.spend(0, 8)
    world.look()
    assert [world.spend(process, 3) for process in range(3)] == [False] * 3
    assert world.spend(1, 2)
    world.look()
    assert not any(world.spend(process) for process in range(3))
    world.now_s = 3
    assert world.spend_all(2) == 6


def test_between_two_looks_each_process_may_let_a_burst_go_which_is_paid_back() -> None:
    """No caller waits for the others, and the rate holds in the long run."""
    world = World(3)
    assert [world.spend_all(process) for process in range(3)] == [10, 10, 10]
    world.look()
    world.now_s = 10  # 20 of the 30 are back; the bucket is empty
    assert not any(world.spend(process) for process in range(3))
    world.now_s = 11
    assert world.spend_all(0) == 2


def test_a_caller_whose_bucket_is_full_is_told_no_more() -> None:
    """What it spends from then on counts from zero."""
    world = World(2)
    world.spend(0, 4)
    world.look()
    assert world.told[0] == {"ana": b"4 4"}
    world.now_s = 60
    world.look()
    assert world.told == [{}, {}]
    world.spend(0, 3)
    world.look()
    assert world.spend_all(1) == 7


def test_a_process_that_starts_learns_what_callers_lack() -> None:
    """Once, though several report it; old spending is not counted again."""
    world = World(2)
    world.now_s = 100
    for _ in range(50):
        world.now_s += 1
        world.spend(0, 2)
        world.look()
    world.spend(1, 5)
    world.look()
    missing = int((world.told[1]["ana"] or b"").partition(b" ")[2])
    world.rates.append(world._made())
    world.told.append({})
    world.look()
    assert world.spend_all(2) == 10 - missing


def test_a_process_with_another_setting_locks_nobody_out() -> None:
    """As while gateways are replaced, its bucket may lack more than one here can hold."""
    world = World(2)
    world.rates[0].receive({"old": {"ana": b"9000 9000"}}, lost=False)
    world.now_s = 2 * world.burst / world.per_s
    assert world.spend_all(0) == 10


def test_what_has_happened_is_charged_and_a_bucket_that_may_not_owe_is_empty_at_worst() -> None:
    """Others do not make its caller wait longer than it would alone."""
    now_s = 0.0
    rates = SharedRates("login", 2, 10, lambda: now_s, owes=False)
    assert rates.wait_s("ana", now_s) == 0
    for _ in range(25):
        rates.charge("ana", now_s)
    rates.receive({"other": {}}, lost=False)
    rates.receive({"other": {"ana": b"100 10"}}, lost=False)
    assert rates.wait_s("ana", now_s) == 0.5
    assert rates.fields(whole_row=False) == {"ana": "25 10"}


def test_without_redis_each_process_keeps_its_share() -> None:
    """Together they keep to the rate; with a look it is whole again."""
    world = World(2)
    world.spend_all(0)
    world.spend_all(1)
    world.look()
    world.now_s = OUT_OF_TOUCH_S + 1
    for rates in world.rates:
        rates.fields(whole_row=True)  # and the look fails
    world.spend_all(0)
    world.spend_all(1)
    world.now_s += 4
    assert [world.spend_all(process) for process in range(2)] == [4, 4]  # of 8
    world.now_s += 0.001
    world.look()
    world.now_s += 20
    assert world.spend_all(0) == 10


def test_after_a_flush_nothing_is_counted_twice() -> None:
    """All report theirs again, and each keeps its share until then."""
    world = World(2)
    world.spend(0, 4)
    world.look()
    world.told = [{}, {}]
    for process in range(2):
        world.told[process] = {
            name: each.encode() for name, each in world.rates[process].fields(whole_row=True).items() if each is not None
        }
    for process in range(2):
        world.rates[process].receive({str(1 - process): world.told[1 - process]}, lost=True)
    assert world.spend_all(1) == 6
    assert world.rates[1]._per_s == 1
    world.now_s = SETTLE_S
    world.look()
    assert world.rates[1]._per_s == 2


def test_only_so_many_callers_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have the rate of each process; a place is free when a bucket is full again."""
    monkeypatch.setattr(shared_rates, "MAX_SHARED", 2)
    world = World(2)
    for name in ("ana", "ben", "cem"):
        assert world.spend_all(0, name) == 10
    world.look()
    assert [world.spend_all(1, name) for name in ("ana", "ben", "cem")] == [0, 0, 10]
    world.now_s = 100
    world.look()
    assert world.spend_all(0, "cem") == 10
    world.look()
    assert world.spend_all(1, "cem") == 0


def test_a_look_is_wanted_once_for_many_spendings() -> None:
    """And again for later spending. A refused caller has spent nothing."""
    wanted: list[None] = []
    rates = SharedRates("publish", 1, 3, lambda: 0.0)
    rates.wanted = lambda: wanted.append(None)
    for _ in range(5):
        rates.spend("ana", 0.0)
    assert (len(wanted), rates.fields(whole_row=False)) == (1, {"ana": "3 3"})
    assert rates.borrow("ben", 0.0, 0.0) == 0
    assert rates.borrow("ana", 0.0, 0.5) is None
    assert (len(wanted), rates.fields(whole_row=False)) == (2, {"ben": "1 1"})


def test_a_caller_that_was_forgotten_is_told_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its bucket goes its spending."""
    monkeypatch.setattr("headgate.runtime.rates.MAX_CALLERS", 2)
    rates = SharedRates("publish", 1, 3, lambda: 0.0)
    for name in ("ana", "ben", "cem", "dan"):
        rates.spend(name, 0.0)
    assert set(rates._spent) <= set(rates._buckets) | {"dan"}


@pytest.mark.parametrize("seed", range(6))
def test_the_rate_holds_where_each_process_looks_at_times_of_its_own(seed: int) -> None:
    """A caller that takes all it can, everywhere; one process dies now and then, and another one begins."""
    chance = random.Random(seed)
    processes = chance.randint(2, 4)
    world = World(processes, per_s=10, burst=10)
    looked_s = [0.0] * processes
    spent = deaths = 0
    while world.now_s < 300:
        world.now_s += chance.choice([0.25, 0.5])
        for process in range(processes):
            if chance.random() < 0.5:
                spent += world.spend_all(process)
            if world.now_s - looked_s[process] >= chance.choice([0.25, 1, 4.75]):
                world.look_of(process)
                looked_s[process] = world.now_s
        if chance.random() < 0.01:
            deaths += 1
            dead = chance.randrange(processes)
            world.rates[dead], world.told[dead] = world._made(), {}
    unheard = processes * (world.burst + 5 * world.per_s)
    assert spent <= world.per_s * world.now_s + (1 + deaths) * unheard


@pytest.mark.parametrize("seed", range(15))
def test_the_rate_holds_in_any_order_of_spendings_and_looks(seed: int) -> None:
    """Over all processes: the burst, the rate, and one burst more for each other process, however long it goes on."""
    chance = random.Random(seed)
    processes = chance.randint(1, 5)
    world = World(processes)
    spent = 0
    for _ in range(1500):
        step = chance.random()
        if step < 0.6:
            spent += world.spend(chance.randrange(processes))
        elif step < 0.9:
            world.look_of(chance.randrange(processes))
        else:
            world.now_s += chance.choice([0.125, 0.5, 1.0])
            world.look()
        assert spent <= processes * world.burst + world.per_s * world.now_s


def test_a_caller_may_wait_for_its_turn() -> None:
    """Each token that it borrows takes longer, up to the limit of the wait."""
    rates = SharedRates("read", 1, 1, lambda: 0.0)
    assert [rates.borrow("ana", 0, 1.5) for _ in range(3)] == [0, 1, None]
    assert rates.borrow("bob", 0, 0) == 0
