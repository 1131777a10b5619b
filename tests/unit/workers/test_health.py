"""The health of several workers: the worst of them, with each named."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.workers.board import Row, State
from headgate.workers.peer_workers import joined

UP = {"ready": True, "bus": "up", "revocations": True}


def row(number: int, state: State = State.SERVING) -> Row:
    return Row(number - 1, state, age=number, process_id=100 + number, connections=0)


def answer(clients: int = 1, offset: int = 5, **changed: Any) -> dict[str, Any]:
    bus = changed.get("bus", "up")
    namespaces = {"n": {"bus": bus, "epoch": "e", "offset": offset, "clients": clients}}
    return {**UP, "namespaces": namespaces, **changed}


def test_all_that_serve_are_well() -> None:
    """Their clients are counted together, and the lowest offset is reported."""
    report = joined([row(1), row(2)], {1: answer(2, offset=9), 2: answer(3, offset=7)})
    assert (report["ready"], report["bus"], report["revocations"]) == (True, "up", True)
    assert report["namespaces"] == {"n": {"bus": "up", "epoch": "e", "offset": 7, "clients": 5}}
    assert [(each["worker"], each["process"], each["state"], each["ready"]) for each in report["workers"]] == [
        (1, 101, "serving", True),
        (2, 102, "serving", True),
    ]


@pytest.mark.parametrize(("bad", "bus"), [(answer(bus="down", ready=False), "down"), (answer(ready=False), "up"), (None, "up")])
def test_one_that_serves_and_is_not_well_is_enough(bad: dict[str, Any] | None, bus: str) -> None:
    """A silent one as well, because its connections are stuck in it."""
    report = joined([row(1), row(2)], {1: answer(), 2: bad})
    assert (report["ready"], report["bus"]) == (False, bus)
    assert [each["ready"] for each in report["workers"]] == [True, False]
    assert ("error" in report["workers"][1]) == (bad is None)


@pytest.mark.parametrize("state", [State.BOOTING, State.DRAINING, State.ALONE])
def test_one_that_begins_or_leaves_is_named_and_does_not_count(state: State) -> None:
    """The others serve in the meantime."""
    report = joined([row(1), row(2, state)], {1: answer(), 2: answer(ready=False)})
    assert report["ready"]
    assert report["workers"][1] == {"worker": 2, "process": 102, "state": state.name.lower()}


def test_the_worst_admission_is_told_and_every_pause() -> None:
    """Each worker has separate room, and may learn of a pause a second before another."""
    answers = {1: answer(admission="admitting", paused=["connects"]), 2: answer(admission="shedding", paused=["namespace n"])}
    report = joined([row(1), row(2)], answers)
    assert (report["admission"], report["paused"]) == ("shedding", ["connects", "namespace n"])
    assert [each["admission"] for each in report["workers"]] == ["admitting", "shedding"]


def test_nobody_serves() -> None:
    """The machine is not ready."""
    report = joined([row(1, State.BOOTING)], {})
    assert (report["ready"], report["bus"]) == (False, "down")


def test_the_reason_for_unknown_revocations_is_told() -> None:
    """As one process reports it."""
    report = joined([row(1), row(2)], {1: answer(), 2: answer(revocations=False, revocations_error="why")})
    assert (report["revocations"], report["revocations_error"]) == (False, "why")
