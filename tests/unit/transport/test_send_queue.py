"""The client queue: bounds in frames and bytes, the control lane ahead, exact accounting. Checked against a naive oracle."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.events.wire.frames import Frame
from headgate.transport.send_queue import MAX_CONTROL_BYTES, MAX_CONTROL_FRAMES, ClientQueue


class Owner:
    """Counts its sent frames, like a client."""

    def __init__(self) -> None:
        self.sent = 0


def frame(size: int = 10, *, attachment: bool = False) -> Frame:
    """Return a frame of exactly `size` bytes on the wire."""
    made = Frame(b"x" * (size - 2), attachment=attachment)
    assert len(made.wire) == size
    return made


def queue_of(*frames: Frame, max_frames: int = 10, max_bytes: int = 1000) -> ClientQueue:
    """Return a queue with these frames."""
    queue = ClientQueue(max_frames, max_bytes)
    assert all(queue.offer(each) for each in frames)
    return queue


@pytest.mark.parametrize(("max_frames", "max_bytes"), [(3, 1000), (1000, 30)], ids=["frames", "bytes"])
def test_a_full_queue_refuses_and_changes_nothing(max_frames: int, max_bytes: int) -> None:
    """But a notice, which `put` may not refuse, keeps its place."""
    kept, notice = [frame() for _ in range(3)], frame()
    queue = queue_of(*kept, max_frames=max_frames, max_bytes=max_bytes)
    assert not queue.offer(frame())
    assert (queue.frames, queue.bytes, queue.level) == (3, 30, 1.0)
    queue.put(notice)

    assert queue.take(1000) == [*kept, notice]


@pytest.mark.parametrize("size", [10, 100_000])
def test_the_control_lane_is_bounded_too(size: int) -> None:
    """In frames or in bytes; the surplus is refused."""
    queue = ClientQueue(10, 1000)
    taken = 0
    while queue.offer_control(frame(10) if size == 10 else Frame(b"x" * size)):
        taken += 1

    assert taken == (MAX_CONTROL_FRAMES if size == 10 else MAX_CONTROL_BYTES // size)


def test_attachments_follow_their_packet_before_any_control() -> None:
    """However the writes are cut; but control goes ahead of a packet of which nothing has gone out."""
    event = [frame(), frame(60, attachment=True), frame(60, attachment=True)]
    behind, control = frame(), frame()
    queue = queue_of(*event, behind)
    assert queue.take(15) == event[:1]
    queue.offer_control(control)

    assert queue.take(15) == event[1:2]
    assert queue.take(15, data=False) == event[2:]
    assert queue.take(1000) == [control, behind]
    whole = queue_of(*event)
    whole.offer_control(control)
    assert whole.take(1000) == [control, *event]


def test_withdrawing_and_discarding_take_one_owners_frames() -> None:
    """Those of one topic, which a newer value replaces, or all; the rest keeps its order, and the account is right."""
    queue, mine, theirs = ClientQueue(10, 1000), Owner(), Owner()
    old, other, foreign, older = (Frame(b"x" * 8, topic=topic) for topic in ("a", "b", "a", "a"))
    for each, owner in ((older, mine), (other, mine), (foreign, theirs), (old, mine)):
        queue.offer(each, owner)

    assert (queue.withdraw(mine, "a"), queue.withdraw(mine, "a")) == (2, 0)
    assert (queue.frames, queue.bytes) == (2, 20)
    assert (queue.discard(mine), queue.discard(mine)) == ([other], [])
    assert (queue.frames, queue.bytes) == (1, 10)
    assert queue.take(1000) == [foreign]
    assert (mine.sent, theirs.sent) == (0, 1)
    assert (queue.withdraw(mine, "a"), queue.discard(mine)) == (0, [])


class AgainstOracle(RuleBasedStateMachine):
    """Any sequence of operations keeps offered = taken + discarded + waiting, for every owner, and the bounds."""

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
        owner = self.owners[who]
        mine = [each for each, whose in self.data if whose is owner]
        assert self.queue.discard(owner) == mine
        self.discarded[owner] += len(mine)
        self.data = [entry for entry in self.data if entry[1] is not owner]

    @rule()
    def clear(self) -> None:
        for _, owner in self.data:
            self.discarded[owner] += 1
        self.queue.clear()
        self.data, self.control = [], []

    @invariant()
    def accounts_are_exact(self) -> None:
        assert self.queue.frames == len(self.data)
        assert self.queue.bytes == sum(len(each.wire) for each, _ in self.data)
        assert self.queue.control_bytes == sum(len(each.wire) for each in self.control)
        assert bool(self.queue) == bool(self.data or self.control)
        for owner in self.owners:
            waiting = sum(whose is owner for _, whose in self.data)
            assert self.accepted[owner] == owner.sent + self.discarded[owner] + waiting


TestAgainstOracle = pytest.mark.no_cover(AgainstOracle.TestCase)
