"""Fan-out: one write per client for its events, whole frames whatever the kernel takes, and never a greenlet switch."""

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import greenlet  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.client import Client
from headgate.delivery.fanout import Matched, Pass
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.state import Phase
from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.events.wire.frames import Frame, event_frame
from headgate.events.wire.packets import Overflow
from tests.support.session_clock import turn
from tests.support.wired_client import NAMESPACE, WiredClient, event

Send = Callable[[Any], int]
EVERYTHING = {"#": Overflow.DROP}
# Of a pass over 20 clients that others join: 40 writes at most, 16 a turn.
TURNS = 3


class Crowd:
    """Clients that share a matcher."""

    def __init__(self) -> None:
        self.matcher: SubscriptionMatcher[Client] = SubscriptionMatcher()
        self.members: list[WiredClient] = []

    def join(self, subscriptions: dict[str, Overflow], **limits: int) -> WiredClient:
        self.members.append(WiredClient(subscriptions, self.matcher, **limits))
        return self.members[-1]

    def slice(self, *events: Event) -> list[Matched]:
        return [Matched(framed(each), self.matcher.match(each.topic)) for each in events]


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """Clients that end with the test."""
    crowd = Crowd()
    yield crowd
    for member in crowd.members:
        member.close()


def framed(each: Event) -> Frame:
    return event_frame(NAMESPACE.encode(), each)


def finish(pass_: Pass) -> None:
    while not pass_.advance():
        pass


class Kernel:
    """Takes only `room` bytes of the first write, refuses the second, then takes everything; counts the writes."""

    def __init__(self, wired: WiredClient, room: int | None = None) -> None:
        assert wired.connection.wire is not None
        self._send: Send = wired.connection.wire.send
        self._room = room
        self.writes: list[bytes] = []
        wired.connection.wire.send = self

    def __call__(self, data: bytes | memoryview) -> int:
        self.writes.append(bytes(data))
        if self._room is not None and len(self.writes) <= 2:
            if len(self.writes) == 2 or self._room == 0:
                raise BlockingIOError
            return self._send(data[: self._room])
        return self._send(data)


# Writes ------------------------------------------------------------------------------------------------------------------


def test_clients_that_want_the_same_events_share_the_very_same_bytes(crowd: Crowd) -> None:
    """Nothing is joined, copied or encoded per client."""
    sent: list[Any] = []
    for pattern in ("a", "a", "#", "#"):
        crowd.join({pattern: Overflow.DROP}).divert(sent.append)
    finish(Pass(crowd.slice(event(1, "a"), event(2, "b"), event(3, "a"))))

    assert len(sent) == 4
    assert len({id(data) for data in sent}) == 2


topics = st.lists(st.sampled_from(["a", "b", "c.d", "c.e"]), min_size=1, max_size=8)
patterns = st.lists(st.sampled_from(["a", "b", "#", "c.*", "*", "c.#"]), max_size=3, unique=True)


@given(topics=topics, wanted=st.lists(patterns, min_size=1, max_size=5), start=st.integers(0, 1000))
def test_each_client_gets_what_it_wants_in_order_once(topics: list[str], wanted: list[list[str]], start: int) -> None:
    """This holds for any audiences, and from any start of the pass."""
    crowd = Crowd()
    try:
        members = [crowd.join(dict.fromkeys(each, Overflow.DROP)) for each in wanted]
        finish(Pass(crowd.slice(*(event(offset, topic) for offset, topic in enumerate(topics, 1))), start))
        for member, each in zip(members, wanted, strict=True):
            member.drain()
            assert member.offsets == [
                offset for offset, topic in enumerate(topics, 1) if any(matches(pattern, topic) for pattern in each)
            ]
    finally:
        for member in crowd.members:
            member.close()


def test_a_write_cut_at_any_byte_leaves_a_valid_stream_with_every_event(crowd: Crowd) -> None:
    """The frame that was cut is finished first; those that were not touched follow; nothing comes twice."""
    member = crowd.join(EVERYTHING)
    events = [event(1), event(2, size=130), event(3)]
    data = b"".join(framed(each).wire for each in events)
    assert member.connection.wire is not None
    send = member.connection.wire.send
    for room in range(len(data) + 1):
        member.received.clear()
        member.stream = b""
        member.connection.wire.send = send
        Kernel(member, room)
        finish(Pass(crowd.slice(*events)))
        member.drain()

        assert member.stream == data, f"cut after {room} bytes"
        assert member.offsets == [1, 2, 3]
        assert member.connection.ready, "written to directly again"
    client = member.client
    assert client.direct + client.offered == client.direct + client.sent == 3 * (len(data) + 1)


def test_a_broken_socket_costs_nobody_else_anything(crowd: Crowd) -> None:
    """It is lost, once; the pass goes on."""
    first, broken, last = (crowd.join(EVERYTHING) for _ in range(3))

    def refuse(data: Any) -> int:
        raise ConnectionResetError(104, "Connection reset by peer")

    assert broken.connection.wire is not None
    broken.connection.wire.send = refuse
    finish(Pass(crowd.slice(event(1))))
    turn()

    assert broken.connection.closed
    assert len(broken.server.ends) == 1
    for member in (first, last):
        member.drain()
        assert member.offsets == [1]


# Turns -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True], ids=["an event for all", "an event for each"])
def test_a_pass_out_of_time_goes_on_where_it_was(crowd: Crowd, own: bool) -> None:
    """Resumable. Each client once, in at most as many steps as there are looks at the clock."""
    members = [crowd.join({f"users.{number}.#": Overflow.DROP} if own else EVERYTHING) for number in range(50)]
    events = [event(1 + number, f"users.{number}.mail") for number in range(50)] if own else [event(1)]
    pass_ = Pass(crowd.slice(*events))
    steps = 1
    while not pass_.advance(budget_s=0):
        steps += 1

    assert 1 < steps <= 4
    assert pass_.writes == 50
    for number, member in enumerate(members):
        member.drain()
        assert member.offsets == [1 + number if own else 1]


# The hot path ------------------------------------------------------------------------------------------------------------


def test_a_pass_switches_no_greenlet_and_makes_none(crowd: Crowd) -> None:
    """Over clients that keep up, that are cut off in the middle of a frame, that are full, reading and closed."""
    policies = (Overflow.DROP, Overflow.LATEST, Overflow.CATCH_UP)
    members = [crowd.join({"#": policy}, queue_frames=8, queue_bytes=65536) for policy in policies for _ in range(10)]
    members[3].connection.end("gone", abort=True)
    turn()
    for member, room in zip(members[5:15], range(0, 1000, 100), strict=True):
        Kernel(member, room)
    switches: list[Any] = []
    passes = [Pass(crowd.slice(*(event(10 * n + k, "a", 1000) for k in range(3))), n) for n in range(1, 30)]
    gc.collect()  # the rest of other tests: a greenlet that is let go of during a pass would be a switch and one less
    greenlets = count_greenlets()
    before = greenlet.settrace(lambda what, arguments: switches.append((what, arguments)))
    try:
        for pass_ in passes:
            finish(pass_)
        during, made = len(switches), count_greenlets() - greenlets
        turn()
    finally:
        greenlet.settrace(before)

    assert during == 0
    assert switches, "the trace does see a switch"
    assert made == 0
    assert any(member.client.discarded for member in members), "the full ones were met"
    assert any(member.client.conflated for member in members)
    assert any(member.client.state.phase is Phase.READING for member in members)


def count_greenlets() -> int:
    # Not isinstance, because it would ask a weak reference's proxy for its class, and another test may have let its object go.
    return sum(issubclass(type(each), greenlet.greenlet) for each in gc.get_objects())


# Events that come in during a pass -------------------------------------------------------------------------------------------


def test_an_event_that_comes_in_goes_along_with_the_writes_that_are_still_to_come(crowd: Crowd) -> None:
    """A client that has had the first event gets the second after it; everyone else gets both in one write."""
    kernels = [Kernel(crowd.join(EVERYTHING)) for _ in range(40)]
    pass_ = Pass(crowd.slice(event(1)))
    pass_.advance(-1)
    served = sum(1 for kernel in kernels if kernel.writes)
    assert 0 < served < 40

    assert pass_.extend(crowd.slice(event(2), event(3))) == 2
    finish(pass_)
    for member in crowd.members:
        member.drain()
    assert [member.offsets for member in crowd.members] == [[1, 2, 3]] * 40
    assert sorted(len(kernel.writes) for kernel in kernels) == [1] * (40 - served) + [2] * served


def test_however_events_come_in_everyone_gets_each_once_and_in_order(crowd: Crowd) -> None:
    """And a pass ends, however fast they come, as the others are left for the next one."""
    for _ in range(20):
        crowd.join(EVERYTHING)
    last = 0
    for arrivals in itertools.product(range(4), repeat=TURNS):
        pass_, left, turns, last = Pass(crowd.slice(event(last + 1)), 7), 0, 0, last + 1
        while not pass_.advance(-1):
            count = arrivals[turns]
            turns += 1
            if count and not left:
                joined = pass_.extend(crowd.slice(*(event(last + n) for n in range(1, count + 1))))
                last, left = last + joined, count - joined
        for member in crowd.members:
            member.read()
            assert member.offsets == list(range(1, last + 1))
            assert member.client.direct == last


def test_no_write_grows_beyond_what_one_takes(crowd: Crowd) -> None:
    """64 KB joined, and an event beyond that waits."""
    for _ in range(20):
        crowd.join(EVERYTHING)
    pass_ = Pass(crowd.slice(event(1, size=40_000)))
    pass_.advance(-1)
    assert pass_.extend(crowd.slice(event(2, size=40_000), event(3))) == 0
    assert pass_.extend(crowd.slice(event(2, size=10_000))) == 1
    finish(pass_)
