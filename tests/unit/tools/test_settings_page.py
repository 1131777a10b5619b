"""The settings page: generated, complete, and its check fails when it is stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.settings.settings import Settings, describe
from tools import settings_page


def test_every_setting_has_one_row_of_four_cells() -> None:
    """A `|` inside a cell would split it."""
    rows = [line for line in settings_page.page().splitlines() if line.startswith("| `HEADGATE_")]
    cells = [row.replace("\\|", "").strip("| ").split(" | ") for row in rows]
    names = [row[0].strip("`") for row in cells if len(row) == 4]
    assert names == [name for name, *_ in describe()]


def test_the_check_tells_a_stale_page_from_a_fresh_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Absent and changed are stale; a freshly written one is not."""
    monkeypatch.setattr(settings_page, "PAGE", tmp_path / "settings.md")
    assert settings_page.main(["--check"]) == 1
    assert settings_page.main([]) == 0
    assert settings_page.main(["--check"]) == 0
    settings_page.PAGE.write_text(settings_page.PAGE.read_text() + "more\n")
    assert settings_page.main(["--check"]) == 1


def test_an_unknown_argument_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A typing error in `--check` must not count as success."""
    monkeypatch.setattr(settings_page, "PAGE", tmp_path / "settings.md")
    assert settings_page.main(["--chekc"]) == 2
    assert not settings_page.PAGE.exists()


@pytest.mark.parametrize("name", [name for name, *_ in settings_page.OTHERS])
def test_what_the_page_lists_for_other_tools_stops_no_gateway(name: str) -> None:
    """A user with the bench's variable in the environment starts gateways in it, too."""
    assert Settings.read({name: "something"}) == Settings.read({})
