"""The queue of publishing: the events of a moment go in one round trip, in order, bounded, each event for itself."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.errors import BusRefused, BusUnavailable, HeadgateError, LimitReached
from headgate.node.requests import publish_queue as module
from headgate.node.requests.publish_queue import ANSWERS_AT_ONCE, PublishQueue
from headgate.runtime.loop import DeferredWrites, Signal
from headgate.services.publisher import Prepared, Publisher, Receipt
from tests.support.session_clock import turn

Outcome = Receipt | HeadgateError


def event(name: str, size: int = 1) -> Prepared:
    return Prepared(("FCALL", "headgate_publish", 1, "key", "a", b"x" * size, name), "notifications", True, name, size)


class Redis:
    """The publisher, which answers a round trip when the test lets it."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self.refuses: dict[str, HeadgateError] = {}
        self.error: Exception | None = None
        self.stalled: BusUnavailable | None = None
        self._may_answer = Signal()

    def publish_prepared(self, events: Sequence[Prepared]) -> list[Outcome]:
        self.rounds.append([each.id for each in events])
        self._may_answer.wait()
        self._may_answer.clear()
        if self.error is not None:
            raise self.error
        return [self.refuses.get(each.id) or Receipt("e", number, False, each.id) for number, each in enumerate(events, 1)]

    def refuse_while_stalled(self, namespace: str) -> None:
        if self.stalled is not None:
            raise self.stalled

    def answer(self) -> None:
        """Let it answer the present round trip."""
        self._may_answer.set()
        turn()


class Room:
    """A queue, and callers in separate greenlets."""

    def __init__(self) -> None:
        self.redis = Redis()
        self.published: list[Sequence[Outcome]] = []
        self.queue = PublishQueue(cast(Publisher, self.redis), self.published.append)
        self.outcomes: dict[str, list[Outcome] | HeadgateError] = {}
        self.greenlets: list[gevent.Greenlet] = []

    def publish(self, *names: str, size: int = 1) -> None:
        """Publish events of these names, by one caller with the name of the first."""

        def call() -> None:
            try:
                self.outcomes[names[0]] = self.queue.publish([event(name, size) for name in names])
            except HeadgateError as error:
                self.outcomes[names[0]] = error

        self.greenlets.append(gevent.spawn(call))

    def begin(self, name: str) -> None:
        """Publish an event of this name without a wait, and fail as its caller for the name `f`."""

        def done(outcome: Outcome) -> None:
            self.outcomes[name] = [outcome]
            if name == "f":
                raise RuntimeError("a caller failed")

        self.queue.begin(event(name), done)

    def ids(self, name: str) -> list[str]:
        """Return the ids of the receipts that a caller got."""
        outcomes = self.outcomes[name]
        assert isinstance(outcomes, list)
        return [outcome.id if isinstance(outcome, Receipt) else outcome.code for outcome in outcomes]


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    gevent.killall(room.greenlets)


def test_callers_of_one_moment_share_a_round_trip(room: Room) -> None:
    """Later ones share the next one; all in the order of their arrival. So do those that do not wait."""
    for name in "abc":
        room.publish(name)
    turn()
    assert room.redis.rounds == [["a", "b", "c"]]
    room.begin("f")
    for name in "de":
        room.publish(name)
    turn()
    room.begin("g")
    assert (room.redis.rounds, room.outcomes) == ([["a", "b", "c"]], {})
    room.redis.answer()
    assert room.redis.rounds == [["a", "b", "c"], ["f", "d", "e", "g"]]
    assert {name: room.ids(name) for name in "abc"} == {"a": ["a"], "b": ["b"], "c": ["c"]}
    assert room.published == [[Receipt("e", number, False, name) for number, name in enumerate("abc", 1)]]
    with capture_logs() as logs:
        room.redis.answer()
    assert [room.ids(name) for name in "fdeg"] == [["f"], ["d"], ["e"], ["g"]]
    assert [line["event"] for line in logs] == ["answering failed"]


def test_the_loop_has_a_turn_between_the_answers_to_many_callers(room: Room) -> None:
    """Requests that come in it are on their way to Redis before all answers are written."""
    others, turns, answered = DeferredWrites(lambda: None), list[int](), list[Outcome]()

    def done(outcome: Outcome) -> None:
        if not answered:
            others.add(lambda: turns.append(len(answered)))
        answered.append(outcome)

    for number in range(2 * ANSWERS_AT_ONCE):
        room.queue.begin(event(str(number)), done)
    turn()
    room.redis.answer()
    while len(answered) < 2 * ANSWERS_AT_ONCE:
        turn()
    assert turns == [ANSWERS_AT_ONCE]
    assert [each.id for each in answered if isinstance(each, Receipt)] == room.redis.rounds[0]


def test_an_idle_queue_starts_again(room: Room) -> None:
    """No caller has to come twice."""
    for name in "ab":
        room.publish(name)
        turn()
        room.redis.answer()
        assert room.ids(name) == [name]
    assert room.redis.rounds == [["a"], ["b"]]


def test_an_event_that_is_refused_keeps_no_other_out(room: Room) -> None:
    """Each caller has a receipt or an error for each of its events, in its order."""
    room.redis.refuses = {"b": BusRefused("no memory"), "c": BusRefused("no memory")}
    room.publish("a", "b")
    room.publish("c")
    room.publish("d")
    turn()
    room.redis.answer()
    assert [room.ids(name) for name in "acd"] == [["a", "bus_refused"], ["bus_refused"], ["d"]]


def test_a_round_trip_is_bounded_and_a_callers_events_may_need_several(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """In events and in bytes; a caller has its outcomes when the last of them is there."""
    monkeypatch.setattr(module, "MAX_BATCH_EVENTS", 3)
    monkeypatch.setattr(module, "MAX_BATCH_BYTES", 10)
    room.publish("a", "b")
    room.publish("c", "d", "e", "f", "g")
    room.publish("h", "i", size=10)
    turn()
    for _ in range(4):
        assert "h" not in room.outcomes
        room.redis.answer()
    assert room.redis.rounds == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"], ["i"]]
    assert [room.ids(name) for name in "ach"] == [["a", "b"], ["c", "d", "e", "f", "g"], ["h", "i"]]


def test_those_who_wait_behind_a_round_trip_without_an_answer_are_told_with_it(room: Room) -> None:
    """No caller waits for two. Later ones are sent, one at a time while Redis is stalled."""
    room.publish("a")
    turn()
    room.publish("b")
    turn()
    room.redis.error = BusUnavailable("no answer")
    room.redis.answer()
    assert (room.ids("a"), room.ids("b")) == (["bus_unavailable"], ["bus_unavailable"])
    room.redis.error, room.redis.stalled = None, BusUnavailable("nothing was sent")
    room.publish("c")
    turn()
    room.publish("d")
    turn()
    assert room.outcomes["d"] is room.redis.stalled
    room.redis.answer()
    assert room.ids("c") == ["c"]
    assert room.redis.rounds == [["a"], ["c"]]


@pytest.mark.parametrize(("limit", "name"), [("MAX_WAITING_EVENTS", "events"), ("MAX_WAITING_BYTES", "bytes")])
def test_the_queue_is_bounded(room: Room, monkeypatch: pytest.MonkeyPatch, limit: str, name: str) -> None:
    """One too many is refused at once, and asked to come again; there is room when others have their outcomes."""
    monkeypatch.setattr(module, limit, 2)
    room.publish("a")
    turn()
    room.publish("b")
    room.publish("c")
    turn()
    refused = room.outcomes["c"]
    assert isinstance(refused, LimitReached)
    assert (refused.parts["name"], refused.retry, refused.retry_after_s) == (f"publish_queue_{name}", True, 1)
    room.redis.answer()
    room.redis.answer()
    room.publish("d")
    turn()
    room.redis.answer()
    assert [room.ids(each) for each in "abd"] == [["a"], ["b"], ["d"]]


def test_a_fault_of_ours_is_logged_and_told_as_one_of_the_bus(room: Room) -> None:
    """The queue goes on, so no caller waits for ever."""
    room.redis.error = RuntimeError("a fault")
    room.publish("a")
    turn()
    with capture_logs() as logs:
        room.redis.answer()
    assert room.ids("a") == ["bus_unavailable"]
    assert [line["event"] for line in logs] == ["publishing failed"]
    room.redis.error = None
    room.publish("b")
    turn()
    room.redis.answer()
    assert room.ids("b") == ["b"]


def test_nothing_to_publish_asks_nobody() -> None:
    """A batch of which every event was refused before."""
    asked: list[Callable[[], None]] = []
    assert PublishQueue(cast(Publisher, Redis()), list, asked.append).publish([]) == []
    assert asked == []


def test_a_caller_that_has_gone_away_takes_nothing_from_the_others(room: Room) -> None:
    """Its event is sent; its place is free."""
    room.publish("a")
    room.publish("b")
    turn()
    room.greenlets[0].kill()
    room.redis.answer()
    assert room.ids("b") == ["b"]
    assert room.queue._waiting_events == 0
