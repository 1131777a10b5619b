"""The page about the HTTP API: its reference is that of the table, and its scopes are the existing ones."""

from __future__ import annotations

import re

from headgate.auth.scopes import PLAIN, WITH_PATTERN
from headgate_server.api.v1.table import OPERATIONS
from tools import http_api_page

PAGE = http_api_page.PAGE.read_text(encoding="utf-8")


def test_every_operation_and_every_scope_is_on_the_page() -> None:
    """And no scope that there is not."""
    for operation in OPERATIONS:
        assert f"`{operation.method} {operation.path}`" in PAGE
    (table,) = re.findall(r"\| scope \| .*?\n\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`([a-z:]+?)(?::PATTERN)?`", table))
    assert named == {*PLAIN, *WITH_PATTERN}
