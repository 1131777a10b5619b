"""Positions of clients and the line of the log: resumes, pasts and replays, of epochs before, beside and ahead of the gateway's.

The bus is not started. Its position and its lineage are the test's, and so is the Redis that knows the log's head.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from headgate.auth.identity import Identity
from headgate.delivery.bus.listener import Bus
from headgate.delivery.client import Client
from headgate.delivery.state import Phase
from headgate.errors import BusUnavailable
from headgate.events.wire.requests import Position, Subscription
from headgate.node.namespace import Namespace
from headgate.redis.lineage import Entry, Head, Lineage, read_lineage
from headgate.redis.log import EventLog
from headgate.settings.settings import Settings
from tests.support.bus_position import stand_at
from tests.support.wired_client import NAMESPACE, WiredClient, event
from tests.unit.node.connections import namespace_of

FIRST, SECOND, NEWEST, LATER, UNKNOWN = (letter * 16 for letter in "abcdf")
# FIRST ends at 100, SECOND at 150; the feed stands at 200 in NEWEST.
EPOCHS = ((FIRST, 1, 0), (SECOND, 101, 1), (NEWEST, 151, 2))
LINE = read_lineage(NEWEST, EPOCHS)
LATER_LINE = read_lineage(LATER, (*EPOCHS, (LATER, 181, 3)))


class Redis:
    """Stands for the log: `at` is where it stands. It counts how often it was asked, and remembers which pages were read."""

    def __init__(self) -> None:
        self.at = Head(NEWEST, 200, 1, 5, LINE)
        self.asked = 0
        self.pages: list[tuple[int, int | None, str | None]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def head(self, known_epoch: str | None = None) -> Head:
        self.asked += 1
        self.meanwhile()
        return self.at

    def page(self, after: int, upto: int | None, *, epoch: str | None) -> list[Entry]:
        self.pages.append((after, upto, epoch))
        if epoch != self.at.epoch:
            raise BusUnavailable("another epoch")
        last = self.at.offset if upto is None else min(upto, self.at.offset)
        return [Entry(offset, event(offset)) for offset in range(after + 1, last + 1)][:100]


@pytest.fixture
def redis(monkeypatch: pytest.MonkeyPatch) -> Redis:
    """Redis, and a bus that has met its line."""
    monkeypatch.setattr(Bus, "lineage", LINE)
    return Redis()


@pytest.fixture
def namespace(redis: Redis) -> Iterator[Namespace]:
    """A namespace with a feed at 200 of the newest epoch."""
    namespace = namespace_of(NAMESPACE, Settings())
    stand_at(namespace.bus, NEWEST, 200, 1)
    namespace.search._log = cast(EventLog, redis)
    yield namespace
    namespace.close()


def arriving(namespace: Namespace, wired: WiredClient) -> Client:
    """Let a client join and subscribe to everything."""
    client = namespace.join("session", Identity("user", ("#",)), wired.connection)
    wired.connection.owners = (client,)
    namespace.subscribe(client, {"pattern": "#"})
    return client


def live(namespace: Namespace, wired: WiredClient) -> Client:
    """Let a client join that resumes nothing."""
    client = arriving(namespace, wired)
    namespace.resume(client, None)
    return client


def gaps(wired: WiredClient) -> list[tuple[Any, ...]]:
    """Reason, range, count and epoch of every gap that was reported to the browser."""
    wired.drain()
    return [(gap["reason"], gap["from"], gap["to"], gap["count"], gap.get("epoch")) for gap in wired.notices("gap")]


# -- resume -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "offset"), [(FIRST, 1), (FIRST, 100), (SECOND, 100), (SECOND, 150), (NEWEST, 150), (NEWEST, 200)]
)
def test_a_position_on_the_line_is_resumed_without_a_word(
    namespace: Namespace, wired: WiredClient, redis: Redis, epoch: str, offset: int
) -> None:
    """The log was restarted twice, and this client has lost nothing by it; Redis is not even asked."""
    client = arriving(namespace, wired)
    assert namespace.resume(client, Position(epoch, offset)) == (True, Position(NEWEST, offset))
    assert gaps(wired) == []
    assert redis.asked == 0
    assert client.state.phase is (Phase.LIVE if offset == 200 else Phase.READING)


@pytest.mark.parametrize(
    ("epoch", "offset", "end"), [(FIRST, 101, 100), (FIRST, 900, 100), (SECOND, 180, 150), (NEWEST, 205, 200)]
)
def test_a_position_off_the_line_goes_on_behind_its_end_and_is_told_of_the_rest(
    namespace: Namespace, wired: WiredClient, epoch: str, offset: int, end: int
) -> None:
    """Exactly its seen events that the log no longer has."""
    client = arriving(namespace, wired)
    assert namespace.resume(client, Position(epoch, offset)) == (False, Position(NEWEST, end))
    assert client.position == end
    assert gaps(wired) == [("rolled_back", end + 1, offset, offset - end, NEWEST)]


def test_a_rolled_back_range_is_told_ahead_of_events_since_it_joined(namespace: Namespace, wired: WiredClient) -> None:
    """Events of the new line that wait for it come out of the log, after the gap; a plain publish keeps waiting."""
    client = arriving(namespace, wired)
    wired.connection.cork()
    namespace.route([event(None), event(201)])
    stand_at(namespace.bus, NEWEST, 201)
    namespace.resume(client, Position(SECOND, 160))
    waiting = [frame.packet.split(b'"')[1] for frame in wired.connection.queue.take(1 << 20)]
    assert waiting == [b"gap", b"event"]
    assert client.position == 150


@pytest.mark.parametrize("line", [LINE, None], ids=["unknown to the line", "without lineage"])
def test_an_epoch_that_nobody_knows_is_of_a_lost_log(
    namespace: Namespace, wired: WiredClient, redis: Redis, line: Lineage | None
) -> None:
    """Redis was asked, as another gateway may be ahead of this one."""
    redis.at = Head(NEWEST, 200, 1, 5 if line else 4, line)
    assert namespace.resume(arriving(namespace, wired), Position(UNKNOWN, 5)) == (False, None)
    assert redis.asked == 1
    assert gaps(wired) == [("log_lost", None, None, None, None)]


def test_a_position_ahead_of_the_feed_makes_the_head_known(namespace: Namespace, wired: WiredClient, redis: Redis) -> None:
    """So the gateway can report it to a reverted Redis, and no other event then takes the place of one that a client has."""
    redis.at = Head(NEWEST, 230, 1, 5, LINE)
    assert namespace.resume(arriving(namespace, wired), Position(NEWEST, 220)) == (True, Position(NEWEST, 220))
    assert namespace.bus.head == 230
    namespace.bus.note_head(225)
    assert namespace.bus.head == 230


@pytest.mark.parametrize(("epoch", "offset"), [(LATER, 190), (UNKNOWN, 5), (NEWEST, 205), (FIRST, 120)])
def test_nobody_is_told_of_a_loss_by_a_gateway_that_is_behind(
    namespace: Namespace, wired: WiredClient, redis: Redis, epoch: str, offset: int
) -> None:
    """Redis goes on in an epoch that the feed has not met. The client comes back in a moment, with the same point."""
    redis.at = Head(LATER, 190, 1, 5, LATER_LINE)
    client = arriving(namespace, wired)
    with pytest.raises(BusUnavailable):
        namespace.resume(client, Position(epoch, offset))
    assert gaps(wired) == []
    assert client.state.arriving


def test_a_position_is_judged_by_the_line_that_there_is_when_redis_has_answered(
    namespace: Namespace, wired: WiredClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed meets the epoch that the client comes from while Redis is asked about it."""

    def meet() -> None:
        monkeypatch.setattr(Bus, "lineage", LATER_LINE)
        stand_at(namespace.bus, LATER, 190)
        namespace.line_changed(180)
        redis.at = Head(LATER, 190, 1, 5, LATER_LINE)

    redis.meanwhile = meet
    client = arriving(namespace, wired)
    assert namespace.resume(client, Position(LATER, 190)) == (True, Position(LATER, 190))
    assert gaps(wired) == []


# -- since and replay -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "offset", "start"),
    [(FIRST, 90, 90), (FIRST, 120, 100), (SECOND, 120, 120), (NEWEST, 160, 160), (NEWEST, 250, 200), (UNKNOWN, 120, 0)],
)
def test_a_past_begins_behind_the_end_of_the_line_that_its_offset_is_on(
    namespace: Namespace, wired: WiredClient, epoch: str, offset: int, start: int
) -> None:
    """Events that its holder has seen above the end are not in the log. A lost log counts for nothing, nor what was trimmed."""
    stand_at(namespace.bus, NEWEST, 200, 30)
    client = live(namespace, wired)
    namespace.subscribe(client, {"pattern": "a", "since": {"offset": offset, "epoch": epoch}})
    assert client.starts == {"a": start}


def test_a_past_of_an_epoch_that_is_ahead_is_refused_for_now(namespace: Namespace, wired: WiredClient, redis: Redis) -> None:
    """The subscription may be tried again; one without a past is active."""
    redis.at = Head(LATER, 190, 1, 5, LATER_LINE)
    client = live(namespace, wired)
    outcomes = namespace.subscriptions.add_all(
        client, [{"pattern": "a", "since": {"offset": 185, "epoch": LATER}}, {"pattern": "b"}]
    )
    assert isinstance(outcomes[0], BusUnavailable)
    assert isinstance(outcomes[1], Subscription)


def test_a_past_is_looked_for_again_when_the_line_changes_meanwhile(
    namespace: Namespace, wired: WiredClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset that was on the line may be above its end now."""

    def meet() -> None:
        redis.meanwhile = lambda: None
        monkeypatch.setattr(Bus, "lineage", LATER_LINE)
        stand_at(namespace.bus, LATER, 185)
        namespace.line_changed(180)
        redis.at = Head(LATER, 185, 1, 5, LATER_LINE)

    redis.meanwhile = meet
    client = live(namespace, wired)
    namespace.subscribe(client, {"pattern": "a", "since": {"offset": 230, "epoch": NEWEST}})
    assert client.starts == {"a": 180}
    assert redis.asked == 2


def replay(namespace: Namespace, client: Client, first: int, last: int, **more: object) -> dict[str, Any]:
    """Ask for a range, and return the answer with the offsets of the events only."""
    answer = namespace.replay(client, {"pattern": "#", "from": first, "to": last, **more})
    return {**answer, "events": [meta["offset"] for _, _, meta in cast(list[Any], answer["events"])]}


def test_a_replay_says_the_epoch_that_it_was_read_in(namespace: Namespace, wired: WiredClient, redis: Redis) -> None:
    """The page is checked against it, so the two belong together."""
    client = live(namespace, wired)
    assert replay(namespace, client, 120, 122) == {"events": [120, 121, 122], "next": None, "epoch": NEWEST}
    assert redis.pages == [(119, 122, NEWEST)]
    redis.at = Head(LATER, 190, 1, 5, LATER_LINE)
    with pytest.raises(BusUnavailable):
        replay(namespace, client, 120, 122)


@pytest.mark.parametrize(
    ("epoch", "first", "last", "events", "gap"),
    [
        (FIRST, 95, 100, [95, 96, 97, 98, 99, 100], None),
        (FIRST, 99, 103, [99, 100], (101, 103, "rolled_back")),
        (FIRST, 102, 103, [], (102, 103, "rolled_back")),
        (SECOND, 99, 101, [99, 100, 101], None),
        (NEWEST, 199, 205, [199, 200], None),
        (UNKNOWN, 99, 101, [], (99, 101, "log_lost")),
    ],
)
def test_a_replay_answers_up_to_the_end_of_the_line_and_says_so(
    namespace: Namespace,
    wired: WiredClient,
    epoch: str,
    first: int,
    last: int,
    events: list[int],
    gap: tuple[int, int, str] | None,
) -> None:
    """Events above it in that epoch are not in the log, and others are there now."""
    answer = replay(namespace, live(namespace, wired), first, last, epoch=epoch)
    told = {} if gap is None else {"gap": {"from": gap[0], "to": gap[1], "reason": gap[2], "epoch": NEWEST}}
    assert answer == {"events": events, "next": None, "epoch": NEWEST, **told}


def test_events_that_a_replay_cannot_have_are_told_once_with_its_last_page(namespace: Namespace, wired: WiredClient) -> None:
    """A client that asks page by page counts it once."""
    client = live(namespace, wired)
    answers = [replay(namespace, client, 1, 180, epoch=SECOND)]
    while answers[-1]["next"] is not None:
        answers.append(replay(namespace, client, answers[-1]["next"], 180, epoch=SECOND))
    assert [offset for answer in answers for offset in answer["events"]] == list(range(1, 151))
    assert len(answers) == 2
    assert [answer.get("gap") for answer in answers] == [None, {"from": 151, "to": 180, "reason": "rolled_back", "epoch": NEWEST}]


def test_a_new_client_is_welcomed_at_the_place_from_which_it_begins(namespace: Namespace, wired: WiredClient) -> None:
    """It reads the past that it asked for from there; events that came during its handshake are not below its position."""
    client = namespace.join("session", Identity("user", ("#",)), wired.connection)
    namespace.subscribe(client, {"pattern": "#", "since": {"offset": 150}})
    stand_at(namespace.bus, NEWEST, 220)
    _, start = namespace.resume(client, None)
    assert (namespace.position(client, start), client.position) == (200, 150)
