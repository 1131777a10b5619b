"""The built-in message is tested with Apprise (test_apprise.py); here are the parts that both consumers of messages share."""

import pytest

from headgate.consumers.templates import message_faults
from headgate.consumers.values import function_faults


@pytest.mark.parametrize(
    ("title", "body", "expected"),
    [
        (None, None, []),
        ("{{ event.topic }}", "{{ event.data.order }}", []),
        (
            "{{ evnt }}",
            "{% if %}",
            ["title: unknown name 'evnt'; there are event", "body, line 1: Expected an expression, got 'end of statement block'"],
        ),
    ],
)
def test_each_template_of_a_message_has_a_line_for_its_fault(title: str | None, body: str | None, expected: list[str]) -> None:
    """A fault of the title does not hide that of the body."""
    assert message_faults(title, body) == expected


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
