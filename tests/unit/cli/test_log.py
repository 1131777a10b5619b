"""A place in the log as people write it."""

from datetime import datetime

import click
import pytest

from headgate.cli.log import Since, read_since

NOW_S = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("1200", Since(offset=1200)),
        ("10m", Since(time_ms=1_699_999_400_000)),
        ("2h", Since(time_ms=1_699_992_800_000)),
        ("2023-11-14T22:13:20Z", Since(time_ms=1_700_000_000_000)),
        ("2023-11-14 22:13:20.5+00:00", Since(time_ms=1_700_000_000_500)),
        ("2023-11-14", Since(time_ms=round(datetime(2023, 11, 14).timestamp() * 1000))),
    ],
)
def test_an_offset_a_time_ago_and_a_time_are_understood(text: str, since: Since) -> None:
    """A number alone is an offset; a time without a zone is of this machine's."""
    assert read_since(text, NOW_S) == since


@pytest.mark.parametrize("text", ["", "soon", "-5", "10 m", "10y", "2023-13-01", "9999999999999999"])
def test_anything_else_is_wrong_usage(text: str) -> None:
    """With the expected form."""
    with pytest.raises(click.BadParameter, match="expected an offset such as 1200"):
        read_since(text, NOW_S)
