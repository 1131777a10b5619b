"""The log seldom tells of events that clients can cause at will."""

from __future__ import annotations

import pytest
import structlog

from headgate.errors import BusUnavailable
from headgate.runtime.logging import Tracebacks, told
from headgate.runtime.seldom import SELDOM_S, Seldom


def test_a_name_is_due_once_in_a_while_with_the_count_between() -> None:
    """Names do not share a turn."""
    now_s = 0.0
    seldom = Seldom(lambda: now_s)
    assert [seldom.due("a"), seldom.due("a"), seldom.due("b"), seldom.due("a")] == [0, None, 0, None]
    now_s = SELDOM_S
    assert [seldom.due("a"), seldom.due("b")] == [2, 0]


def test_tracebacks_of_one_event_pass_once_in_a_while() -> None:
    """Lines without one always do."""
    now_s = 0.0
    tracebacks = Tracebacks(Seldom(lambda: now_s))
    assert tracebacks(None, "error", {"event": "failed", "exc_info": True}) == {"event": "failed", "exc_info": True}
    for _ in range(3):
        with pytest.raises(structlog.DropEvent):
            tracebacks(None, "error", {"event": "failed", "exc_info": True})
    assert tracebacks(None, "error", {"event": "failed"}) == {"event": "failed"}
    now_s = SELDOM_S
    assert tracebacks(None, "error", {"event": "failed", "exc_info": True})["left_out"] == 3


def test_the_log_holds_the_reason_of_the_bus_that_strangers_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the message nor a part names the address."""
    monkeypatch.setattr("headgate.runtime.logging._seldom", Seldom())
    error = BusUnavailable("redis.internal:6379 did not answer in time", told="it does not answer")
    with structlog.testing.capture_logs() as lines:
        wire = told(error)
    assert wire == {
        "code": "bus_unavailable",
        "message": "the bus is unavailable: it does not answer",
        "retry": True,
        "retry_after_s": 1,
        "reason": "it does not answer",
    }
    assert "redis.internal:6379" in str(error)
    assert ["redis.internal:6379" in line["reason"] for line in lines] == [True]
