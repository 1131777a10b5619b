"""The record of events that did not reach a client, and the notices that it becomes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.gap import Gaps, log_lost_notice, rolled_back_notice
from headgate.events.wire.frames import Frame
from headgate.events.wire.packets import GapReason


def body_of(notice: Frame) -> dict[str, Any]:
    """Return the body of a notice."""
    packet = notice.packet.decode()
    assert packet.startswith("42/notifications,")
    name, body = json.loads(packet.partition(",")[2])
    assert name == "gap"
    assert isinstance(body, dict)
    return body


def told(gaps: Gaps) -> list[dict[str, Any]]:
    """Take the notices and return their bodies."""
    return [body_of(notice) for notice in gaps.take("notifications")]


def test_an_overflow_of_plain_events_alone_cannot_be_recovered() -> None:
    """They have no offset, because they are not in the log."""
    gaps = Gaps()
    gaps.add(GapReason.OVERFLOW, None, None, 1, 10, ["a"])
    (body,) = told(gaps)
    assert (body["from"], body["to"], body["count"], body["recoverable"]) == (None, None, 1, False)


@given(st.lists(st.tuples(st.sampled_from(list(GapReason)), st.none() | st.integers(1, 10**9), st.integers(0, 10**6))))
def test_every_event_is_counted_in_exactly_one_notice(missing: list[tuple[GapReason, int | None, int]]) -> None:
    """Counts and bytes add up per reason, and each offset lies in its range."""
    gaps = Gaps()
    for reason, offset, size in missing:
        gaps.add(reason, offset, offset, 1, size, ["a"])
    bodies = {body["reason"]: body for body in told(gaps)}
    assert len(bodies) == len({reason for reason, _, _ in missing})
    for reason in {reason for reason, _, _ in missing}:
        mine = [(offset, size) for kind, offset, size in missing if kind is reason]
        offsets = [offset for offset, _ in mine if offset is not None]
        body = bodies[reason.value]
        assert body["count"] == len(mine)
        assert body["bytes"] == sum(size for _, size in mine)
        assert (body["from"], body["to"]) == ((min(offsets), max(offsets)) if offsets else (None, None))


def test_a_client_that_resumes_in_a_lost_log_is_told_what_a_live_one_is() -> None:
    """The notice for a client that still arrives is the same, without a range and a count, which are unknown."""
    gaps = Gaps()
    gaps.add(GapReason.LOG_LOST, None, None, 0, 0, ["a", "b"])
    assert body_of(log_lost_notice("notifications", ["a", "b"])) == told(gaps)[0] == {
        "patterns": ["a", "b"], "from": None, "to": None, "count": None, "bytes": 0, "reason": "log_lost", "recoverable": False,
    }  # fmt: skip


def test_a_rolled_back_end_names_its_offsets_and_the_epoch_that_goes_on() -> None:
    """Nothing of it can be had again."""
    assert body_of(rolled_back_notice("notifications", ["a"], 7, 9, "next")) == {
        "patterns": ["a"], "from": 8, "to": 9, "count": 2, "bytes": 0, "reason": "rolled_back", "recoverable": False,
        "epoch": "next",
    }  # fmt: skip
