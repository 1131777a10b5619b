"""Functions that options name."""

import pytest

from headgate.consumers.values import function_faults


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ("os:getcwd", []),
        ("os:sep", ["name='os:sep': expected a function"]),
        ("asyncio:sleep", ["name='asyncio:sleep': expected a function, not a coroutine (async def)"]),
        ("os:missing", ["name='os:missing': module 'os' has no 'missing'; expected package.module:function"]),
    ],
)
def test_a_function_of_the_operator_is_checked_before_anything_runs(value: str | None, expected: list[str]) -> None:
    """The line names the option, its value and the expected form."""
    assert function_faults("name", value) == expected
