"""The direct-write gate: counted corks and holds, one answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.write_gate import WriteGate


@dataclass
class Socket:
    """As much of a WebSocket as the gate looks at."""

    writing: bool = False


def test_an_idle_websocket_may_be_written_to_directly() -> None:
    """Nothing is in the way."""
    assert WriteGate().lets_through(Socket(), waiting=False)


@pytest.mark.parametrize(
    ("socket", "waiting"),
    [(None, False), (Socket(), True), (Socket(writing=True), False)],
    ids=["on polling", "frames wait in the queue", "a frame is half written"],
)
def test_direct_writes_wait_for_what_is_under_way(socket: Socket | None, waiting: bool) -> None:
    """A direct write would overtake it, or cut into it."""
    assert not WriteGate().lets_through(socket, waiting)


@given(st.lists(st.sampled_from(["cork", "uncork", "hold", "release"])))
def test_corks_and_holds_are_counted_apart(steps: list[str]) -> None:
    """The gate lets through when each has been taken back as often as it was put in; and never more often."""
    gate, corks, holds = WriteGate(), 0, 0
    for step in steps:
        if step == "cork":
            gate.cork()
            corks += 1
        elif step == "hold":
            gate.hold()
            holds += 1
        elif step == "uncork" and not corks:
            with pytest.raises(RuntimeError):
                gate.uncork()
        elif step == "uncork":
            gate.uncork()
            corks -= 1
        elif not holds:
            with pytest.raises(RuntimeError):
                gate.release()
        else:
            holds -= 1
            assert gate.release() is (holds == 0)
        assert gate.corked is (corks > 0)
        assert gate.lets_through(Socket(), waiting=False) is (corks == holds == 0)
