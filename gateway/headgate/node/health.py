"""The gateway's health: whether events flow and clients are admitted. Never waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.installation import build_in_use

from .namespace import Namespace


@dataclass
class State:
    """The state of the whole process. `admission` is a word of population/shedding.py. `paused` lists the pauses."""

    sessions: int = 0
    draining: bool = False
    admission: str = "admitting"
    paused: list[str] = field(default_factory=list)
    revocations_known: bool = False
    revocations_error: str | None = None


def health(namespaces: Mapping[str, Namespace], state: State) -> dict[str, object]:
    """Return `{ready, bus, build, admission, paused, revocations, …, namespaces: {name: {bus, epoch, offset, clients, error?}}}`.

    Ready means that events flow and clients are admitted, which requires that the revocations are known. `admission` shows
    whether there is room. A full gateway stays ready, because a balancer would otherwise fill up the others in turn.
    """
    states: dict[str, dict[str, object]] = {}
    for name, namespace in namespaces.items():
        bus = namespace.bus
        states[name] = {
            "bus": "up" if bus.up else "down",
            "epoch": bus.epoch,
            "offset": bus.reached,
            "clients": len(namespace.clients),
        }
        if bus.last_error is not None:
            states[name]["error"] = bus.last_error.message
    up = all(namespace.bus.up for namespace in namespaces.values())
    result: dict[str, object] = {
        "ready": up and state.revocations_known and not state.draining,
        "bus": "up" if up else "down",
        "build": build_in_use(),
        "admission": state.admission,
        "paused": state.paused,
        "revocations": state.revocations_known,
        "namespaces": states,
    }
    if state.revocations_error is not None:
        result["revocations_error"] = state.revocations_error
    return result
