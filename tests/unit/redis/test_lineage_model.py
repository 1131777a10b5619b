"""The argument of decision 18, tried: all interleavings to a depth, then random ones, of servers that lose the end of their log.

HEADGATE_HISTORIES sets how many random histories are tried, HEADGATE_SEED where they begin (`make fuzz`: 1,000,000).
"""

import os
import random
from collections.abc import Callable

import pytest

from tests.support.model_lineage import ALL_RULES, Broken, World

HISTORIES = int(os.environ.get("HEADGATE_HISTORIES", "1000"))
SEED = int(os.environ.get("HEADGATE_SEED", "1"))
STEPS = 100
# Faults are rare, so that they lose events that browsers have heard of.
WEIGHTS = {"publish": 5, "attach": 4, "fence": 4, "deliver": 4, "promote": 0.6, "crash": 0.2, "put_back": 0.2, "revert": 0.2}


def in_use(rules: frozenset[str] = ALL_RULES) -> World:
    """Three servers with the same two events, a gateway, and browsers that have one, two and none of them."""
    world = World(rules)
    for step in (
        *[("attach", 0, 0), ("connect", 0, 0), ("connect", 1, 0), ("publish", 0, 0), ("publish", 0, 0), ("fence", 0, 0)],
        *[("deliver", 0, 0), ("deliver", 1, 0), ("deliver", 1, 0), ("persist", 0, 0), ("replicate", 1, 0), ("replicate", 2, 0)],
    ):
        assert world.take(step), step
    return world


def explore(world: World, depth: int) -> int:
    """Take every step from every state; return how many states there were."""
    known = {world.key()}
    front = [world]
    for _ in range(depth):
        behind: list[World] = []
        for state in front:
            for step in state.steps():
                after = state.clone()
                if after.take(step) and (key := after.key()) not in known:
                    known.add(key)
                    behind.append(after)
        front = behind
    for state in front[:: max(1, len(front) // 2000)]:
        state.settle()
    return len(known)


def run(seed: int, rules: frozenset[str] = ALL_RULES) -> None:
    random_ = random.Random(seed)
    world = World(rules) if seed % 2 else in_use(rules)
    steps = world.steps()
    weights = [random_.choice((1, 1, 3, 9)) * WEIGHTS.get(step[0], 2) for step in steps]
    for step in random_.choices(steps, weights, k=STEPS):
        world.take(step)
    world.settle()


@pytest.mark.parametrize(
    ("begin", "depth", "states"),
    [
        (World, 4, 500),
        (in_use, 4, 2_000),
        pytest.param(World, 5, 2_000, marks=pytest.mark.nightly),
        pytest.param(in_use, 5, 10_000, marks=pytest.mark.nightly),
    ],
)
def test_every_interleaving_to_a_depth(begin: Callable[[], World], depth: int, states: int) -> None:
    """No two events have one name; a browser holds the log's events; no present event is reported as lost."""
    assert explore(begin(), depth) > states


def test_random_histories() -> None:
    """The same over long histories: 100,000 steps in the test command."""
    for seed in range(SEED, SEED + HISTORIES):
        try:
            run(seed)
        except Broken as broken:
            raise AssertionError(f"HEADGATE_SEED={seed}: {broken}") from broken


@pytest.mark.parametrize("rule", sorted(ALL_RULES))
def test_no_rule_can_be_left_out(rule: str) -> None:
    """Without one of the rules the oracle finds a broken promise: an unreported loss, or a false one."""
    assert any(is_broken(seed, ALL_RULES - {rule}) for seed in range(4000))


def is_broken(seed: int, rules: frozenset[str]) -> bool:
    try:
        run(seed, rules)
    except Broken:
        return True
    return False
