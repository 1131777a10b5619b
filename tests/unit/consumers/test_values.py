"""Functions that options name."""

import os

import pytest

from headgate.consumers.values import FUNCTION
from headgate.settings.options import WrongValue


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("os:sep", "expected a function"),
        ("asyncio:sleep", "expected a function, not a coroutine (async def)"),
        ("os:missing", "module 'os' has no 'missing'; expected package.module:function"),
    ],
)
def test_a_function_of_the_operator_is_checked_before_anything_runs(value: str, expected: str) -> None:
    """It is imported when the option is read, or the fault names the expected form."""
    assert FUNCTION.read("os:getcwd") is os.getcwd
    with pytest.raises(WrongValue) as refused:
        FUNCTION.read(value)
    assert (str(refused.value), refused.value.says_expected) == (expected, True)
