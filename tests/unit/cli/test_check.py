"""`headgate settings`: the same table as the page."""

from __future__ import annotations

from click.testing import CliRunner

from headgate.cli.main import main
from headgate.settings.settings import describe


def test_settings_is_a_table_of_all() -> None:
    """One row for each setting, in Markdown."""
    lines = CliRunner().invoke(main, ["settings"]).stdout.splitlines()

    assert lines[1] == "|---|---|---|---|"
    assert [line.split("`")[1] for line in lines[2:]] == [name for name, *_ in describe()]
