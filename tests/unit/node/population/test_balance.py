"""The balance: which process moves clients, how many and when it ends. Several processes on one simulated clock; no I/O."""

import math
from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.node.population.balance import ABOVE_MEAN, BUDGET, FEW, MEAN_TURNS, Balance, State

LOOK_S, TICK_S, AWAY_S = 5.0, 0.25, 0.5
# loads → the index of the process that a client comes to
Placement = Callable[[list[int]], int]


class Site:
    """Gateway processes with their clients. A client asked to move leaves within a second, and is back after half a second."""

    def __init__(self, loads: list[int], placement: Placement, seed: int = 0) -> None:
        self.random = Random(seed)
        self.loads = list(loads)
        self.placement = placement
        self.balances = [Balance() for _ in loads]
        self.told = [0] * len(loads)
        self.arrived = [0] * len(loads)
        self.most_arrived_in_a_second = 0
        self.now_s = 0.0
        self._leaving: list[tuple[float, int]] = []
        self._coming: list[float] = []
        # Each looks at a different moment, at earlier reports of the others.
        self._look_at_s = [self.random.uniform(0, LOOK_S) for _ in loads]
        self._said = list(loads)
        self._arrivals: list[float] = []

    def run(self, seconds: float, occasion: tuple[float, float] | None) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += TICK_S
            for index, balance in enumerate(self.balances):
                if self.now_s >= self._look_at_s[index]:
                    self._look_at_s[index] += LOOK_S
                    self._said[index] = self.loads[index]
                    others = [said for other, said in enumerate(self._said) if other != index]
                    balance.decide(self.now_s, self.loads[index], others, occasion)
                under_way = sum(at == index for _, at in self._leaving)
                for _ in range(balance.due(self.now_s, self.loads[index], under_way)):
                    self.told[index] += 1
                    self._leaving.append((self.now_s + self.random.random(), index))
            for at_s, index in [each for each in self._leaving if each[0] <= self.now_s]:
                self._leaving.remove((at_s, index))
                self.loads[index] -= 1
                self._coming.append(at_s + AWAY_S)
            for at_s in [each for each in self._coming if each <= self.now_s]:
                self._coming.remove(at_s)
                index = self.placement(self.loads)
                self.loads[index] += 1
                self.arrived[index] += 1
                self._arrivals.append(self.now_s)
            recent = [at_s for at_s in self._arrivals if at_s > self.now_s - 1]
            self._arrivals = recent
            self.most_arrived_in_a_second = max(self.most_arrived_in_a_second, len(recent))

    def over(self) -> int:
        """How many clients are above the share of their process, beyond the tolerance."""
        mean = sum(self.loads) / len(self.loads)
        return sum(max(0, load - math.floor(mean * ABOVE_MEAN + FEW)) for load in self.loads)


def to_the_least(loads: list[int]) -> int:
    return loads.index(min(loads))


LOADS = st.lists(st.integers(0, 400), min_size=1, max_size=6)


@settings(max_examples=60)
@given(LOADS, st.integers(0, 1000))
def test_processes_come_to_balance_and_move_no_more_than_needed(loads: list[int], seed: int) -> None:
    """With newcomers to the one that has fewest. Those with too many move their excess, the others no client."""
    site = Site(loads, to_the_least, seed)
    site.run(400, (0, 50))
    mean = sum(loads) / len(loads)
    assert site.over() == 0
    assert sum(site.loads) == sum(loads)
    for before, told in zip(loads, site.told, strict=True):
        if before <= mean * ABOVE_MEAN + FEW:
            assert told == 0
        else:
            assert told <= before - mean
    # It stays so.
    told_before = list(site.told)
    site.run(100, (0, 50))
    assert site.told == told_before


@settings(max_examples=30)
@given(LOADS, st.integers(0, 1000))
def test_it_ends_also_where_newcomers_come_to_any_process(loads: list[int], seed: int) -> None:
    """Some come back and move again; never more than the budget, and in the end no client moves."""
    site = Site(loads, lambda now: Random(seed + sum(now) + len(site._arrivals)).randrange(len(now)), seed)
    site.run(600, (0, 50))
    told_before = list(site.told)
    site.run(60, (0, 50))
    assert sum(site.told) - sum(told_before) <= len(loads) * FEW
    assert max(site.told) <= BUDGET * max(loads)


def test_a_proxy_that_brings_each_client_back_ends_it() -> None:
    """After three times the excess; a new occasion begins it again."""
    site = Site([300, 0], lambda loads: 0)
    site.run(600, (0, 50))
    assert site.told == [BUDGET * 150, 0]
    assert site.balances[0].state is State.SPENT
    site.run(600, (0, 50))
    assert site.told == [BUDGET * 150, 0]
    site.run(30, (700, 50))
    assert site.told[0] > BUDGET * 150


def test_a_process_takes_no_more_newcomers_per_second_than_it_was_said() -> None:
    """Three move 300 each to one, and those 900 take as long as one process needs for them."""
    site = Site([400, 400, 400, 0], to_the_least)
    site.run(32, (0, 20))
    assert 0 < sum(site.told) <= 15 * 20 + 4
    assert site.most_arrived_in_a_second <= 2 * 20
    site.run(60, (0, 20))
    assert site.over() == 0


def test_without_an_occasion_nobody_moves() -> None:
    """However unequal the loads are."""
    site = Site([500, 0, 0], to_the_least)
    site.run(60, None)
    assert site.told == [0, 0, 0]


def begun(own: int) -> Balance:
    """Return the balance of a process about to move half of its clients to another one."""
    balance = Balance()
    for number in range(MEAN_TURNS):
        assert balance.state is State.RESTING
        balance.decide(number * LOOK_S, own, [0], (0, 10))
    return balance


def test_more_clients_for_all_end_it_sooner() -> None:
    """The share rises with them; clients on their way, which are counted nowhere, do not lower it."""
    balance = begun(100)
    assert balance.target == 50
    balance.decide(25, 95, [90], None)
    assert balance.target == 93
    for now_s in range(30, 60, 5):
        balance.decide(now_s, 94, [10], None)
    assert balance.target == 93


def test_a_loop_that_was_blocked_does_not_make_up_for_it_at_once() -> None:
    """It asks as many as in one second, not as many as in the time in which it stood still."""
    balance = begun(1000)
    assert balance.due(60, 1000, 0) == 10
    assert balance.due(60, 1000, 10) == 0
