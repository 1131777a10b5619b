"""The return values of a consumer's code; the log has the error for anything else."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headgate.consumers import Defer
from headgate.consumers.work.worker import _checked_keys, _delay_ms
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
