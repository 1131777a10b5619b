"""The policy of garbage collection: what is looked through, and when. Pure: measures in, an action out.

Nothing of ours needs the garbage collector: a session that is over is freed by its reference counts, and a test proves that. So
the collector looks for cycles of the application and of libraries alone, and a look at all objects, which stops a gateway with
7,000 clients for 150 ms, is due only when something suggests that there are any.

    STEADY ◄──── settle ──── GROWING          settle: have Python look at its survivors once more, and freeze what is left
      │ ▲ └───── promote ─────►│ ▲
    swell └─── collect ───┐  swell shrink
      └──────────────► SWOLLEN ───┘           collect: look through all, when it is idle, or at once when it must be

Python itself looks through the youngest objects, some thousand at a time (THRESHOLDS). An object that outlives two looks is
*promoted*, and frozen soon after: a frozen object is looked at no more, and freed by its reference count as ever. A cycle of
frozen objects is garbage that stays. A client explains some memory; the memory that nobody explains has a bound, MAX_BLOCKS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

# Python's own looks: at so many new objects (0.5 ms, however many clients there are), and behind so many of these at all that
# have outlived one (2.5 ms, at most 4.5 while 7,000 clients join). Python never looks at everything by itself: that takes 157.
THRESHOLDS = (2_500, 4, 1_000_000)
# While a gateway starts, nearly everything that is made stays, some 100,000 objects: Python's own looks at them were an eighth of
# the processor time of a start. An application that leaves more behind while it loads has some 50 MB of it at most.
STARTING_THRESHOLDS = (500_000, 10, 1_000_000)
# How often the policy is asked.
LOOK_S = 1.0
# Blocks of memory (64 to 100 bytes on average) beyond those that clients explain. With more than the first, a look at all objects
# is due when the process is idle; with more than the second, some 100 MB, at once.
SWOLLEN_BLOCKS, MAX_BLOCKS = 250_000, 1_000_000
# One client has 30 to 40, and more with its queue and its subscriptions.
BLOCKS_PER_CLIENT = 200
# Idle: without clients, or a process that has used so little of the processor for so many looks in a row.
IDLE_SHARE, IDLE_LOOKS = 0.02, 5


class HeapState(Enum):
    """How the objects of the process stand."""

    STEADY = "steady"
    """All that have outlived Python's own looks are frozen."""
    GROWING = "growing"
    """Some were promoted, and are not frozen yet."""
    SWOLLEN = "swollen"
    """More memory is in use than clients explain: a look at all objects is due."""


class HeapStep(Enum):
    """Something that may happen to them."""

    PROMOTE = "promote"
    SETTLE = "settle"
    SWELL = "swell"
    SHRINK = "shrink"
    COLLECT = "collect"


TRANSITIONS: Mapping[HeapState, Mapping[HeapStep, HeapState]] = {
    HeapState.STEADY: {HeapStep.PROMOTE: HeapState.GROWING, HeapStep.SWELL: HeapState.SWOLLEN},
    HeapState.GROWING: {HeapStep.SETTLE: HeapState.STEADY, HeapStep.SWELL: HeapState.SWOLLEN},
    HeapState.SWOLLEN: {HeapStep.SHRINK: HeapState.GROWING, HeapStep.COLLECT: HeapState.STEADY},
}


class IllegalHeapStep(RuntimeError):
    """The policy took a step that its state does not allow: a fault of ours."""


class Action(Enum):
    """The work for the garbage collector."""

    NOTHING = "nothing"
    SETTLE = "settle"
    """Look through the young objects, and freeze all that are left."""
    COLLECT_ALL = "collect all"
    """Look through everything, and freeze what is left."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The process, as it is now.

    Attributes:
        now_s: monotonic.
        cpu_s: processor time that the process has used.
        promotions: Python's looks at survivors since the last action.
        blocks: blocks of memory in use.
        clients: the clients that are connected.
    """

    now_s: float
    cpu_s: float
    promotions: int
    blocks: int
    clients: int


class Collector:
    """See the module. Made when everything that is there for good has just been collected and frozen."""

    def __init__(self, now: Measures) -> None:
        self.state = HeapState.STEADY
        self._last = now
        self._idle_looks = 0
        # The least that was in use since the last look at all objects, and the clients at that time.
        self._blocks, self._clients = now.blocks, now.clients

    def look(self, now: Measures) -> Action:
        """Return what to do now; the caller does it before it asks again."""
        self._note_idleness(now)
        if now.blocks < self._blocks:
            self._blocks, self._clients = now.blocks, now.clients
        unexplained = self._unexplained(now)
        if self.state is HeapState.SWOLLEN:
            if unexplained <= SWOLLEN_BLOCKS:
                self._advance(HeapStep.SHRINK)
        elif unexplained > SWOLLEN_BLOCKS:
            self._advance(HeapStep.SWELL)
        elif self.state is HeapState.STEADY and now.promotions:
            self._advance(HeapStep.PROMOTE)
        if self.state is HeapState.SWOLLEN and (self._idle(now) or unexplained > MAX_BLOCKS):
            self._advance(HeapStep.COLLECT)
            return Action.COLLECT_ALL
        if self.state is HeapState.GROWING:
            self._advance(HeapStep.SETTLE)
        return Action.SETTLE if now.promotions else Action.NOTHING

    def collected_all(self, now: Measures) -> None:
        """Everything has been looked through: what is in use now is what there is to be."""
        self._last = now
        self._blocks, self._clients = now.blocks, now.clients

    def _unexplained(self, now: Measures) -> int:
        return now.blocks - self._blocks - BLOCKS_PER_CLIENT * max(0, now.clients - self._clients)

    def _idle(self, now: Measures) -> bool:
        return now.clients == 0 or self._idle_looks >= IDLE_LOOKS

    def _note_idleness(self, now: Measures) -> None:
        used_s, passed_s = now.cpu_s - self._last.cpu_s, now.now_s - self._last.now_s
        self._idle_looks = self._idle_looks + 1 if used_s <= IDLE_SHARE * passed_s else 0
        self._last = now

    def _advance(self, step: HeapStep) -> None:
        try:
            self.state = TRANSITIONS[self.state][step]
        except KeyError:
            raise IllegalHeapStep(f"a heap that is {self.state.value} cannot {step.value}") from None
