"""Pages that are written from the code: which ones are stale, and what writing mends."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tools import consumers_page, http_api_page, settings_page


@pytest.mark.parametrize(
    ("module", "now", "before"),
    [
        (consumers_page, "| `workers` |", "| `wrkers` |"),
        (http_api_page, "`GET /presence`", "`GET /present`"),
        (settings_page, "| `HEADGATE_PORT` |", "| `HEADGATE_PRT` |"),
    ],
)
def test_the_check_tells_a_stale_page_from_a_fresh_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: ModuleType, now: str, before: str
) -> None:
    """A part changed by hand is stale; writing mends it, and nothing beside it. A typing error in `--check` writes nothing."""
    page, path = module.PAGE.read_text(encoding="utf-8"), tmp_path / "page.md"
    monkeypatch.setattr(module, "PAGE", path)
    path.write_text(page)
    assert module.main(["--check"]) == 0
    path.write_text(page.replace(now, before))
    assert module.main(["--check"]) == 1
    assert module.main(["--chekc"]) == 2
    assert path.read_text() == page.replace(now, before) != page
    assert module.main([]) == 0
    assert path.read_text() == page


@pytest.mark.parametrize(
    ("module", "begins", "expected"),
    [
        (consumers_page, "<!-- options of email -->", "expected every consumer, apprise, email"),
        (http_api_page, "<!-- codes -->", "expected operations, types, codes"),
    ],
)
def test_a_part_that_is_missing_is_a_fault(module: ModuleType, begins: str, expected: str) -> None:
    """It cannot be taken out by mistake; so is a part of a name that there is not."""
    page = module.PAGE.read_text(encoding="utf-8")
    for other in ("", "<!-- options of mail -->"):
        with pytest.raises(ValueError, match=expected):
            module.filled(page.replace(begins, other))
