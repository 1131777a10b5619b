"""A client and a log that goes on in another epoch: the notice to it, by its phase and its pressure."""

from collections.abc import Callable, Iterator

import pytest

from headgate.delivery.client import MAX_NOTICES, Client
from headgate.delivery.state import Phase
from headgate.events.wire.frames import Frame, event_frame, message_frame
from headgate.events.wire.packets import CURSOR, Overflow, notice_packet
from tests.support.wired_client import NAMESPACE, WiredClient, event

OTHER = "f" * 16
END = 100
FRAMES = 8

MakeClient = Callable[..., WiredClient]


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    """Make clients with a small queue."""
    made: list[WiredClient] = []

    def make(policy: Overflow = Overflow.CATCH_UP) -> WiredClient:
        made.append(WiredClient({"#": policy}, queue_frames=FRAMES))
        return made[-1]

    yield make
    for wired in made:
        wired.close()


def live(client: Client) -> None:
    """It has every event of the feed."""


def collecting(client: Client) -> None:
    """It asks for a past from 50 on, and has had all up to 110."""
    client.ask_past("#", 50, 110)


def reading(client: Client) -> None:
    """It reads that past, and has come to 70."""
    collecting(client)
    client.pasts_complete()
    client.position = 70


def reading_further(client: Client) -> None:
    """It has read to 108, and nothing above."""
    client.ask_past("#", 50, 60)
    client.pasts_complete()
    client.position = 108


def handed_over(client: Client) -> None:
    """It has read further than the feed has come."""
    reading(client)
    client.position = 120
    client.reach_feed()


def change(client: Client, feed_offset: int, end: int = END, epoch: str = OTHER) -> int | None:
    """Act like the live feed; return the offset up to which the client has had events."""
    had = client.change_line(end, feed_offset)
    if had is not None and had > end:
        client.notify_rolled_back(end, had, epoch)
    elif had is not None:
        client.notify_line(message_frame(notice_packet(NAMESPACE, CURSOR, {"epoch": epoch, "offset": had})))
    return had


def framed(offset: int) -> Frame:
    """An event, as a full socket leaves it to the client."""
    return event_frame(NAMESPACE.encode(), event(offset, "t"))


def stalled(wired: WiredClient) -> Client:
    """A client with an event in its queue, which its browser does not read."""
    wired.connection.cork()
    wired.client.offer(framed(1))
    return wired.client


def test_a_client_that_does_not_read_while_the_log_changes_again_and_again_is_disconnected(make_client: MakeClient) -> None:
    """Its queue is bounded also where a gap comes ahead of each change; it resumes, and is notified of all at once."""
    wired = make_client(Overflow.DROP)
    client = stalled(wired)
    offset = 100
    most = 0
    while not wired.connection.closed:
        for _ in range(FRAMES + 1):
            offset += 1
            client.offer(framed(offset))
        change(client, offset, offset, f"e{offset}")
        most = max(most, wired.connection.queue.frames)
    assert most <= FRAMES + MAX_NOTICES + 2


@pytest.mark.parametrize(
    ("into", "phase", "last"),
    [
        (live, Phase.LIVE, 110),
        (collecting, Phase.COLLECTING, 110),
        (reading, Phase.READING, 110),
        (reading_further, Phase.READING, 108),
        (handed_over, Phase.HANDOVER, 120),
    ],
    ids=["live", "collecting", "reading", "reading further", "handover"],
)
def test_each_is_told_what_it_has_had_above_the_end_and_stays_in_its_phase(
    make_client: MakeClient, into: Callable[[Client], None], phase: Phase, last: int
) -> None:
    """From then on its place is the end, or its lower reading position."""
    wired = make_client()
    client = wired.client
    into(client)
    below = min(client.position, END)
    change(client, 110)
    wired.drain()
    (gap,) = wired.notices("gap")
    assert (gap["reason"], gap["from"], gap["to"], gap["epoch"]) == ("rolled_back", END + 1, last, OTHER)
    assert (gap["count"], gap["recoverable"], gap["patterns"]) == (last - END, False, ["#"])
    assert client.state.phase is phase
    assert (client.position, max(client.base, client.even_from) <= END) == (below, True)
    assert wired.notices("cursor") == []


@pytest.mark.parametrize("into", [live, collecting, reading, reading_further, handed_over])
def test_a_change_that_costs_a_client_nothing_is_a_cursor(make_client: MakeClient, into: Callable[[Client], None]) -> None:
    """Nothing else is another for it."""
    wired = make_client()
    client = wired.client
    into(client)
    before = (client.state, client.position, client.base, client.starts)
    change(client, 110, end=120)
    wired.drain()
    assert (client.state, client.position, client.base, client.starts) == before
    assert [name for name, *_ in wired.received] == ["cursor"]
