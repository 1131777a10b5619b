"""Events with recorded traces: one for each event and gateway, when it was routed and delivered, and bounded."""

from headgate.delivery.fanout import Matched, Router
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.tally import MAX_TRACED, Tallies, Traced
from headgate.events.event import Event
from headgate.events.wire.packets import Overflow
from tests.support.held_clock import HeldClock
from tests.support.wired_client import WiredClient

TRACE, SPAN = "a" * 32, "b" * 16


def event(offset: int | None, flags: str | None) -> Event:
    parent = None if flags is None else f"00-{TRACE}-{SPAN}-{flags}"
    return Event("a", b"1", f"e{offset}", 5000, "0123456789abcdef", offset, parent)


def run(router: Router, matched: list[Matched], clock: HeldClock) -> None:
    for pass_ in router.passes(matched):
        clock.now_s += 1
        while not pass_.advance():
            pass
        router.passed(pass_)


def test_a_recorded_event_is_told_once_with_its_times_and_counts() -> None:
    """Whether it has a tally by its offset or not. Others are not: not recorded, without a trace, plain, unwanted."""
    clock = HeldClock(10.0)
    traced = Traced(clock)
    clients = [WiredClient({"a": Overflow.CATCH_UP}) for _ in range(3)]
    matcher = clients[0].matcher
    for client in clients[1:]:
        matcher.add("a", client.client)
    router = Router("n", matcher, Tallies(2), traced)
    matched = router.match([event(1, "01"), event(2, "03"), event(3, "00"), event(4, None), event(None, "01")])
    assert traced.take() == []
    clients[2].close()
    run(router, matched, clock)
    first, second = traced.take()
    assert (first.traceparent, first.topic, first.id, first.offset) == (f"00-{TRACE}-{SPAN}-01", "a", "e1", 1)
    assert (first.published_ms, first.routed_ms, first.delivered_ms) == (5000, 10000.0, 11000.0)
    assert {name: count for name, count in first.counts.items() if count} == {"matched": 3, "written": 2, "gone": 1}
    assert (second.offset, second.counts) == (2, first.counts)
    assert traced.take() == []
    for client in clients[:2]:
        client.close()


def test_more_than_fit_are_left_out_and_counted() -> None:
    """Between two looks."""
    clock = HeldClock(10.0)
    traced = Traced(clock)
    client = WiredClient({"a": Overflow.CATCH_UP})
    router = Router("n", client.matcher, None, traced)
    run(router, router.match([event(offset, "01") for offset in range(1, MAX_TRACED + 11)]), clock)
    assert (len(traced.take()), traced.left_out) == (MAX_TRACED, 10)
    run(router, router.match([event(2000, "01")]), clock)
    assert [each.offset for each in traced.take()] == [2000]
    client.close()


def test_an_event_that_nobody_wants_is_not_told() -> None:
    """It is on no way."""
    traced = Traced()
    router = Router("n", SubscriptionMatcher(), None, traced)
    assert router.match([event(1, "01")]) == []
    assert traced.take() == []
