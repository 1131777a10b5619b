"""The time of a hop, and its verdict."""

from headgate.diagnosis.doctor import SLOW_S, Probe
from headgate.events.topic import PROBE
from headgate.runtime.check_result import Verdict
from tests.support.small_redis import SmallRedis


def probe() -> Probe:
    return Probe("redis://h", SmallRedis().client(), "n", PROBE, 5.0)


def test_a_hop_has_its_time_from_publish_on() -> None:
    """In milliseconds; a slow one is a warning."""
    sent = probe()
    assert sent._hop("bus", 10.0025, 10.0, "heard").line == "bus: 2.5 ms: heard"
    slow = sent._hop("gateway → WebSocket", 10.5 + SLOW_S, 10.0, "heard")
    assert (slow.verdict, slow.fix) == (Verdict.WARNING, None)
    assert sent.hops == {"bus": 2.5, "gateway → WebSocket": 1500.0}


def test_an_event_that_did_not_come_is_a_fault() -> None:
    """And has no time."""
    sent = probe()
    assert sent._hop("gateway → WebSocket", None, 10.0, "").verdict is Verdict.FAULT
    assert sent.hops == {"gateway → WebSocket": None}


def test_a_slow_long_poll_says_that_a_proxy_may_hold_answers_back() -> None:
    """The setting is nginx's."""
    slow = probe()._hop("gateway → long poll", 12.0, 10.0, "")
    assert slow.fix is not None
    assert "proxy_buffering off" in slow.fix


def test_without_redis_nothing_is_sent() -> None:
    """One fault, and its remedy."""
    sent = Probe("redis://127.0.0.1:1", SmallRedis().client(), "n", PROBE, 0.5)
    [found] = sent.send({})
    assert (found.name, found.verdict) == ("bus", Verdict.FAULT)
