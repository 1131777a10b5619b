"""Received or told: the feed through random interleavings of everything that may happen between a gateway and Redis.

HEADGATE_HISTORIES sets how many (`make fuzz`: 100,000), HEADGATE_SEED tries one.
"""

from __future__ import annotations

import os

import pytest

from headgate.bus import feed as feed_module
from headgate.bus import interest as interest_module
from tests.support.feed_world import World

STEPS = 300
HISTORIES = int(os.environ.get("HEADGATE_HISTORIES", "2500"))


@pytest.fixture(autouse=True)
def near_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring the limits within reach of a short history."""
    monkeypatch.setattr(feed_module, "MAX_LEAP", 6)
    monkeypatch.setattr(interest_module, "MAX_GLOBS", 3)


def shortest(seed: int) -> tuple[int, AssertionError | Exception]:
    """Return the shortest prefix of a history that fails, and its error."""
    for steps in range(STEPS + 1):
        try:
            World(seed).run(steps)
        except Exception as error:
            return steps, error
    raise AssertionError(f"seed {seed} fails no more")


def test_every_event_is_received_in_order_and_once_or_told_before_anything_later() -> None:
    """A failure names its seed and the shortest prefix of its history that still fails."""
    inputs = 0
    seeds = [int(os.environ["HEADGATE_SEED"])] if "HEADGATE_SEED" in os.environ else range(1, HISTORIES + 1)
    for seed in seeds:
        world = World(seed)
        try:
            world.run(STEPS)
        except Exception as error:
            steps, first = shortest(seed)
            trail = " ".join(world.trail[:steps])
            pytest.fail(f"HEADGATE_SEED={seed}: {error!r}; shortest after {steps} steps: {first!r}\n{trail}")
        inputs += world.inputs
    print(f"{inputs} inputs and actions")
