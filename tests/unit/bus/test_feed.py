"""Received or reported: the feed through random interleavings of everything that may happen between a gateway and Redis.

HEADGATE_HISTORIES sets how many (`make fuzz`: 100,000), HEADGATE_SEED tries one.
"""

import os
from collections.abc import Iterable

import pytest

from headgate.delivery.bus import feed as feed_module
from headgate.delivery.bus import interest as interest_module
from headgate.delivery.bus.actions import Action
from headgate.delivery.bus.feed import Feed, State, Steps
from headgate.delivery.bus.interest import Interest
from headgate.delivery.bus.messages import Messages
from headgate.events.event import Event
from headgate.installation import build_in_use
from headgate.redis.lineage import Entry, Head, Lineage
from tests.support.feed_world import Broken, World

STEPS = 300
HISTORIES = int(os.environ.get("HEADGATE_HISTORIES", "150"))
# A planted fault is found within so many histories.
MAX_HISTORIES = 3000


@pytest.fixture(autouse=True)
def near_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring the limits within reach of a short history."""
    monkeypatch.setattr(feed_module, "MAX_LEAP", 6)
    monkeypatch.setattr(interest_module, "MAX_GLOBS", 3)


def fault_of(world: World, steps: int) -> Exception | None:
    try:
        world.run(steps)
    except Exception as error:  # noqa: BLE001 - a fault of the feed may raise anything
        return error
    return None


def shortest(seed: int, feed_class: type[Feed] = Feed) -> str:
    """Describe the shortest prefix of a history that fails."""
    for steps in range(STEPS + 1):
        world = World(seed, feed_class)
        fault = fault_of(world, steps)
        if fault is not None:
            return f"{fault!r} after {steps} steps: {' '.join(world.trail)}"
    return "it fails no more"


def test_every_event_is_delivered_in_order_and_once_or_told_before_anything_later() -> None:
    """A failure names its seed, and the shortest prefix of its history that still fails."""
    inputs = taken = 0
    seeds: Iterable[int] = range(1, HISTORIES + 1)
    if "HEADGATE_SEED" in os.environ:
        seeds = [int(os.environ["HEADGATE_SEED"])]
    for seed in seeds:
        world = World(seed)
        fault = fault_of(world, STEPS)
        if fault is not None:
            pytest.fail(f"HEADGATE_SEED={seed}: {fault!r}; shortest: {shortest(seed)}")
        inputs += world.inputs
        taken += world.taken
    print(f"{inputs} inputs and actions; {taken} messages were written directly")
    assert bool(taken) == (build_in_use() == "compiled") or "HEADGATE_SEED" in os.environ


# The oracle bites --------------------------------------------------------------------------------------------------------


class TakesAnyHole(Feed):
    """A whole feed that trusts an event after a hole."""

    def _next_events(self) -> list[Event]:
        whole, self.interest.whole = self.interest.whole, False
        try:
            return super()._next_events()
        finally:
            self.interest.whole = whole


class ForgetsTheLog(Feed):
    """A feed that does not read the log after a reconnect."""

    def answer(self, answer: Head | list[Entry]) -> None:
        if isinstance(answer, Head) and self.state is State.SYNCING and answer.epoch == self.epoch:
            self._go_to(max(self.offset, answer.offset))
        super().answer(answer)


class _TrustingInterest(Interest):
    def active(self, pattern: str) -> bool:
        if self.attached and self._acknowledged.issuperset(self._sources_of[pattern]):
            return True
        return super().active(pattern)


class TrustsTheAcknowledgement(Feed):
    """A feed that takes a pattern for active as soon as Redis has acknowledged it."""

    def __init__(self, namespace: str, max_payload_bytes: int, fence_interval_s: float, *, sharded: bool = False) -> None:
        super().__init__(namespace, max_payload_bytes, fence_interval_s, sharded=sharded)
        self.interest = _TrustingInterest(namespace, sharded=sharded)


class _WithoutCopies(Messages):
    def is_copy(self, reply: list[bytes]) -> bool:
        return False


class HandsOnTwice(Feed):
    """A feed that knows no copies."""

    def __init__(self, namespace: str, max_payload_bytes: int, fence_interval_s: float, *, sharded: bool = False) -> None:
        super().__init__(namespace, max_payload_bytes, fence_interval_s, sharded=sharded)
        self._messages = _WithoutCopies(namespace, max_payload_bytes)


class ForgetsAFailedPass(Feed):
    """A feed that does not report a pass that failed midway."""

    def failed(self) -> list[Action]:
        super().failed()
        return []


class SyncsTooMuch(Feed):
    """A feed whose fence also covers sources that Redis has acknowledged after its head was read."""

    def fence_head(self, number: int, head: Head, now_s: float) -> list[Action]:
        self._fence.sources = self.interest.acknowledged
        return super().fence_head(number, head, now_s)


class DropsTooEarly(Feed):
    """A feed that drops a glob before the sources that replace it are synced."""

    def __init__(self, namespace: str, max_payload_bytes: int, fence_interval_s: float, *, sharded: bool = False) -> None:
        super().__init__(namespace, max_payload_bytes, fence_interval_s, sharded=sharded)
        self.interest._dispensable = lambda source, cover: True  # type: ignore[method-assign]


class KeepsTheEpoch(Feed):
    """A feed that takes a new epoch for the old one."""

    def answer(self, answer: Head | list[Entry]) -> None:
        if isinstance(answer, Head) and self.epoch is not None and answer.epoch and answer.offset >= self.offset:
            self.epoch = answer.epoch
        super().answer(answer)


class EndsTooHigh(Feed):
    """A feed that takes the first event of another line for one of its own line."""

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        yield from super()._change_line(head, lineage, end + 1)


class EndsTooLow(Feed):
    """A feed that reports one event more than was lost."""

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        yield from super()._change_line(head, lineage, end - 1)


class StaysAhead(Feed):
    """A feed that speaks of the other line, and does not go back to where it begins."""

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        was_offset = self.offset
        for action in super()._change_line(head, lineage, end):
            self._go_to(was_offset)
            yield action


class LeapsToTheFork(Feed):
    """A feed that goes to where the lines part even if it has not got there yet."""

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        for action in super()._change_line(head, lineage, end):
            self._go_to(end)
            yield action


class SkipsTheNewLine(Feed):
    """A feed that goes on from the head of the other line."""

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        yield from super()._change_line(head, lineage, end)
        self._go_to(max(self.offset, head.offset))


class ChangesInSilence(Feed):
    """A feed that goes over to the other line without notice."""

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        list(super()._change_line(head, lineage, end))
        yield from ()


class KnowsNoLine(Feed):
    """A feed that takes every new epoch for another log."""

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        yield from self._lose_log(Head(head.epoch, head.first - 1, head.first, head.library, lineage))


class TrustsAnyServer(Feed):
    """A feed that takes the head of one server and the PONG of another for a proof."""

    def _server_fault(self, head: Head) -> None:
        return None


class BelievesTheStepBack(Feed):
    """A feed that goes back in its own epoch, where events that were lost may still be on their way."""

    def _can_judge(self, head: Head) -> bool:
        return bool(head.epoch) and (head.epoch == self.epoch or super()._can_judge(head))


class ReportsNothing(Feed):
    """A feed that does not report its newest event to Redis."""

    def _known(self) -> tuple[str | int, ...]:
        return (self.epoch or "",)


# Each with the history that finds it. It is tried first. A change of the world may make it another, and then the search begins
# at 1.
FAULTY: dict[type[Feed], int] = {
    ReportsNothing: 163,
    TakesAnyHole: 113,
    ForgetsTheLog: 5,
    TrustsTheAcknowledgement: 70,
    HandsOnTwice: 70,
    ForgetsAFailedPass: 102,
    SyncsTooMuch: 158,
    DropsTooEarly: 119,
    KeepsTheEpoch: 1,
    EndsTooHigh: 1,
    EndsTooLow: 1,
    StaysAhead: 1,
    LeapsToTheFork: 6,
    SkipsTheNewLine: 1,
    ChangesInSilence: 1,
    KnowsNoLine: 1,
    BelievesTheStepBack: 73,
    TrustsAnyServer: 509,
}


@pytest.mark.parametrize("faulty", FAULTY)
def test_a_planted_fault_is_found(faulty: type[Feed]) -> None:
    """The same histories with a feed that breaks one of its rules."""
    for seed in (FAULTY[faulty], *range(1, MAX_HISTORIES + 1)):
        fault = fault_of(World(seed, faulty), STEPS)
        if fault is not None:
            print(f"{faulty.__name__}: HEADGATE_SEED={seed}: {fault}")
            assert isinstance(fault, Broken)
            return
    pytest.fail(f"not found in {MAX_HISTORIES} histories")
