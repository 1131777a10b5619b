"""The table of a session's life."""

from __future__ import annotations

import pytest

from headgate.transport.session_state import MACHINE, MOVED, OVER, SessionState, SessionStep


def reached_from(first: SessionState) -> set[SessionState]:
    """Return the states that a session can come to, the first one included."""
    reached, left = set[SessionState](), [first]
    while left:
        reached.add(state := left.pop())
        left += [to for (before, _), to in MACHINE.items() if before is state and to not in reached]
    return reached


def test_every_state_can_be_reached_and_left() -> None:
    """But for the last one, which nothing follows."""
    assert reached_from(SessionState.HANDSHAKE) == set(SessionState)
    assert {before for before, _ in MACHINE} == set(SessionState) - {SessionState.CLOSED}
    assert set(SessionState) > MOVED


@pytest.mark.parametrize("state", [state for state in SessionState if state not in OVER], ids=lambda state: state.value)
def test_a_living_session_may_end_in_any_state(state: SessionState) -> None:
    """The browser, the server and the network may each end it at any moment."""
    assert MACHINE[state, SessionStep.END] is SessionState.CLOSING


def test_a_session_ends_once_and_is_forgotten_once() -> None:
    """`ended` is called once, as nothing leads out of CLOSING but FORGET, and nothing out of CLOSED."""
    out = {(before, step): to for (before, step), to in MACHINE.items() if before in OVER}
    assert out == {(SessionState.CLOSING, SessionStep.FORGET): SessionState.CLOSED}


def test_a_session_moves_to_a_websocket_only_behind_an_answered_probe_and_never_returns() -> None:
    """Its frames would otherwise go where the browser cannot be reached; Engine.IO has no way back to polling."""
    into_open = {taken for taken, to in MACHINE.items() if to is SessionState.OPEN}

    assert into_open == {(SessionState.HANDSHAKE, SessionStep.START_WEBSOCKET), (SessionState.UPGRADING, SessionStep.MOVE)}
    assert reached_from(SessionState.OPEN) == {SessionState.OPEN} | OVER
