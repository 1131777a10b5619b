"""A namespace between its bus and its clients: the effect of resuming, missing ranges, lost logs and grants on each client.

Its bus is not started and its Redis is a port without a listener, because these tests need neither.
"""

import itertools
import math
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import gevent
import pytest
from prometheus_client import REGISTRY

from headgate.auth.identity import ANONYMOUS, Identity
from headgate.delivery.client import Client
from headgate.delivery.live_feed import cursor_turns
from headgate.delivery.state import Phase
from headgate.errors import BusUnavailable, Forbidden, HeadgateError, InvalidRequest, LimitReached, Unauthorized
from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.events.wire.frames import event_frame
from headgate.events.wire.packets import Overflow
from headgate.events.wire.requests import Position, Subscription
from headgate.node.log_search import LogSearch
from headgate.node.namespace import Namespace
from headgate.redis.inbox import InboxPage
from headgate.redis.lineage import Head
from headgate.redis.log import EventLog
from headgate.runtime.loop import READ, Arrivals, io_watcher, spawn
from headgate.runtime.metrics import DELIVERY, PUBLISH_TO_SOCKET
from headgate.settings.settings import Settings
from tests.support.bus_position import stand_at
from tests.support.gateway_here import StartGatewayOnModel
from tests.support.wired_client import EPOCH, NAMESPACE, WiredClient, event
from tests.unit.node.connections import namespace_of

OTHER = "f" * 16


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A namespace with a feed at offset 10 of a log that begins at 1."""
    namespace = namespace_of(NAMESPACE, Settings(log_max_events=8))
    stand_at(namespace.bus, EPOCH, 10, 1)
    yield namespace
    namespace.close()


def joined(namespace: Namespace, wired: WiredClient, pattern: str = "#") -> Client:
    """Let a client join over this connection, and subscribe."""
    client = arriving(namespace, wired, pattern)
    namespace.resume(client, None)
    return client


def arriving(namespace: Namespace, wired: WiredClient, pattern: str = "#") -> Client:
    """Let a client join and subscribe; it has not been resumed, nor welcomed."""
    client = namespace.join("session", Identity("user", ("#",)), wired.connection)
    wired.connection.owners = (client,)
    namespace.subscribe(client, {"pattern": pattern})
    return client


def publish(namespace: Namespace, *offsets: int) -> None:
    """Let the feed hand on events, as the bus does."""
    stand_at(namespace.bus, namespace.bus.epoch, offsets[-1])
    namespace.route([event(offset) for offset in offsets])


def read(client: Client, after: int = 5) -> None:
    """Let a live client read the log after an offset."""
    client.ask_past("#", after, after)
    client.pasts_complete()


def read_up_to(client: Client, offset: int) -> None:
    """Let a live client read the log up to an offset that the feed has not reached."""
    read(client)
    client.position = offset
    client.reach_feed()


def slice_everything(namespace: Namespace) -> None:
    """Let all other clients have a turn after each step of the work on subscriptions."""
    namespace.subscriptions._share._slice_s = 0


def names(wired: WiredClient) -> list[str]:
    """The names of the messages to the browser, in order."""
    wired.drain()
    return [name for name, *_ in wired.received]


def test_a_point_is_gone_as_soon_as_the_count_says_so(namespace: Namespace, wired: WiredClient) -> None:
    """The head was read at the last fence; of ten events the log keeps eight, so 1 and 2 are gone by now."""
    assert namespace.resume(arriving(namespace, wired), Position(EPOCH, 2))[0] is True
    namespace.leave("session")
    assert namespace.resume(arriving(namespace, wired), Position(EPOCH, 1)) == (False, Position(EPOCH, 1))


def losses() -> tuple[float, float]:
    """The events that were left out, and replaced, so far, by the metrics."""
    names = ("headgate_discarded_total", "headgate_conflated_total")
    discarded, conflated = (REGISTRY.get_sample_value(name, {"namespace": NAMESPACE}) or 0.0 for name in names)
    return discarded, conflated


@pytest.mark.parametrize("policy", [Overflow.DROP, Overflow.LATEST])
def test_losses_of_a_client_are_counted_while_it_is_there_and_once(namespace: Namespace, policy: Overflow) -> None:
    """One that stays slow for hours shows at once, and its leave adds nothing."""
    slow = WiredClient({}, queue_frames=4)
    client = joined(namespace, slow)
    namespace.subscribe(client, {"pattern": "#", "overflow": policy})
    before = losses()

    def counted() -> tuple[float, float]:
        now = losses()
        return now[0] - before[0], now[1] - before[1]

    offset = 11
    for leave in (False, False, True):
        lost = client.discarded + client.conflated
        while client.discarded + client.conflated < lost + 3:
            stand_at(namespace.bus, namespace.bus.epoch, offset)
            namespace.route([event(offset, size=4000)])
            offset += 1
        if leave:
            namespace.leave(client.session)
        assert counted() == (client.discarded, client.conflated)
    slow.close()


def test_the_cursor_of_a_client_that_turned_live_is_never_behind_its_events(namespace: Namespace, wired: WiredClient) -> None:
    """The pass in which the feed reaches it may bring more; a client that resumes from the cursor would get that twice."""
    client = joined(namespace, wired)
    read_up_to(client, 12)
    namespace._live.on_live(client)
    publish(namespace, 11, 12, 13)
    wired.drain()
    assert wired.offsets == [13]
    assert [cursor["offset"] for cursor in wired.notices("cursor")] == [13]


def test_a_client_learns_that_it_is_live_after_the_events_that_still_wait(namespace: Namespace, wired: WiredClient) -> None:
    """A page that goes on showing "catching up" for 20 s, until the turn of idle clients, has all that there is."""
    client = joined(namespace, wired)
    read(client, after=9)
    wired.connection.cork()  # as in the first milliseconds of a connection, or while the socket is full
    assert client.take_chunk([event_frame(NAMESPACE.encode(), event(10), replayed=True)], 10)
    client.reach_feed()
    namespace._live.on_live(client)
    assert names(wired) == []
    wired.connection.uncork(at_once=True)
    assert names(wired) == ["event", "cursor"]
    assert wired.notices("cursor") == [{"epoch": EPOCH, "offset": 10}]


def test_who_resumes_in_a_lost_log_learns_the_position_in_the_present_one(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the gap and later events, and not in the turn of idle clients."""
    client = arriving(namespace, wired)
    wired.connection.cork()
    publish(namespace, 11)
    monkeypatch.setattr(namespace.search, "end_of", lambda *_: None)  # no epoch in common
    assert namespace.resume(client, Position(OTHER, 5))[0] is False
    wired.connection.uncork(at_once=True)
    assert names(wired) == ["gap", "event", "cursor"]
    assert wired.notices("cursor") == [{"epoch": EPOCH, "offset": 11}]


def test_events_from_the_log_do_not_stand_for_a_cursor(namespace: Namespace, wired: WiredClient) -> None:
    """They say that the client is catching up, and not that it is live."""
    client = joined(namespace, wired)
    read(client, after=9)
    assert client.take_chunk([event_frame(NAMESPACE.encode(), event(10), replayed=True)], 10)
    client.reach_feed()
    client.feed_caught_up()
    for _ in namespace._live.send_cursors():
        pass
    assert names(wired) == ["event", "cursor"]


def test_idle_clients_are_told_their_position_beside_the_feed(namespace: Namespace, wired: WiredClient) -> None:
    """Thousands of writes would keep events waiting. The fence only begins the round, and events may come before its end."""
    joined(namespace, wired)
    namespace._due_cursors = cursor_turns(-math.inf)
    namespace.fenced()
    round_ = namespace._round
    namespace.fenced()
    assert round_ is not None
    assert namespace._round is round_
    publish(namespace, 11)
    round_.join()
    wired.drain()
    assert not wired.notices("cursor")  # the event has reported a place above that of the time before
    namespace._due_cursors = cursor_turns(-math.inf)
    namespace.fenced()
    namespace._round.join()
    wired.drain()
    assert [cursor["offset"] for cursor in wired.notices("cursor")] == [11]


def test_the_bus_is_read_between_two_steps_of_a_round(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that come while idle clients are notified are read after the next step at the latest, not after the last one."""
    ours, theirs = socket.socketpair()
    arrivals, steps, read_at = Arrivals(ours.fileno()), list[int](), list[int]()

    def tell(slots: set[int]) -> Iterator[None]:
        for step in range(100):
            steps.append(step)
            if step == 10:
                theirs.send(b"an event")
            yield

    def read() -> None:
        arrivals.wait()
        read_at.append(steps[-1])

    monkeypatch.setattr(namespace._live, "send_cursors", tell)
    reader = spawn(read)
    namespace._go_round({0})
    reader.join()
    arrivals.close()
    ours.close()
    theirs.close()
    assert len(steps) == 100
    assert read_at[0] in (10, 11)


def test_a_plain_event_tells_no_position(namespace: Namespace, wired: WiredClient) -> None:
    """A client with only such ones is treated as one without events."""
    joined(namespace, wired)
    namespace.route([Event("a", b"1", None, 1)])
    namespace._due_cursors = cursor_turns(-math.inf)
    namespace.fenced()
    assert namespace._round is not None
    namespace._round.join()
    wired.drain()
    assert [cursor["offset"] for cursor in wired.notices("cursor")] == [10]


class SearchLog:
    """Stands for the searched log, with an event on each of `topics`; while it answers, something happens."""

    def __init__(self, topics: Sequence[str], *meanwhile: Callable[[], object]) -> None:
        self._topics = topics
        self._meanwhile = iter(meanwhile)
        self.heads = self.reads = 0

    def head(self, known_epoch: str | None = None) -> Head:
        self.heads += 1
        last = len(self._topics)
        next(self._meanwhile, list)()
        return Head(EPOCH, last, 1)

    def topics(self, after: int, upto: int) -> list[tuple[int, str, int]]:
        self.reads += 1
        return [(offset, self._topics[offset - 1], offset) for offset in range(after + 1, upto + 1)]


def searching(namespace: Namespace, topics: Sequence[str], meanwhile: Sequence[Callable[[], object]] = ()) -> SearchLog:
    """Have the searched log hold events on these topics."""
    search_log = SearchLog(topics, *meanwhile)
    namespace.search._log = cast(EventLog, search_log)
    return search_log


def test_one_that_leaves_while_redis_is_asked_where_to_resume_is_not_welcomed(namespace: Namespace, wired: WiredClient) -> None:
    """It is sent nothing, and reads nothing."""
    client = arriving(namespace, wired)
    searching(namespace, ["a"] * 99, meanwhile=(lambda: namespace.leave(client.session),))
    with pytest.raises(Unauthorized):
        namespace.resume(client, Position(EPOCH, 99))
    assert client.state.phase is Phase.LEFT
    assert names(wired) == []


def test_a_client_that_waits_too_long_to_search_the_log_is_refused(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches go one at a time. On a Redis that does not answer, a thousand would wait for an hour."""
    monkeypatch.setattr("headgate.node.log_search.SEARCH_TURN_S", 0.01)
    client = joined(namespace, wired, "other")
    with namespace.search._turn, pytest.raises(BusUnavailable):
        namespace.subscribe(client, {"pattern": "a", "since": {"last": 3}})
    assert list(client.subscriptions) == ["other"]


WORST = [f"#.{letter}.#.{number}.#" for letter in "abcdefgh" for number in range(16)]


def asked(outcomes: list[Subscription | HeadgateError]) -> list[str]:
    """The outcome of each request: the pattern, or the code of the refusal and the name of the limit."""
    return [one.pattern if isinstance(one, Subscription) else one.parts.get("name", one.code) for one in outcomes]


def test_subscriptions_beyond_a_limit_are_refused_before_anything_is_decided(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 128 wildcards, none of them granted, 32 are held against the grants."""
    decided: list[str] = []
    may_subscribe = Identity.may_subscribe

    def note(identity: Identity, pattern: str) -> bool:
        decided.append(pattern)
        return may_subscribe(identity, pattern)

    monkeypatch.setattr(Identity, "may_subscribe", note)
    client = namespace.join("session", Identity("mallory", ("#.granted.#.b.#",)), wired.connection)
    outcomes = namespace.subscriptions.add_all(client, [{"pattern": pattern} for pattern in WORST])
    assert decided == WORST[:32]
    assert asked(outcomes) == [*WORST[:32], *["wildcards"] * 96]  # the name of a forbidden pattern is its own
    assert client.subscriptions == {}


def test_a_pattern_that_was_asked_for_before_counts_once(namespace: Namespace, wired: WiredClient) -> None:
    """Within a request, and among its subscriptions; the last policy counts."""
    client = joined(namespace, wired, "a.*")
    requests = [
        {"pattern": "a.*"},
        *({"pattern": f"b.{number}.*"} for number in range(31)),
        {"pattern": "b.0.*", "overflow": "drop"},
    ]
    outcomes = namespace.subscriptions.add_all(client, [*requests, {"pattern": "one.too.many.*"}])
    assert asked(outcomes)[-1] == "wildcards"
    assert all(isinstance(outcome, Subscription) for outcome in outcomes[:-1])
    assert (client.subscriptions.wildcards, client.subscriptions["b.0.*"]) == (32, Overflow.DROP)


def turns_of_others(act: Callable[[], object]) -> int:
    """Return how often another greenlet has its turn during an act."""
    turns, done = 0, False

    def count() -> None:
        nonlocal turns
        while not done:
            turns += 1
            gevent.sleep()

    other = gevent.spawn(count)
    gevent.sleep()
    before = turns
    act()
    during = turns - before
    done = True
    other.join()
    return during


def test_others_have_their_turn_between_subscriptions_and_between_ends(namespace: Namespace, wired: WiredClient) -> None:
    """Each costs little; 128 of them, from a hundred clients, do not."""
    slice_everything(namespace)
    client = arriving(namespace, wired)
    requests = [{"pattern": pattern} for pattern in WORST[:31]] + [{"pattern": f"a.{number}"} for number in range(96)]
    outcomes: list[object] = []
    assert turns_of_others(lambda: outcomes.extend(namespace.subscriptions.add_all(client, requests))) >= len(requests)
    assert not any(isinstance(outcome, HeadgateError) for outcome in outcomes)
    no = Forbidden("subscribe to", "a")
    ended = namespace.subscriptions.end_each(client, lambda pattern: no if pattern.startswith("a") else None)
    assert turns_of_others(lambda: list(ended)) >= 96
    assert len(client.subscriptions) == 32
    assert turns_of_others(lambda: namespace.leave(client.session)) >= 32
    assert namespace.subscriptions.count == 0


def test_a_client_that_leaves_between_two_subscriptions_leaves_nothing(namespace: Namespace, wired: WiredClient) -> None:
    """A subscription that was not active yet never becomes active."""
    slice_everything(namespace)
    client = arriving(namespace, wired)
    requests = [{"pattern": f"a.{number}"} for number in range(100)]
    leaving = gevent.spawn(namespace.leave, client.session)
    with pytest.raises(Unauthorized):
        namespace.subscriptions.add_all(client, requests)
    leaving.join()
    assert (namespace.subscriptions.count, len(client.subscriptions)) == (0, 0)


def test_all_pasts_of_one_connect_are_found_in_one_reading_of_the_log(namespace: Namespace, wired: WiredClient) -> None:
    """The head once, each page once; and the next caller reads nothing again."""
    log = searching(namespace, ["a", "b", "c", "d"] * 250)
    client = arriving(namespace, wired)
    requests = [{"pattern": f"none.{number}", "since": {"last": 1000}} for number in range(100)]
    requests += [{"pattern": f"soon.{number}", "since": {"time": 10 * number}} for number in range(20)]
    requests += [{"pattern": "b", "since": {"last": 3}}]
    outcomes = namespace.subscriptions.add_all(client, requests)
    assert not any(isinstance(outcome, HeadgateError) for outcome in outcomes)
    assert (log.heads, log.reads) == (1, 10)
    assert (client.starts["b"], client.starts["none.7"], client.starts["soon.7"]) == (989, 1000, 69)
    assert [each.answer["after"] for each in outcomes if isinstance(each, Subscription)] == [1000] * 100 + [
        client.starts[f"soon.{number}"] for number in range(20)
    ] + [989]
    namespace.subscribe(client, {"pattern": "b", "since": {"last": 5}})
    assert (log.heads, log.reads) == (2, 10)


def test_a_client_that_reads_too_much_waits_and_is_refused(wired: WiredClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name; the subscriptions without a past are active, and another user is not concerned."""
    monkeypatch.setattr("headgate.node.log_search.READ_WAIT_S", 2.0)
    now_s = 0.0

    def pass_time(delay_s: float) -> None:
        nonlocal now_s
        now_s += delay_s

    monkeypatch.setattr("headgate.node.log_search.monotonic", lambda: now_s)
    monkeypatch.setattr("headgate.node.log_search.sleep", pass_time)
    namespace = namespace_of(NAMESPACE, Settings(read_per_s=2.5))
    stand_at(namespace.bus, EPOCH, 1300, 1)
    searching(namespace, ["a"] * 1300)
    client = namespace.join("one", Identity("ana", ("#",)), wired.connection)
    # 13 pages: ten at once, and three that it waits for.
    assert asked(namespace.subscriptions.add_all(client, [{"pattern": "none", "since": {"last": 1}}])) == ["none"]
    second = namespace.join("two", Identity("ana", ("#",)), wired.connection)
    requests = [{"pattern": "other", "since": {"last": 1}}, {"pattern": "plain"}]
    assert asked(namespace.subscriptions.add_all(second, requests)) == ["read_per_s", "plain"]
    assert list(second.subscriptions) == ["plain"]
    assert asked(
        namespace.subscriptions.add_all(namespace.join("three", Identity("ben", ("#",)), wired.connection), requests)
    ) == ["other", "plain"]
    namespace.close()


def test_a_replay_is_a_page_of_what_a_client_may_read(wired: WiredClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The anonymous have one name, so each address has its own."""
    monkeypatch.setattr("headgate.node.log_search.READ_WAIT_S", 0.0)
    namespace = namespace_of(NAMESPACE, Settings(read_per_s=0.5))
    monkeypatch.setattr(namespace.search, "page", lambda *wanted: ([], None))
    stand_at(namespace.bus, EPOCH, 10, 1)
    here, there = (namespace.join(at, Identity(ANONYMOUS, ("#",)), wired.connection, at) for at in ("192.0.2.1", "192.0.2.2"))
    wanted = {"pattern": "#", "from": 1, "to": 2}
    for _ in range(2):
        assert namespace.replay(here, wanted) == {"events": [], "next": None, "epoch": EPOCH}
    with pytest.raises(LimitReached) as refusal:
        namespace.replay(here, wanted)
    assert refusal.value.parts["name"] == "read_per_s"
    assert namespace.replay(there, wanted) == {"events": [], "next": None, "epoch": EPOCH}
    namespace.close()


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("name", ["replay", "history"])
def test_a_page_of_the_log_is_held_while_it_is_unknown_who_may_have_it(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch, name: str, when: str
) -> None:
    """The process stood still before the request or while Redis was read, and the client's grants have changed since."""
    stand_at(namespace.bus, EPOCH, 10, 1)
    searching(namespace, ["a"] * 10)
    client = namespace.join("one", Identity("ana", ("#",)), wired.connection)

    def stand_still() -> None:
        namespace.bus.hold(lambda: setattr(client, "identity", Identity("ana", ("b",))))

    def page(*_: object) -> tuple[list[Event], None]:
        if when == "during":
            stand_still()
        return [event(1)], None

    monkeypatch.setattr(namespace.search, "page", page)
    monkeypatch.setattr(namespace.search, "page_back", page)
    if when == "before":
        stand_still()
    with pytest.raises(Forbidden):
        getattr(namespace, name)(client, {"pattern": "a"} | ({"from": 1, "to": 2} if name == "replay" else {}))


def test_an_event_that_comes_live_between_subscriptions_is_not_read_too(namespace: Namespace, wired: WiredClient) -> None:
    """Each begins to read in the step in which it comes into force, and from there on live events pass the client by."""
    slice_everything(namespace)
    searching(namespace, ["a"] * 10)
    client = joined(namespace, wired, "other")
    live: list[int] = []

    def publish_on() -> None:
        while len(client.subscriptions) < 21:
            publish(namespace, namespace.bus.reached + 1)
            if "a" in client.subscriptions and client.state.takes_live:
                live.append(namespace.bus.reached)
            gevent.sleep()

    publishing = gevent.spawn(publish_on)
    requests = [{"pattern": pattern, "since": {"last": 2}} for pattern in ("a", *(f"none.{number}" for number in range(19)))]
    assert not any(isinstance(outcome, HeadgateError) for outcome in namespace.subscriptions.add_all(client, requests))
    client.subscribe("last", Overflow.DROP)
    publishing.join()
    assert live == []
    assert namespace.bus.reached > 20
    assert client.state.phase is Phase.READING
    assert "event" not in names(wired)


def test_pasts_that_are_asked_for_together_are_read_together(namespace: Namespace, wired: WiredClient) -> None:
    """The second request has come with the first, though its own answer takes a while; no event goes ahead of the answers."""
    searching(namespace, ["a"] * 10)
    client = joined(namespace, wired, "other")
    namespace.subscribe(client, {"pattern": "a", "since": {"offset": 8}})
    namespace.subscribe(client, {"pattern": "#", "since": {"last": 5}})
    assert (client.state.phase, client.position, client.starts) == (Phase.COLLECTING, 5, {"a": 8, "#": 5})
    gevent.sleep()
    assert (client.state.phase, client.position) == (Phase.READING, 5)


def test_a_past_that_is_asked_for_while_many_are_written_to_becomes_active_behind_that(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of the client is known there; and the pass takes nothing more along, so that the wait is short."""
    monkeypatch.setattr("headgate.delivery.fanout._CLOCK_EVERY", 1)
    namespace._live._budget_s = -1.0
    other = WiredClient({})
    namespace.subscribe(namespace.join("other", Identity("user", ("#",)), other.connection), {"pattern": "#"})
    client = joined(namespace, wired, "#")
    asked_for_more: list[int] = []

    def more() -> list[Event]:
        asked_for_more.append(1)
        return []

    stand_at(namespace.bus, namespace.bus.epoch, 11)
    passing = namespace._live.route([event(11)], more)
    next(passing)
    subscribing = gevent.spawn(namespace.subscribe, client, {"pattern": "a", "since": {"offset": 3}})
    with gevent.Timeout(30):
        while not namespace._live._deferred:  # it may wait for its share of the loop first, on a busy machine
            gevent.sleep(0.001)
    assert list(client.subscriptions) == ["#"]
    next(passing, None)
    next(passing, None)
    assert (client.state.phase, client.base, client.starts) == (Phase.COLLECTING, 11, {"a": 3})
    assert asked_for_more == []
    assert subscribing.get(timeout=30).answer == {"pattern": "a", "after": 3}
    gevent.sleep()
    assert client.state.phase is Phase.READING
    other.close()


@pytest.mark.parametrize("point", [None, Position("f" * 16, 7)], ids=["new", "of another log"])
def test_a_client_that_comes_during_a_pass_is_welcomed_where_its_events_begin(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch, point: Position | None
) -> None:
    """The events of the pass were matched before it had subscribed, so they do not come, and the welcome is not below them.

    What comes afterwards is above the welcome, although the pass is still under way.
    """
    monkeypatch.setattr("headgate.delivery.fanout._CLOCK_EVERY", 1)
    monkeypatch.setattr(LogSearch, "end_of", lambda line, epoch, offset: None)
    namespace._live._budget_s = -1.0
    others = [WiredClient({}) for _ in range(3)]
    for number, other in enumerate(others):
        namespace.subscribe(namespace.join(str(number), Identity("user", ("#",)), other.connection), {"pattern": "#"})
    later = [[event(13)], []]
    stand_at(namespace.bus, namespace.bus.epoch, 10)
    passing = namespace._live.route([event(11), event(12)], lambda: later.pop(0) if later else [])
    next(passing)
    client = namespace.join("session", Identity("user", ("#",)), wired.connection)
    namespace.subscribe(client, {"pattern": "#"})
    next(passing)
    _, start = namespace.resume(client, point)
    assert namespace.position(client, start) == 12
    for _ in passing:
        pass
    wired.drain()
    assert wired.offsets == [13]
    for other in others:
        other.close()


def test_sockets_are_read_between_two_slices_of_a_pass(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ping or a handshake does not wait until all clients have their event."""
    monkeypatch.setattr("headgate.delivery.fanout._CLOCK_EVERY", 1)
    namespace._live._budget_s = -1.0
    wired = [WiredClient({}) for _ in range(6)]
    clients = [namespace.join(str(number), Identity("user", ("#",)), each.connection) for number, each in enumerate(wired)]
    for client in clients:
        namespace.subscribe(client, {"pattern": "#"})
        namespace.resume(client, None)
    ours, theirs = socket.socketpair()
    written: list[int] = []

    def read() -> None:
        ours.recv(1)
        written.append(sum(client.direct for client in clients))

    watcher = io_watcher(ours.fileno(), READ)
    watcher.start(read)
    theirs.send(b"x")
    publish(namespace, 11)
    assert written == [1]
    assert sum(client.direct for client in clients) == 6
    watcher.stop()
    watcher.close()
    ours.close()
    theirs.close()
    for each in wired:
        each.close()


def test_a_log_that_is_lost_between_two_subscriptions_is_looked_through_anew(namespace: Namespace, wired: WiredClient) -> None:
    """Active ones are notified of it; the others begin where the new log says."""
    slice_everything(namespace)
    log = searching(namespace, ["a"] * 10)
    client = joined(namespace, wired, "other")

    def lose() -> None:
        while "none.3" not in client.subscriptions:
            gevent.sleep()
        log._topics = ["b", "a", "a"]
        stand_at(namespace.bus, OTHER, 3, 1)
        namespace.log_lost(Head(OTHER, 3, 1))

    losing = gevent.spawn(lose)
    requests = [{"pattern": pattern, "since": {"last": 2}} for pattern in (*(f"none.{number}" for number in range(20)), "a")]
    assert not any(isinstance(outcome, HeadgateError) for outcome in namespace.subscriptions.add_all(client, requests))
    losing.join()
    assert log.heads == 2
    assert client.starts["a"] == 1


def needs(namespace: Namespace) -> dict[str, int]:
    """How many need each pattern of the bus."""
    return dict(namespace.bus.feed.interest._holders)


def test_a_pattern_that_a_client_here_has_is_asked_of_redis_once(namespace: Namespace, wired: WiredClient) -> None:
    """The first client keeps it for all; each takes its needs along when it leaves."""
    first = joined(namespace, wired, "a.b")
    second = namespace.join("second", Identity("user", ("#",)), wired.connection)
    requests = [{"pattern": "a.b"}, {"pattern": "c"}, {"pattern": "c"}]
    assert asked(namespace.subscriptions.add_all(second, requests)) == ["a.b", "c", "c"]
    assert needs(namespace) == {"a.b": 1, "c": 1}
    namespace.leave(first.session)
    assert needs(namespace) == {"a.b": 1, "c": 1}
    namespace.leave("second")
    assert needs(namespace) == {}


def test_a_pattern_whose_last_client_leaves_while_another_is_waited_for_is_asked_of_redis_again(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscription is active only when Redis has confirmed its sources, though a client had it at the request."""
    first = joined(namespace, wired, "had")
    second = namespace.join("second", Identity("user", ("#",)), wired.connection)
    waited: list[str] = []

    def wait_for(pattern: str) -> None:
        waited.append(pattern)
        namespace.leave(first.session)

    monkeypatch.setattr(namespace.bus, "wait_for", wait_for)
    assert asked(namespace.subscriptions.add_all(second, [{"pattern": "new"}, {"pattern": "had"}])) == ["new", "had"]
    assert waited == ["new", "had"]
    assert needs(namespace) == {"new": 1, "had": 1}


def test_a_pattern_that_redis_does_not_confirm_refuses_its_own_subscriptions_only(
    namespace: Namespace, wired: WiredClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is left on the bus."""
    client = joined(namespace, wired, "had")

    def wait_for(pattern: str) -> None:
        if pattern == "lost":
            raise BusUnavailable("not confirmed")

    monkeypatch.setattr(namespace.bus, "wait_for", wait_for)
    requests = [{"pattern": pattern} for pattern in ("lost", "new", "lost", "had")]
    assert asked(namespace.subscriptions.add_all(client, requests)) == ["bus_unavailable", "new", "bus_unavailable", "had"]
    assert needs(namespace) == {"new": 1, "had": 1}


def test_each_event_of_each_client_is_in_one_place_also_of_one_that_has_left(namespace: Namespace) -> None:
    """Its waiting events are gone, and the sum closes before and after."""
    slow = WiredClient({}, queue_frames=4)
    client = joined(namespace, slow)
    for offset in range(11, 300):
        stand_at(namespace.bus, namespace.bus.epoch, offset)
        namespace.route([event(offset, size=4000)])
    before = namespace.balance()
    assert before.open == 0
    assert before.waiting > 0
    assert before.queued >= before.waiting
    assert before.oldest_ms is not None
    assert before.catching_up == 1
    namespace.leave(client.session)
    after = namespace.balance()
    assert (after.open, after.waiting, after.queued, after.catching_up) == (0, 0, 0, 0)
    assert after.gone == before.gone + before.waiting
    assert after.routed == before.routed
    slow.close()


def test_joins_are_counted_by_what_became_of_their_point(namespace: Namespace, wired: WiredClient) -> None:
    """Fresh ones have none."""

    def count(kind: str) -> float:
        return REGISTRY.get_sample_value("headgate_joins_total", {"namespace": NAMESPACE, "kind": kind}) or 0.0

    before = [count(kind) for kind in ("fresh", "resumed", "not_resumed")]
    for point in (None, Position(EPOCH, 10), Position(EPOCH, 1)):
        namespace.resume(arriving(namespace, wired), point)
        namespace.leave("session")
    assert [count(kind) for kind in ("fresh", "resumed", "not_resumed")] == [each + 1 for each in before]


def test_an_event_is_measured_from_its_publish_until_it_was_written(namespace: Namespace, wired: WiredClient) -> None:
    """Once, for any number of clients; an event without clients is not."""
    joined(namespace, wired, "a.#")
    latency = PUBLISH_TO_SOCKET.of(NAMESPACE)
    before = latency.count
    for offset, topic in ((11, "a.1"), (12, "b.1"), (13, "a.2")):
        stand_at(namespace.bus, namespace.bus.epoch, offset)
        namespace.route([event(offset, topic)])
    assert latency.count == before + 2
    assert latency.greatest_s > 0


def test_a_namespace_that_is_closed_tells_nothing_more(namespace: Namespace) -> None:
    """Else the metrics would keep its clients."""
    assert NAMESPACE in DELIVERY.sources
    namespace.close()
    assert NAMESPACE not in DELIVERY.sources


WORDS = [".".join(words) for length in (1, 2, 3) for words in itertools.product("ab*#", repeat=length)]
TOPICS = [".".join(words) for length in (1, 2, 3, 4) for words in itertools.product("ab", repeat=length)]


REACH = {pattern: {topic for topic in TOPICS if matches(pattern, topic)} for pattern in WORDS}


@pytest.mark.parametrize("seed", range(8))
def test_no_event_outside_a_clients_grants_ever_arrives(seed: int) -> None:
    """Clients with random grants ask for every pattern over a small alphabet; the arrivals are held against brute force.

    Each accepted pattern must lie inside the grants; each that lies inside a single grant must be accepted.
    """
    chance = random.Random(seed)
    namespace = namespace_of(NAMESPACE, Settings(max_subscriptions=512))
    stand_at(namespace.bus, EPOCH, 10, 1)
    clients = []
    for number in range(6):
        grants = chance.sample(WORDS, chance.randint(1, 3))
        wired = WiredClient({})
        client = namespace.join(f"s{number}", Identity(f"u{number}", tuple(grants)), wired.connection)
        wired.connection.owners = (client,)
        outcomes = namespace.subscriptions.add_all(client, [{"pattern": pattern} for pattern in WORDS])
        namespace.resume(client, None)
        accepted = {outcome.pattern for outcome in outcomes if isinstance(outcome, Subscription)}
        granted = set().union(*(REACH[grant] for grant in grants))
        assert all(REACH[pattern] <= granted for pattern in accepted), (grants, accepted)
        # Topics of four words distinguish patterns of up to three, wildcards included.
        assert accepted == {pattern for pattern in WORDS if any(REACH[pattern] <= REACH[grant] for grant in grants)}
        clients.append((wired, set().union(*(REACH[pattern] for pattern in accepted))))
    offsets = range(11, 11 + len(TOPICS))
    stand_at(namespace.bus, EPOCH, offsets[-1])
    namespace.route([event(offset, topic) for offset, topic in zip(offsets, TOPICS, strict=True)])
    for wired, expected in clients:
        wired.drain()
        assert [topic for topic, *_ in wired.events] == [topic for topic in TOPICS if topic in expected]
        wired.close()
    namespace.close()


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_page_without_what_its_reader_has_had_is_read_again(gateway_on_model: StartGatewayOnModel, ahead: int) -> None:
    """`ahead`: of this gateway, because another one has shown more."""
    gateway = gateway_on_model()
    newest = gateway.publish(3)[-1]
    gateway.wait_until(lambda: gateway.namespace.bus.head >= newest, "the events")
    space, epoch = gateway.namespace, gateway.redis.epoch
    had = (epoch, newest + ahead) if ahead else None
    offsets = iter([newest + ahead - 1, newest + ahead])

    page = space.current_inbox(lambda: InboxPage(epoch, next(offsets), 0, 0, [], None, {}), had)

    assert page.offset == newest + ahead
    with pytest.raises(BusUnavailable):
        space.current_inbox(lambda: InboxPage(epoch, newest + ahead - 1, 0, 0, [], None, {}), had)
    with pytest.raises(InvalidRequest, match="the log does not know it"):
        space.current_inbox(lambda: page, ("0123456789abcdef", 1))
