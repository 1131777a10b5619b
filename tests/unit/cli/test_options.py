"""The kinds of values that options take."""

import click
import pytest

from headgate.cli.options import read_address, seconds

CONTEXT = click.Context(click.Command("x"))
OPTION = click.Option(["--listen"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604800), ("999999999", 10**9 - 1)],
)
def test_a_time_is_a_number_with_a_unit(text: str, expected: int) -> None:
    """Seconds where none is given."""
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "h", "1w", "-1", "1.5h", "1 h", "1234567890", "1h30m", "١h"])
def test_any_other_text_is_wrong_usage(text: str) -> None:
    """The message shows how a time is written."""
    with pytest.raises(click.BadParameter, match="not a time such as 90, 90s"):
        seconds(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), ("127.0.0.1:9100", ("127.0.0.1", 9100)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_an_address_is_a_host_and_a_port(given: str | None, expected: tuple[str, int] | None) -> None:
    """IPv6 with brackets. Without them it is unclear where the port begins."""
    assert read_address(CONTEXT, OPTION, given) == expected


@pytest.mark.parametrize("given", ["", "9100", "::1:80", ":9100", "[]:9100", "host:", "host:65536", "host:-1", "host:http"])
def test_an_address_without_host_or_port_is_wrong_usage(given: str) -> None:
    """The message shows a correct address."""
    with pytest.raises(click.BadParameter, match="expected HOST:PORT"):
        read_address(CONTEXT, OPTION, given)
