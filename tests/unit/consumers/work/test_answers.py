"""The answers of a consumer's code, and the back-off after failures: its ceiling doubles up to the last, its jitter is full."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headgate.consumers import Defer
from headgate.consumers.work.worker import _checked_keys, _delay_ms, delay_s
from headgate.errors import InvalidRequest


async def coroutine() -> None:
    """As of an `async def handle`."""


NO_TIMES: list[Any] = ["x", datetime(2026, 1, 1, tzinfo=UTC), float("nan"), True]


@pytest.mark.parametrize("answer", [True, 5, "later", coroutine, *map(Defer, NO_TIMES), Defer(0, "false")])  # type: ignore[arg-type]
def test_an_answer_that_is_none_is_named(answer: Any) -> None:
    """The error names the allowed answers."""
    with pytest.raises(TypeError, match=r"expected None or Defer\(seconds since 1970\), got "):
        _delay_ms(answer)


def test_a_time_that_is_over_is_now() -> None:
    """And one beyond every limit is a year from now."""
    assert (_delay_ms(Defer(0)), _delay_ms(Defer(float("-inf")))) == (0, 0)
    assert 365 * 86_400_000 < _delay_ms(Defer(float("inf"))) < 367 * 86_400_000


@pytest.mark.parametrize("keys", ["ana", 5, [1], [None], {"ana": 1}, ["\ud800"]])
def test_keys_that_are_none_are_named(keys: Any) -> None:
    """A text would be its characters, and a surrogate cannot be stored."""
    with pytest.raises((TypeError, InvalidRequest, UnicodeEncodeError), match=r"keys: expected a list of texts, got|surrogates"):
        _checked_keys(keys)


@pytest.mark.parametrize(("keys", "parts"), [(None, ()), ([], ()), (["b", "a", "b"], ("b", "a"))])
def test_keys_come_once(keys: Any, parts: tuple[str, ...]) -> None:
    """No key ignores the event."""
    assert _checked_keys(keys) == parts


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
