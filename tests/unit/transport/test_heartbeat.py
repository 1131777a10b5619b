"""The heartbeat of a session, on a clock that the test moves."""

from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.events.wire.frames import Frame
from headgate.transport.heartbeat import Heartbeat
from headgate.transport.limits import TransportLimits
from headgate.transport.session import Session as RealSession
from tests.support.session_clock import Clock, SessionServer, controlled_clock

INTERVAL_S, TIMEOUT_S = 25.0, 20.0
LIMITS = TransportLimits(ping_interval_s=INTERVAL_S, ping_timeout_s=TIMEOUT_S)

clock = pytest.fixture(controlled_clock)


class Session:
    """A session with a way for pongs that the test blocks and frees."""

    def __init__(self) -> None:
        self.pong_blocked = False
        self.stalled_s = 0.0
        self.sent: list[bytes] = []
        self.reason: str | None = None

    def offer_control(self, frame: Frame) -> None:
        self.sent.append(frame.packet)

    def end(self, reason: str) -> None:
        assert self.reason is None, "ended twice"
        self.reason = reason

    def stays_until(self, clock: Clock, seconds: float) -> None:
        """Check that silence ends it then, and not before."""
        clock.advance(seconds - 2**-10)
        assert self.reason is None
        clock.advance(2**-10)
        assert self.reason == "ping timeout"


Beating = tuple[Heartbeat, Session]


@pytest.fixture
def beating(clock: Clock) -> Iterator[Beating]:
    """A new heartbeat, and its session."""
    session, heartbeat = Session(), Heartbeat(SessionServer(clock, LIMITS))
    heartbeat.start(cast(RealSession, session))
    yield heartbeat, session
    heartbeat.stop()


def test_a_pong_that_nobody_asked_for_proves_nothing(beating: Beating, clock: Clock) -> None:
    """It neither counts for a later ping nor starts another schedule; nor is grace between two pings kept for the next."""
    heartbeat, session = beating
    assert not heartbeat.pong()
    heartbeat.has_grace = True
    assert len(clock.asked) == 1
    session.stays_until(clock, INTERVAL_S + TIMEOUT_S)


@pytest.mark.parametrize("rounds", [1, 5])
def test_a_pong_whose_way_is_blocked_has_grace_as_long_as_it_is(beating: Beating, clock: Clock, rounds: int) -> None:
    """One timeout more each time; when the way is free the browser has one last timeout."""
    _, session = beating
    clock.advance(INTERVAL_S)
    session.pong_blocked = True
    clock.advance(rounds * TIMEOUT_S)
    assert session.reason is None
    session.pong_blocked = False
    clock.advance(TIMEOUT_S)
    session.stays_until(clock, TIMEOUT_S)


def test_a_check_of_an_older_ping_does_not_judge_a_newer_one(beating: Beating, clock: Clock) -> None:
    """The pong of the first came; the second has its whole timeout."""
    heartbeat, session = beating
    clock.advance(INTERVAL_S)
    heartbeat.pong()
    clock.advance(1)
    heartbeat.ping()
    session.stays_until(clock, TIMEOUT_S)


def test_a_heartbeat_that_was_stopped_does_nothing_more(beating: Beating, clock: Clock) -> None:
    """And asks the timer for nothing more, so that a finished session is freed."""
    heartbeat, session = beating
    clock.advance(INTERVAL_S)
    heartbeat.stop()
    clock.advance(1e6)

    assert (session.sent, session.reason, clock.asked) == ([b"2"], None, [])


STEPS = st.sampled_from(["tick", "pong", "block", "free", "stall", "accept"])


@given(st.lists(STEPS, max_size=60))
def test_no_browser_that_could_not_answer_is_blamed_and_no_silent_one_is_kept(steps: list[str]) -> None:
    """This holds for any steps in any order, each a fifth of a timeout long.

    A session ends only if its browser had at least one timeout after the ping without a pong; and it does end when the way has
    been free, or nothing was accepted, for two timeouts after a ping.
    """
    step_s = TIMEOUT_S / 5
    with pytest.MonkeyPatch.context() as patch:
        timer = next(controlled_clock(patch))
        session, heartbeat = Session(), Heartbeat(SessionServer(timer, LIMITS))
        heartbeat.start(cast(RealSession, session))
        pinged_s = free_since_s = timer.now_s
        for step in steps:
            pings = len(session.sent)
            if step == "tick":
                timer.advance(step_s)
                if session.stalled_s:
                    session.stalled_s += step_s
            elif step == "pong":
                heartbeat.pong()
            elif step == "block":
                session.pong_blocked = True
            elif step == "free":
                if session.pong_blocked:
                    free_since_s = timer.now_s
                session.pong_blocked, session.stalled_s = False, 0.0
            elif step == "stall" and session.pong_blocked:
                session.stalled_s = session.stalled_s or 0.001
            else:
                session.stalled_s = 0.0
            if len(session.sent) > pings:
                pinged_s = timer.now_s
            if session.reason is not None:
                assert timer.now_s - pinged_s >= TIMEOUT_S - step_s
                assert not session.pong_blocked or session.stalled_s >= TIMEOUT_S - step_s
                return
            if heartbeat.awaits_pong and not session.pong_blocked:
                assert timer.now_s - max(pinged_s, free_since_s) < 2 * TIMEOUT_S + step_s
