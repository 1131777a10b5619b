"""`headgate doctor` without a gateway: what it refuses to look at."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headgate.cli.main import main


@pytest.mark.parametrize(
    "url",
    [
        "app.example.com",
        "ftp://app.example.com",
        "https://exa mple.com",
        "http://[::1",
        "https://a..b",
        "https://app:99999",
        "\x1b",
    ],
)
def test_a_url_that_is_none_is_one_line_that_names_the_option(url: str) -> None:
    """No traceback, and nothing is asked."""
    result = CliRunner().invoke(main, ["doctor", "--url", url])
    assert result.exit_code == 2
    assert "Invalid value for '--url': " in result.output
    assert "Traceback" not in result.output
    assert "\x1b" not in result.output
