"""The time of a hop, and its verdict."""

import pytest

from headgate.diagnosis.doctor import SLOW_S, Doctor
from headgate.events.topic import PROBE
from headgate.runtime.check_result import Verdict
from tests.support.small_redis import SmallRedis


def doctor(timeout_s: float = 5.0) -> Doctor:
    return Doctor("http://h", "redis://h", "n", None, None, 0.0, timeout_s)


@pytest.mark.parametrize(
    ("name", "at_s", "line", "fix"),
    [
        ("bus", 10.0025, "bus: 2.5 ms: heard", None),
        ("gateway → WebSocket", 10.5 + SLOW_S, "gateway → WebSocket: 1500.0 ms: heard", None),
        ("gateway → long poll", 12.0, "gateway → long poll: 2000.0 ms: heard: set proxy_buffering off (nginx)", "nginx"),
        ("gateway → WebSocket", None, "gateway → WebSocket: the event did not come within 5 s", None),
    ],
)
def test_a_hop_has_its_time_from_publish_on(name: str, at_s: float | None, line: str, fix: str | None) -> None:
    """In milliseconds. A slow one is a warning, and of a long poll a proxy may hold back the answer. None is a fault."""
    sent = doctor()
    hop = sent.hop(name, at_s, 10.0, "heard")
    assert hop.line.startswith(line)
    assert (hop.fix is None) == (fix is None)
    assert hop.verdict is (Verdict.FAULT if at_s is None else Verdict.OK if at_s < 11 else Verdict.WARNING)
    assert sent.hops == {name: None if at_s is None else round((at_s - 10) * 1000, 3)}


def test_without_redis_nothing_is_sent() -> None:
    [found] = doctor(0.5).send(SmallRedis().client(), "redis://127.0.0.1:1", PROBE, {})
    assert (found.name, found.verdict) == ("bus", Verdict.FAULT)
