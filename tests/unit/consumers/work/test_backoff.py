"""Back-off: the ceiling doubles up to the last, and the jitter is full."""

import pytest

from headgate.consumers.work.worker import delay_s


@pytest.mark.parametrize(
    ("failures", "ceiling_s"), [(1, 1.0), (2, 2.0), (3, 4.0), (8, 128.0), (9, 256.0), (10, 300.0), (10**6, 300.0)]
)
def test_the_ceiling_doubles_up_to_the_last(failures: int, ceiling_s: float) -> None:
    """With the defaults: a second at first, five minutes at last, and no overflow after a million failures."""
    assert delay_s(failures, 1.0, 300.0, draw=lambda: 1.0) == ceiling_s


def test_the_jitter_is_full() -> None:
    """From nothing to the ceiling, as the draw has it."""
    assert [delay_s(3, 1.0, 300.0, draw=lambda part=part: part) for part in (0.0, 0.25, 1.0)] == [0.0, 1.0, 4.0]  # type: ignore[misc]


def test_draws_differ() -> None:
    """Those that failed together do not come back together."""
    assert len({delay_s(5, 1.0, 300.0) for _ in range(20)}) == 20


def test_a_last_wait_below_the_first_counts() -> None:
    """No wait is longer than the longest."""
    assert delay_s(1, 10.0, 2.0, draw=lambda: 1.0) == 2.0
