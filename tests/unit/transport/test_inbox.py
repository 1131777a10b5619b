"""Packets of a browser: the rate limit first, then their type, then the application."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import gevent
import pytest

from headgate.protocol.frames import Frame
from headgate.transport.inbox import FULL_MESSAGES, SLICE_S, Inbox
from headgate.transport.limits import TransportLimits
from headgate.transport.session import Session as RealSession
from tests.support.session_clock import Clock, controlled_clock, turn

clock = pytest.fixture(controlled_clock)
BURST = 100


class Session:
    """Records what becomes of each packet."""

    def __init__(self) -> None:
        self.closed = False
        self.limits = TransportLimits(inbound_per_s=10, inbound_burst=BURST)
        self.sent: list[bytes] = []
        self.delivered: list[str | bytes] = []
        self.pongs = 0
        self.ended: tuple[str, bool, int, str] | None = None
        self.reading: list[str] = []
        self.delivering: Callable[[], None] = lambda: None
        self.inbox = Inbox(cast(RealSession, self))

    def end(self, reason: str, *, abort: bool = False, code: int = 1000, told: str = "") -> None:
        """Record the end."""
        self.closed, self.ended = True, (reason, abort, code, told)

    def offer_control(self, frame: Frame) -> None:
        """Record an answer."""
        self.sent.append(frame.packet)

    def pong_received(self) -> None:
        """Count."""
        self.pongs += 1

    def start(self, work: Callable[[], None]) -> None:
        """In a greenlet."""
        gevent.spawn(work)

    def deliver(self, message: str | bytes) -> None:
        """Record a message."""
        self.delivering()
        self.delivered.append(message)

    def pause_reading(self) -> None:
        """Record it."""
        self.reading.append("pause")

    def resume_reading(self) -> None:
        """Record it, and the number of messages that were delivered by then."""
        self.reading.append(f"resume at {len(self.delivered)}")

    def all_delivered(self) -> None:
        """Record it."""
        self.reading.append("all delivered")


@pytest.fixture
def session(clock: Clock) -> Session:
    """A session that has received nothing yet."""
    return Session()


def test_messages_are_delivered_in_order_in_a_greenlet_of_their_own(session: Session) -> None:
    """The hub, which brought them, does not wait for the application."""
    session.inbox.text("4one")
    session.inbox.binary(b"two")
    session.inbox.text("4")
    assert session.delivered == []
    assert not session.inbox.at_rest
    turn()

    assert session.delivered == ["one", b"two", ""]
    assert session.inbox.at_rest
    assert session.reading == ["all delivered"]


def test_other_packets_go_straight_to_the_session(session: Session) -> None:
    """A pong, a ping with its payload, a noop."""
    for packet in ("3", "2probe", "6"):
        session.inbox.text(packet)

    assert (session.pongs, session.sent, session.ended) == (1, [b"3probe"], None)
    assert session.inbox.at_rest


def test_a_close_packet_ends_the_session_without_one_in_return(session: Session) -> None:
    """The browser said it."""
    session.inbox.text("1")

    assert session.ended == ("client disconnect", True, 1000, "")


@pytest.mark.parametrize("packet", ["", "7", "abc", "0{}", "5"])
def test_an_invalid_packet_ends_the_session(session: Session, packet: str) -> None:
    """With a code and a reason that say so; what came before it is delivered nevertheless."""
    session.inbox.text("4before")
    session.inbox.text(packet)
    session.inbox.text("4behind")
    turn()

    assert session.ended == ("transport error", True, 1002, "invalid packet")
    assert session.delivered == ["before"]


def test_more_packets_than_the_burst_end_the_session(session: Session, clock: Clock) -> None:
    """Of whatever type; the bucket fills again with time."""
    for _ in range(BURST):
        session.inbox.text("6")
    clock.now_s += 1
    for _ in range(10):
        assert session.inbox.admit()
    assert session.ended is None
    session.inbox.text("4one too many")
    turn()

    assert session.ended == ("inbound flood", True, 1008, f"limit_reached: rate (at most 10/s, burst {BURST})")
    assert session.delivered == []


def test_a_full_inbox_pauses_the_reading_until_most_of_it_is_delivered(session: Session) -> None:
    """The browser's sends then back up into its own socket."""
    for number in range(FULL_MESSAGES):
        session.inbox.text(f"4{number}")
    assert session.inbox.paused
    while not session.inbox.at_rest:
        turn()

    assert session.delivered == [str(number) for number in range(FULL_MESSAGES)]
    paused, resumed, done = session.reading
    assert (paused, done) == ("pause", "all delivered")
    assert 0 < int(resumed.removeprefix("resume at ")) < FULL_MESSAGES
    assert not session.inbox.paused


def test_messages_that_the_server_does_not_want_any_more_are_discarded(session: Session) -> None:
    """It has ended the session; the one that is being handled is finished."""
    session.delivering = session.inbox.discard
    session.inbox.text("4first")
    session.inbox.text("4second")
    turn()

    assert session.delivered == ["first"]
    assert session.inbox.at_rest


def test_costly_messages_let_everybody_else_have_turns(session: Session) -> None:
    """In order all the same."""

    def work() -> None:
        ends_s = time.monotonic() + SLICE_S
        while time.monotonic() < ends_s:
            pass

    session.delivering = work
    sent = [str(number) for number in range(FULL_MESSAGES // 4)]
    for message in sent:
        session.inbox.text(f"4{message}")
    turns = 0
    while not session.inbox.at_rest:
        gevent.sleep(0)
        turns += 1

    assert session.delivered == sent
    assert turns >= len(sent)
