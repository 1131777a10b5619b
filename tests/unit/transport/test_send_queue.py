"""The client queue: bounds in frames and bytes, the control lane ahead, exact accounting. Checked against a naive oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.protocol.frames import Frame
from headgate.transport.send_queue import MAX_CONTROL_BYTES, MAX_CONTROL_FRAMES, ClientQueue


class Owner:
    """Counts what was sent, as a client does."""

    def __init__(self) -> None:
        self.sent = 0


def frame(size: int = 10, *, attachment: bool = False) -> Frame:
    """Return a frame of exactly `size` bytes on the wire."""
    made = Frame(b"x" * (size - 2), attachment=attachment)
    assert len(made.wire) == size
    return made


def test_frames_come_out_in_the_order_they_went_in() -> None:
    """One lane, one order."""
    queue = ClientQueue(10, 1000)
    frames = [frame() for _ in range(5)]
    assert all(queue.offer(each) for each in frames)

    assert queue.take(1000) == frames
    assert not queue


@pytest.mark.parametrize(("max_frames", "max_bytes"), [(3, 1000), (1000, 30)])
def test_a_full_queue_refuses_and_changes_nothing(max_frames: int, max_bytes: int) -> None:
    """Full in frames or in bytes."""
    queue = ClientQueue(max_frames, max_bytes)
    kept = [frame() for _ in range(3)]
    for each in kept:
        queue.offer(each)

    assert not queue.offer(frame())
    assert (queue.frames, queue.bytes, queue.level) == (3, 30, 1.0)
    assert queue.take(1000) == kept


def test_an_empty_queue_takes_a_frame_of_any_size() -> None:
    """The payload limit has bounded it already; refusing it would refuse it for ever."""
    queue = ClientQueue(10, 20)

    assert queue.offer(frame(100))
    assert not queue.offer(frame(3))


def test_a_notice_keeps_its_place_though_the_queue_is_full() -> None:
    """`put` may not refuse."""
    queue = ClientQueue(1, 1000)
    first, notice = frame(), frame()
    queue.offer(first)
    queue.put(notice)

    assert queue.take(1000) == [first, notice]


def test_control_goes_first_and_has_room_of_its_own() -> None:
    """A full data lane does not crowd it out."""
    queue = ClientQueue(2, 20)
    data = [frame(), frame()]
    for each in data:
        queue.offer(each)
    control = [frame(), frame()]

    assert all(queue.offer_control(each) for each in control)
    assert queue.take(1000) == control + data


@pytest.mark.parametrize("size", [10, 100_000])
def test_the_control_lane_is_bounded_too(size: int) -> None:
    """In frames or in bytes; what is over is refused."""
    queue = ClientQueue(10, 1000)
    taken = 0
    while queue.offer_control(frame(10) if size == 10 else Frame(b"x" * size)):
        taken += 1

    assert taken == (MAX_CONTROL_FRAMES if size == 10 else MAX_CONTROL_BYTES // size)


def test_data_can_be_held_back() -> None:
    """While a namespace is joining, control alone goes out."""
    queue = ClientQueue(10, 1000)
    data, control = frame(), frame()
    queue.offer(data)
    queue.offer_control(control)

    assert queue.take(1000, data=False) == [control]
    assert not queue.has(data=False)
    assert queue.has()


def test_a_take_is_bounded_but_never_empty() -> None:
    """At most so many bytes, unless one frame is larger."""
    queue = ClientQueue(10, 1000)
    frames = [frame(60), frame(30), frame(30)]
    for each in frames:
        queue.offer(each)

    assert [queue.take(50), queue.take(50), queue.take(50)] == [frames[:1], frames[1:2], frames[2:]]


def test_attachments_follow_their_packet_before_any_control() -> None:
    """However the writes are cut."""
    queue = ClientQueue(10, 1000)
    packet, first, second, event = frame(), frame(60, attachment=True), frame(60, attachment=True), frame()
    for each in (packet, first, second, event):
        queue.offer(each)
    assert queue.take(15) == [packet]
    control = frame()
    queue.offer_control(control)

    assert queue.take(15) == [first]
    assert queue.take(15, data=False) == [
        second,
    ]
    assert queue.take(1000) == [control, event]


def test_control_goes_ahead_of_a_packet_whose_attachments_all_wait() -> None:
    """Only what has gone out in part must be finished first."""
    queue = ClientQueue(10, 1000)
    event = [frame(), frame(attachment=True), frame(attachment=True)]
    for each in event:
        queue.offer(each)
    control = frame()
    queue.offer_control(control)

    assert queue.take(1000) == [control, *event]


def test_an_owner_is_told_how_many_of_its_frames_went_out() -> None:
    """Each its own, and nobody those of the connection."""
    queue = ClientQueue(10, 1000)
    first, second = Owner(), Owner()
    for owner in (first, second, first, None):
        queue.offer(frame(), owner)
    queue.take(1000)

    assert (first.sent, second.sent) == (2, 1)


def test_discarding_takes_one_owners_frames_and_leaves_the_order_of_the_rest() -> None:
    """They are handed back, in order, for the account."""
    queue = ClientQueue(10, 1000)
    mine, theirs = Owner(), Owner()
    frames = [frame() for _ in range(6)]
    for index, each in enumerate(frames):
        queue.offer(each, theirs if index % 2 else mine)

    assert queue.discard(mine) == frames[::2]
    assert (queue.frames, queue.bytes) == (3, 30)
    assert queue.take(1000) == frames[1::2]
    assert (mine.sent, theirs.sent) == (0, 3)


def test_withdrawing_takes_one_owners_frames_of_one_topic() -> None:
    """A newer value replaces them; the rest keeps its order, and the account is right."""
    queue = ClientQueue(10, 1000)
    mine, theirs = Owner(), Owner()
    old, other, foreign, older = (Frame(b"x" * 8, topic=topic) for topic in ("a", "b", "a", "a"))
    for each, owner in ((older, mine), (other, mine), (foreign, theirs), (old, mine)):
        queue.offer(each, owner)

    assert queue.withdraw(mine, "a") == 2
    assert queue.withdraw(mine, "a") == 0
    assert (queue.frames, queue.bytes) == (2, 20)
    assert queue.take(1000) == [other, foreign]


class AgainstOracle(RuleBasedStateMachine):
    """Any sequence of operations: offered = taken + discarded + waiting, for every owner, and the bounds hold."""

    MAX_FRAMES, MAX_BYTES = 6, 300

    def __init__(self) -> None:
        super().__init__()
        self.queue = ClientQueue(self.MAX_FRAMES, self.MAX_BYTES)
        self.owners = [Owner(), Owner()]
        self.data: list[tuple[Frame, Owner]] = []
        self.control: list[Frame] = []
        self.accepted = dict.fromkeys(self.owners, 0)
        self.discarded = dict.fromkeys(self.owners, 0)

    @rule(size=st.integers(3, 120), who=st.integers(0, 1))
    def offer(self, size: int, who: int) -> None:
        """Offer an event."""
        made, owner = frame(size), self.owners[who]
        used = sum(len(each.wire) for each, _ in self.data)
        room = not self.data or (len(self.data) < self.MAX_FRAMES and used + size <= self.MAX_BYTES)
        assert self.queue.offer(made, owner) is room
        if room:
            self.data.append((made, owner))
            self.accepted[owner] += 1

    @rule(size=st.integers(3, 120))
    def offer_control(self, size: int) -> None:
        """Offer a control frame; few enough to fit."""
        made = frame(size)
        assert self.queue.offer_control(made)
        self.control.append(made)

    @precondition(lambda self: self.data or self.control)
    @rule(max_bytes=st.integers(1, 400), data=st.booleans())
    def take(self, max_bytes: int, data: bool) -> None:
        """Take a chunk."""
        waiting = self.control + ([each for each, _ in self.data] if data else [])
        expected: list[Frame] = []
        for each in waiting:
            if expected and sum(len(taken.wire) for taken in expected) + len(each.wire) > max_bytes:
                break
            expected.append(each)
        assert self.queue.take(max_bytes, data=data) == expected
        from_control = min(len(expected), len(self.control))
        del self.control[:from_control]
        del self.data[: len(expected) - from_control]

    @rule(who=st.integers(0, 1))
    def discard(self, who: int) -> None:
        """Throw one owner's frames out."""
        owner = self.owners[who]
        mine = [each for each, whose in self.data if whose is owner]
        assert self.queue.discard(owner) == mine
        self.discarded[owner] += len(mine)
        self.data = [entry for entry in self.data if entry[1] is not owner]

    @invariant()
    def accounts_are_exact(self) -> None:
        """To the frame and to the byte."""
        assert self.queue.frames == len(self.data)
        assert self.queue.bytes == sum(len(each.wire) for each, _ in self.data)
        assert self.queue.control_bytes == sum(len(each.wire) for each in self.control)
        assert bool(self.queue) == bool(self.data or self.control)
        assert self.queue.peak_frames >= self.queue.frames
        for owner in self.owners:
            waiting = sum(whose is owner for _, whose in self.data)
            assert self.accepted[owner] == owner.sent + self.discarded[owner] + waiting


TestAgainstOracle = pytest.mark.no_cover(AgainstOracle.TestCase)


@given(st.lists(st.integers(3, 50), max_size=30))
def test_clearing_forgets_everything(sizes: list[int]) -> None:
    """A connection that is gone owes nothing."""
    queue = ClientQueue(100, 10_000)
    for size in sizes:
        queue.offer(frame(size))
        queue.offer_control(frame(size))
    queue.clear()

    assert (bool(queue), queue.frames, queue.bytes, queue.control_bytes) == (False, 0, 0, 0)
    assert queue.take(1000) == []
