"""Received or told, in order, once: clients, log readers and the live feed through random histories, with a naive oracle.

HEADGATE_HISTORIES sets how many histories, HEADGATE_SEED replays one.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.support.model_delivery import SMALL, World

HISTORIES = int(os.environ.get("HEADGATE_HISTORIES", "500"))
STEPS = 200


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, chunks and turns of a pass so small that a short history meets their edges."""
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


def history(seed: int) -> World:
    """Live through one history; an AssertionError carries its seed and its steps."""
    world = World(seed)
    try:
        for number in range(STEPS):
            world.step()
            if number % 4 == 0:
                world.check()
        world.settle()
    except Exception as error:
        error.add_note(f"HEADGATE_SEED={seed}: " + " ".join(world.trail))
        raise
    return world


def test_whatever_happens_an_event_is_received_in_order_and_once_or_told_before_anything_later() -> None:
    """Slow and polling browsers, full queues of every policy, pasts, resumes, trimmed and lost logs, lost messages."""
    one = os.environ.get("HEADGATE_SEED")
    seeds = [int(one)] if one else range(1, HISTORIES + 1)
    taken: Counter[str] = Counter()
    steps = 0
    for seed in seeds:
        world = history(seed)
        steps += world.steps
        for (_, step), count in world.taken.items():
            taken[step] += count
    print(f"{len(seeds)} histories, {steps} steps, {sum(taken.values())} steps of states: {dict(taken)}")
