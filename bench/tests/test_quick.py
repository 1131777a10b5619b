"""The comparison of the quick bench: it complains of what became worse by more than is tolerated, and of nothing else."""

from __future__ import annotations

import json

import pytest

from bench import quick
from bench.quick import Ratio


def ratio(name: str, *figures: tuple[float, float], more_is_better: bool = True) -> Ratio:
    """A ratio whose rounds measure these figures."""
    rounds = iter(figures)
    return Ratio(name, f"the {name}", lambda: next(rounds), more_is_better)


@pytest.mark.parametrize(
    ("more_is_better", "now", "complains"),
    [(True, 1.0, False), (True, 0.8, False), (True, 0.7, True), (True, 3.0, False), (False, 1.25, False), (False, 1.4, True)],
)
def test_only_a_change_for_the_worse_beyond_the_tolerance_is_told(more_is_better: bool, now: float, complains: bool) -> None:
    """Three tenths are tolerated, in the worse direction."""
    told = quick.complaints([ratio("speed", more_is_better=more_is_better)], {"speed": now}, {"speed": 1.0})
    assert bool(told) == complains


def test_the_sentence_says_the_figures() -> None:
    """Name, both figures, how much worse, and the tolerance."""
    (told,) = quick.complaints([ratio("speed")], {"speed": 0.5}, {"speed": 1.0})
    assert "`speed` (the speed) is 0.5, and 1 was committed: 100% worse, and 30% is tolerated" in told


def test_a_ratio_that_was_never_committed_is_told() -> None:
    """Nothing to compare with is not a pass."""
    (told,) = quick.complaints([ratio("speed")], {"speed": 1.0}, {})
    assert "--write" in told


def test_a_ratio_is_the_median_of_its_rounds() -> None:
    """One disturbed round decides nothing."""
    assert quick.measured([ratio("speed", (1, 10), (9, 1), (3, 10))], 3) == {"speed": 0.3}


def test_each_ratio_has_been_committed() -> None:
    """`make bench-quick` compares all that it measures."""
    committed = json.loads(quick.COMMITTED.read_text())["ratios"]
    assert {found.name for found in quick.RATIOS} == set(committed)
