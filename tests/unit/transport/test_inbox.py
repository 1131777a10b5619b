"""Packets of a browser: the rate limit first, then their type, then the application."""

import time
from collections.abc import Iterator

import gevent
import pytest
from gevent.event import Event

from headgate.transport.inbox import FULL_MESSAGES, LOW_MESSAGES, SLICE_S, Inbox
from headgate.transport.limits import TransportLimits
from tests.support.session_browser import Browser
from tests.support.session_clock import Clock, controlled_clock, turn, until
from tests.support.websocket_codec import CLOSE, TEXT, close_told

clock = pytest.fixture(controlled_clock)
BURST = 100


@pytest.fixture
def browser(clock: Clock) -> Iterator[Browser]:
    """A session on WebSocket that has received nothing yet."""
    limits = TransportLimits(inbound_per_s=10, inbound_burst=BURST, ping_interval_s=3600, handshake_deadline_s=3600)
    made = Browser(clock, limits).connect()
    yield made
    made.over()


def receive(browser: Browser, *packets: str | bytes) -> Inbox:
    """Have the session receive packets now, in the hub's place; return its inbox."""
    for packet in packets:
        browser.session.received(packet)
    return browser.session.inbox or Inbox(browser.session)


def test_messages_are_delivered_in_order_in_a_greenlet_of_their_own(browser: Browser) -> None:
    """The hub, which brought them, does not wait for the application."""
    inbox = receive(browser, "4one", b"two", "4")
    assert (browser.server.delivered, inbox.at_rest, inbox.paused) == ([], False, False)
    turn()

    assert browser.server.delivered == ["one", b"two", ""]
    assert inbox.at_rest


def test_other_packets_go_straight_to_the_session(browser: Browser) -> None:
    """A pong, a ping with its payload, a noop."""
    assert receive(browser, "3", "2probe", "6").at_rest
    assert (browser.received(), browser.session.reason) == ([(TEXT, b"3probe")], None)


@pytest.mark.parametrize(
    ("packet", "reason", "told"),
    [
        ("1", "client disconnect", (1000, "")),
        *((packet, "transport error", (1002, "invalid packet")) for packet in ("", "7", "abc", "0{}", "5")),
    ],
)
def test_a_close_packet_or_an_invalid_one_ends_the_session(
    browser: Browser, packet: str, reason: str, told: tuple[int, str]
) -> None:
    """Without a CLOSE packet in return; earlier packets are delivered nevertheless."""
    receive(browser, "4before", packet, "4behind")
    ((opcode, payload),) = browser.received()

    assert (browser.session.reason, opcode, close_told(payload)) == (reason, CLOSE, told)
    assert browser.server.delivered == ["before"]


def test_more_packets_than_the_burst_end_the_session(browser: Browser) -> None:
    """Of whatever type; the bucket fills again with time."""
    receive(browser, *["6"] * BURST)
    browser.clock.now_s += 1
    assert all(browser.session.control_received() for _ in range(10))
    assert browser.session.reason is None
    receive(browser, "4one too many")
    ((_, payload),) = browser.received()

    assert browser.session.reason == "inbound flood"
    assert browser.server.delivered == []
    assert close_told(payload) == (1008, f"limit_reached: rate (at most 10/s, burst {BURST})")


def test_a_full_inbox_pauses_the_reading_until_most_of_it_is_delivered(browser: Browser) -> None:
    """The browser's sends then back up into its own socket."""
    go_on, paused = Event(), list[bool]()

    def deliver() -> None:
        go_on.wait()
        paused.append(inbox.paused)

    browser.server.delivering = deliver
    inbox = receive(browser, *(f"4{number}" for number in range(FULL_MESSAGES)))
    browser.send("4behind")
    assert len(inbox._messages or ()) == FULL_MESSAGES - 1  # and one in hand
    go_on.set()
    until(lambda: len(paused) == FULL_MESSAGES + 1)

    assert browser.server.delivered == [*(str(number) for number in range(FULL_MESSAGES)), "behind"]
    assert paused.index(False) == FULL_MESSAGES - LOW_MESSAGES - 1
    assert not any(paused[paused.index(False) :])


def test_messages_that_the_server_does_not_want_any_more_are_discarded(browser: Browser) -> None:
    """It has ended the session; the current message is finished."""
    browser.server.delivering = lambda: browser.session.end("server disconnect")
    inbox = receive(browser, "4first", "4second")
    turn()

    assert (browser.server.delivered, inbox.at_rest) == (["first"], True)
    assert browser.server.ends == ["server disconnect"]


def test_costly_messages_let_everybody_else_have_turns(browser: Browser) -> None:
    """In order all the same."""

    def work() -> None:
        ends_s = time.monotonic() + SLICE_S
        while time.monotonic() < ends_s:
            pass

    browser.server.delivering = work
    sent = [str(number) for number in range(FULL_MESSAGES // 4)]
    inbox, turns = receive(browser, *(f"4{message}" for message in sent)), 0
    while not inbox.at_rest:
        gevent.sleep(0)
        turns += 1

    assert browser.server.delivered == sent
    assert turns >= len(sent)
