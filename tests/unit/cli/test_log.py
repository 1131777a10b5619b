"""A place in the log as people write it."""

from datetime import UTC, datetime

import click
import pytest

from headgate.cli.log import read_since

NOW_S = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("1200", 1200),
        ("10m", datetime(2023, 11, 14, 22, 3, 20, tzinfo=UTC)),
        ("999999999d", datetime(1970, 1, 1, tzinfo=UTC)),
        ("2023-11-14T22:13:20Z", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("2023-11-14 22:13:20.5+00:00", datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)),
        ("2023-11-14", datetime(2023, 11, 14).astimezone()),
    ],
)
def test_an_offset_a_time_ago_and_a_time_are_understood(text: str, since: int | datetime) -> None:
    """A number alone is an offset; a time without a zone is of this machine's."""
    assert read_since(text, NOW_S) == since


@pytest.mark.parametrize("text", ["", "soon", "-5", "10 m", "10y", "2023-13-01", "9999999999999999"])
def test_anything_else_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected an offset such as 1200"):
        read_since(text, NOW_S)
