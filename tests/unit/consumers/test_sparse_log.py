"""The log that does not repeat itself."""

from __future__ import annotations

from typing import Any

from headgate.consumers.sparse_log import EVERY_S, SparseLog


def test_the_same_event_is_written_once_a_minute_with_what_was_left_out() -> None:
    """Another event is not held up by it."""
    written: list[tuple[str, dict[str, Any]]] = []
    now_s = 100.0
    log = SparseLog(lambda event, **fields: written.append((event, fields)), now=lambda: now_s)

    for number in range(5):
        log("trouble", number=number)
    log("other")
    now_s += EVERY_S
    log("trouble", number=5)
    now_s += EVERY_S
    log("trouble", number=6)

    assert written == [
        ("trouble", {"number": 0}),
        ("other", {}),
        ("trouble", {"number": 5, "left_out": 4}),
        ("trouble", {"number": 6}),
    ]
