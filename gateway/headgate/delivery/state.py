"""The state of one client in one transition table: the source of its events, and the pressure on its queue. No I/O.

    ARRIVING ─────────── welcomed ──────────► LIVE ◄── feed caught up ── HANDOVER
       │  └───────── resumed ─────────┐        │                            ▲
       │ past asked, fell behind      ▼        │ fell behind                │ reached the feed
       ▼                              │        ▼                            │
    ARRIVING_BEHIND ── welcomed ──────┴────► READING ───────────────────────┘
                                               ▲
    LIVE, READING, HANDOVER ── past asked ── COLLECTING (pasts complete)

A lost log voids positions, so each client except an arriving one becomes LIVE. Another epoch takes no step, and each client stays
in its phase at a position on both lines. `left` leads to LEFT from everywhere, and nothing leads out of it.

Only `MACHINE` changes a state. A step that it does not have raises, as it is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from headgate.runtime.machine import Machine


class Phase(Enum):
    """Where the events of a client come from."""

    ARRIVING = "arriving"  # not welcomed yet; live events wait in its corked queue
    ARRIVING_BEHIND = "arriving behind"  # not welcomed yet; will read what it asked for, missed or had no room for
    COLLECTING = "collecting"  # asks for several pasts, and will read them together when all of them are active
    READING = "reading"  # reads the log, a page at a time, at the pace of its socket
    HANDOVER = "handover"  # has read up to the live feed; takes live events above its handover offset, through the queue
    LIVE = "live"  # gets live events, by direct writes while nothing waits
    LEFT = "left"  # takes nothing more


class Pressure(Enum):
    """How full the queue is, as reported to the browser."""

    OK = "ok"
    WARNED = "warned"  # over high water
    FULL = "full"  # the overflow policies apply
    EASED = "eased"  # drained, but the browser gets "off" only when the client is live again


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
    """A phase and a pressure. Each pair is one object, compared by identity."""

    __slots__ = ("arriving", "direct", "full", "phase", "pressure", "takes_live")

    def __init__(self, phase: Phase, pressure: Pressure) -> None:
        self.phase, self.pressure = phase, pressure
        # Whether it takes logged live events; in HANDOVER, those above its handover offset.
        self.takes_live = phase in (Phase.ARRIVING, Phase.HANDOVER, Phase.LIVE)
        self.direct = phase in (Phase.ARRIVING, Phase.LIVE, Phase.LEFT)  # whether the fan-out may write to its socket
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
_EASED_ENDS: Mapping[Pressure, Pressure] = {**_SAME, _EASED: _OK}

# Each row has a step, its phases before and after, and its pressures before and after.
TRANSITIONS: tuple[tuple[Step, Mapping[Phase, Phase], Mapping[Pressure, Pressure]], ...] = (
    (
        Step.PAST_ASKED,
        {
            **dict.fromkeys((_ARRIVING, _ARRIVING_BEHIND), _ARRIVING_BEHIND),
            **dict.fromkeys((_COLLECTING, _READING, _HANDOVER, _LIVE), _COLLECTING),
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
        {_ARRIVING: _ARRIVING, _ARRIVING_BEHIND: _ARRIVING, _COLLECTING: _LIVE, _READING: _LIVE, _HANDOVER: _LIVE, _LIVE: _LIVE},
        _EASED_ENDS,
    ),
    (Step.OVER_HIGH_WATER, _stay(_PRESENT), {_OK: _WARNED, _EASED: _WARNED}),
    (Step.QUEUE_FULL, _stay(_PRESENT), {_OK: _FULL, _WARNED: _FULL, _EASED: _FULL}),
    (Step.DRAINED, _stay(_FED_LIVE), {_OK: _OK, _WARNED: _OK, _FULL: _OK}),
    (Step.DRAINED, _stay(_FROM_LOG), {_OK: _OK, _WARNED: _EASED, _FULL: _EASED, _EASED: _EASED}),
    (Step.LEFT, dict.fromkeys(_PRESENT, _LEFT), dict.fromkeys(Pressure, _OK)),
)


# The reachable states. Only clients that read the log are EASED.
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
