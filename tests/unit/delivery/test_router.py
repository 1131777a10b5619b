"""The router: which events become which slices, for whom, and at what cost for events that no client wants."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.client import Client
from headgate.delivery.fanout import MAX_SLICE_BYTES, Router
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.events.event import Event
from headgate.events.wire.frames import Frame, event_frame
from headgate.events.wire.packets import Overflow
from tests.support.wired_client import NAMESPACE, WiredClient, event, publish


@pytest.fixture
def matcher() -> SubscriptionMatcher[Client]:
    return SubscriptionMatcher()


@pytest.fixture
def wired(matcher: SubscriptionMatcher[Client]) -> Iterator[WiredClient]:
    """A client of `a.#` that reads."""
    wired = WiredClient({"a.#": Overflow.DROP}, matcher)
    yield wired
    wired.close()


def route(matcher: SubscriptionMatcher[Client], events: list[Event]) -> tuple[Router, int]:
    """Route events to their end; return the router and how many passes there were."""
    router, passes = Router(NAMESPACE, matcher), 0
    for pass_ in router.passes(router.match(events)):
        passes += 1
        while not pass_.advance():
            pass
    return router, passes


def recording(topics: list[str]) -> Callable[[bytes, Event], Frame]:
    """Return an encoder that also notes the topics of its events."""

    def encode(namespace: bytes, each: Event) -> Frame:
        topics.append(each.topic)
        return event_frame(namespace, each)

    return encode


def test_an_event_that_nobody_wants_is_not_encoded(
    matcher: SubscriptionMatcher[Client], wired: WiredClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs one match; others of the same batch are not disturbed."""
    encoded: list[str] = []
    monkeypatch.setattr("headgate.delivery.fanout.event_frame", recording(encoded))
    router, _ = route(matcher, [event(1, "b"), event(2, "a.1"), event(3, "c")])
    wired.drain()

    assert encoded == ["a.1"]
    assert wired.offsets == [2]
    assert (router.matched, router.unwanted) == (1, 2)


def test_an_event_for_many_is_encoded_once(matcher: SubscriptionMatcher[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """Per event and namespace, not per client."""
    members = [WiredClient({"a": Overflow.DROP}, matcher) for _ in range(20)]
    encoded: list[str] = []
    monkeypatch.setattr("headgate.delivery.fanout.event_frame", recording(encoded))
    route(matcher, [event(1, "a")])

    assert encoded == ["a"]
    for member in members:
        member.drain()
        assert member.offsets == [1]
        member.close()


@given(sizes=st.lists(st.sampled_from([1, 100, 20_000, 65_000]), min_size=1, max_size=12))
def test_slices_are_bounded_and_lose_nothing(sizes: list[int]) -> None:
    """At most MAX_SLICE_BYTES together; a larger event has a separate slice."""
    matcher: SubscriptionMatcher[Client] = SubscriptionMatcher()
    wired = WiredClient({"a": Overflow.DROP}, matcher)
    try:
        writes: list[bytes] = []
        wired.divert(writes.append)
        route(matcher, [event(offset, "a", size) for offset, size in enumerate(sizes, 1)])

        for data in writes:
            assert len(data) <= MAX_SLICE_BYTES or data.count(b'["event"') == 1
        # No slice could have taken the next one's first event as well.
        assert len(writes) <= 1 + sum(len(data) for data in writes) * 2 // MAX_SLICE_BYTES
        assert b"".join(writes).count(b'["event"') == len(sizes)
    finally:
        wired.close()


def test_a_subscription_during_a_batch_brings_events_that_come_in_from_then_on(matcher: SubscriptionMatcher[Client]) -> None:
    """A batch is matched as it comes in, and a later subscription is not given half of it."""
    early = WiredClient({"a": Overflow.DROP}, matcher)
    router = Router(NAMESPACE, matcher)
    passes = router.passes(router.match([event(offset, "a", 40_000) for offset in range(1, 4)]))
    next(passes).advance()
    late = WiredClient({"#": Overflow.DROP}, matcher)
    for pass_ in passes:
        pass_.advance()
    publish(matcher, [event(4, "a")])
    for wired in (early, late):
        wired.drain()

    assert early.offsets == [1, 2, 3, 4]
    assert late.offsets == [4]
    early.close()
    late.close()


def test_passes_start_at_different_clients(matcher: SubscriptionMatcher[Client]) -> None:
    """No client is always last."""
    members = [WiredClient({"a": Overflow.DROP}, matcher) for _ in range(10)]
    firsts: list[int] = []
    order: list[int] = []
    for number, member in enumerate(members):
        member.divert(lambda _, number=number: order.append(number))  # type: ignore[misc]
    router = Router(NAMESPACE, matcher)
    for offset in range(1, 31):
        order.clear()
        for pass_ in router.passes(router.match([event(offset, "a")])):
            pass_.advance()
        assert sorted(order) == list(range(10))
        firsts.append(order[0])

    assert len(set(firsts)) == 10
    for member in members:
        member.close()
