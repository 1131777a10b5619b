"""The settings page: generated, complete, and its check fails when it is stale."""

from __future__ import annotations

import pytest

from headgate.settings.settings import Settings, describe
from tools import settings_page


def test_every_setting_has_one_row_of_four_cells() -> None:
    """A `|` inside a cell would split it."""
    rows = [line for line in settings_page.page().splitlines() if line.startswith("| `HEADGATE_")]
    cells = [row.replace("\\|", "").strip("| ").split(" | ") for row in rows]
    names = [row[0].strip("`") for row in cells if len(row) == 4]
    assert names == [name for name, *_ in describe()]


@pytest.mark.parametrize("name", [name for name, *_ in settings_page.OTHERS])
def test_what_the_page_lists_for_other_tools_stops_no_gateway(name: str) -> None:
    """A user with the bench's variable in the environment starts gateways in it, too."""
    assert Settings.read({name: "something"}) == Settings.read({})
