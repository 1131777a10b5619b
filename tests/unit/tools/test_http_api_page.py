"""The page about the HTTP API: its reference is that of the table, and its scopes are the existing ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.auth.scopes import PLAIN, WITH_PATTERN
from headgate_server.api.v1.table import OPERATIONS
from tools import http_api_page

PAGE = http_api_page.PAGE.read_text(encoding="utf-8")


def test_the_check_tells_a_stale_page_from_a_fresh_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path changed by hand is stale; writing mends it, and nothing beside it."""
    path = tmp_path / "http-api.md"
    monkeypatch.setattr(http_api_page, "PAGE", path)
    path.write_text(PAGE)
    assert http_api_page.main(["--check"]) == 0
    path.write_text(PAGE.replace("`GET /presence`", "`GET /present`"))
    assert http_api_page.main(["--check"]) == 1
    assert http_api_page.main([]) == 0
    assert path.read_text() == PAGE


def test_a_part_that_is_missing_is_a_fault() -> None:
    """The reference cannot be taken out by mistake."""
    with pytest.raises(ValueError, match="expected operations, types, codes"):
        http_api_page.filled(PAGE.replace("<!-- codes -->", ""))


def test_every_operation_and_every_scope_is_on_the_page() -> None:
    """And no scope that there is not."""
    for operation in OPERATIONS:
        assert f"`{operation.method} {operation.path}`" in PAGE
    (table,) = re.findall(r"\| scope \| .*?\n\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`([a-z:]+?)(?::PATTERN)?`", table))
    assert named == {*PLAIN, *WITH_PATTERN}
