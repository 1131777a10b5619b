"""The table of a session's life."""

from __future__ import annotations

import pytest

from headgate.transport.session_state import MOVED, OVER, TRANSITIONS, IllegalStep, SessionState, SessionStep, following

LIVING = [state for state in SessionState if state not in OVER]


def test_every_state_has_its_row() -> None:
    """A state without one would raise for every step, in production too."""
    assert set(TRANSITIONS) == set(SessionState)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
def test_a_living_session_may_end_in_any_state(state: SessionState) -> None:
    """The browser, the server and the network may each end it at any moment."""
    assert following(state, SessionStep.END) is SessionState.CLOSING


def test_a_session_ends_once_and_is_forgotten_once() -> None:
    """`ended` is called once: nothing leads out of CLOSING but FORGET, and nothing out of CLOSED."""
    assert dict(TRANSITIONS[SessionState.CLOSING]) == {SessionStep.FORGET: SessionState.CLOSED}
    assert not TRANSITIONS[SessionState.CLOSED]


def test_a_session_moves_to_a_websocket_only_behind_an_answered_probe() -> None:
    """Its frames would otherwise go to a WebSocket over which the browser cannot be reached."""
    into_open = {(state, step) for state, steps in TRANSITIONS.items() for step, to in steps.items() if to is SessionState.OPEN}

    assert into_open == {
        (SessionState.HANDSHAKE, SessionStep.START_WEBSOCKET),
        (SessionState.UPGRADING, SessionStep.MOVE),
    }


def test_a_session_never_returns_from_websocket_to_polling() -> None:
    """Engine.IO has no way back."""
    reached, left = set[SessionState](), [SessionState.OPEN]
    while left:
        state = left.pop()
        reached.add(state)
        left += [to for to in TRANSITIONS[state].values() if to not in reached]

    assert reached == {SessionState.OPEN} | OVER


def test_every_state_can_be_reached() -> None:
    """From the first one."""
    reached, left = set[SessionState](), [SessionState.HANDSHAKE]
    while left:
        state = left.pop()
        reached.add(state)
        left += [to for to in TRANSITIONS[state].values() if to not in reached]

    assert reached == set(SessionState)
    assert reached > MOVED


@pytest.mark.parametrize(
    ("state", "step"),
    [(state, step) for state in SessionState for step in SessionStep if step not in TRANSITIONS[state]],
    ids=lambda part: part.value,
)
def test_any_other_step_raises(state: SessionState, step: SessionStep) -> None:
    """With both in the message."""
    with pytest.raises(IllegalStep, match=f"a session that is {state.value} cannot {step.value}"):
        following(state, step)
