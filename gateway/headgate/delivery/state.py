"""The state of one client: where its events come from, and how full its queue is; one transition table. No I/O.

    ARRIVING ─────────── welcomed ──────────► LIVE ◄── feed caught up ── HANDOVER
       │  └───────── resumed ─────────┐        │                            ▲
       │ past asked, fell behind      ▼        │ fell behind                │ reached the feed
       ▼                              │        ▼                            │
    ARRIVING_BEHIND ── welcomed ──────┴────► READING ───────────────────────┘
                                               ▲
    LIVE, READING, HANDOVER ── past asked ── COLLECTING (pasts complete)

A lost log takes every client but an arriving one to LIVE: positions in the old log mean nothing in the new one. A log that goes
on in another epoch takes no step: each client stays in its phase, at a position that both lines have. `left` leads to LEFT from
everywhere, and nothing leads out of it.

Beside its phase a state has a pressure: OK, WARNED (the queue is over high water), FULL (the overflow policies decide), and
EASED: the queue has drained, but the browser is told "off" only when the live feed feeds it again.

`MACHINE` is the only way from one state to the next. A step that it does not have raises: it is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from headgate.runtime.machine import Machine


class Phase(Enum):
    """Where the events of a client come from."""

    ARRIVING = "arriving"
    """It has joined and is not welcomed yet; live events wait in its corked queue."""
    ARRIVING_BEHIND = "arriving behind"
    """Not welcomed yet; the log will bring what it asked for, missed or had no room for, so live events pass it by."""
    COLLECTING = "collecting"
    """It asks for several pasts at once: the log will bring them in one reading, when all of them are active."""
    READING = "reading"
    """The log brings its events, a page at a time, at the pace of its socket."""
    HANDOVER = "handover"
    """It has read to where the live feed is or further: live events above its handover offset come, through the queue."""
    LIVE = "live"
    """The fan-out feeds it, by direct writes while nothing waits."""
    LEFT = "left"
    """It takes nothing, and is owed nothing."""


class Pressure(Enum):
    """How full the queue is, as the browser has been told."""

    OK = "ok"
    WARNED = "warned"
    FULL = "full"
    EASED = "eased"


class Step(Enum):
    """Everything that changes the state of a client."""

    __hash__ = object.__hash__  # Enum's own runs in Python

    PAST_ASKED = "past asked"
    PASTS_COMPLETE = "pasts complete"
    WELCOMED = "welcomed"
    RESUMED = "resumed"
    FELL_BEHIND = "fell behind"
    REACHED_FEED = "reached the feed"
    FEED_CAUGHT_UP = "feed caught up"
    LOG_LOST = "log lost"
    OVER_HIGH_WATER = "over high water"
    QUEUE_FULL = "queue full"
    DRAINED = "drained"
    LEFT = "left"


class State:
    """A phase and a pressure. There is one object for each pair, so states are compared by identity, and cost a client one slot.

    Attributes:
        takes_live: whether logged live events are for it: all of them, or, in HANDOVER, those above its handover offset.
        direct: whether the fan-out may write to its socket; else its connection holds direct writes.
        full: whether the overflow policies decide about each event.
        arriving: whether it has not been welcomed.
    """

    __slots__ = ("arriving", "direct", "full", "phase", "pressure", "takes_live")

    def __init__(self, phase: Phase, pressure: Pressure) -> None:
        self.phase, self.pressure = phase, pressure
        self.takes_live = phase in (Phase.ARRIVING, Phase.HANDOVER, Phase.LIVE)
        self.direct = phase in (Phase.ARRIVING, Phase.LIVE, Phase.LEFT)
        self.full = pressure is Pressure.FULL
        self.arriving = phase in (Phase.ARRIVING, Phase.ARRIVING_BEHIND)

    def __repr__(self) -> str:
        return f"{self.phase.value}, {self.pressure.value}"


def _stay(phases: Iterable[Phase]) -> dict[Phase, Phase]:
    return {phase: phase for phase in phases}


_ARRIVING, _ARRIVING_BEHIND, _COLLECTING, _READING, _HANDOVER, _LIVE, _LEFT = Phase
_OK, _WARNED, _FULL, _EASED = Pressure
_FED_LIVE = (_ARRIVING, _HANDOVER, _LIVE)
_FROM_LOG = (_ARRIVING_BEHIND, _COLLECTING, _READING)
_PRESENT = (*_FED_LIVE, *_FROM_LOG)

_SAME: Mapping[Pressure, Pressure] = {pressure: pressure for pressure in Pressure}
# Fed live again: an eased client is told "off".
_EASED_ENDS: Mapping[Pressure, Pressure] = {**_SAME, _EASED: _OK}

# Each row: a step, the phases from which it is allowed and those behind it, and the same for pressures.
TRANSITIONS: tuple[tuple[Step, Mapping[Phase, Phase], Mapping[Pressure, Pressure]], ...] = (
    (
        Step.PAST_ASKED,
        {
            _ARRIVING: _ARRIVING_BEHIND,
            _ARRIVING_BEHIND: _ARRIVING_BEHIND,
            _COLLECTING: _COLLECTING,
            _READING: _COLLECTING,
            _HANDOVER: _COLLECTING,
            _LIVE: _COLLECTING,
        },
        _SAME,
    ),
    (Step.PASTS_COMPLETE, {_COLLECTING: _READING}, _SAME),
    (Step.WELCOMED, {_ARRIVING: _LIVE, _ARRIVING_BEHIND: _READING}, _SAME),
    (Step.RESUMED, {_ARRIVING: _READING, _ARRIVING_BEHIND: _READING}, _SAME),
    (Step.FELL_BEHIND, {_HANDOVER: _READING, _LIVE: _READING}, {_FULL: _FULL}),
    (Step.FELL_BEHIND, {_ARRIVING: _ARRIVING_BEHIND}, {_OK: _OK, _WARNED: _WARNED, _FULL: _FULL}),
    (Step.REACHED_FEED, {_READING: _HANDOVER}, _EASED_ENDS),
    (Step.FEED_CAUGHT_UP, {_HANDOVER: _LIVE}, _SAME),
    (
        Step.LOG_LOST,
        {
            _ARRIVING: _ARRIVING,
            _ARRIVING_BEHIND: _ARRIVING,
            _COLLECTING: _LIVE,
            _READING: _LIVE,
            _HANDOVER: _LIVE,
            _LIVE: _LIVE,
        },
        _EASED_ENDS,
    ),
    (Step.OVER_HIGH_WATER, _stay(_PRESENT), {_OK: _WARNED, _EASED: _WARNED}),
    (Step.QUEUE_FULL, _stay(_PRESENT), {_OK: _FULL, _WARNED: _FULL, _EASED: _FULL}),
    (Step.DRAINED, _stay(_FED_LIVE), {_OK: _OK, _WARNED: _OK, _FULL: _OK}),
    (Step.DRAINED, _stay(_FROM_LOG), {_OK: _OK, _WARNED: _EASED, _FULL: _EASED, _EASED: _EASED}),
    (Step.LEFT, dict.fromkeys(_PRESENT, _LEFT), dict.fromkeys(Pressure, _OK)),
)


# The states that can be reached: EASED is for clients that the log feeds only.
STATES = {
    (phase, pressure): State(phase, pressure)
    for phase in Phase
    for pressure in Pressure
    if (pressure is not _EASED or phase in _FROM_LOG) and (phase is not _LEFT or pressure is _OK)
}
MACHINE = Machine(
    "client",
    {
        (state, step): STATES[phases[phase], pressures[pressure]]
        for step, phases, pressures in TRANSITIONS
        for (phase, pressure), state in STATES.items()
        if phase in phases and pressure in pressures
    },
)
FIRST = STATES[_ARRIVING, _OK]
