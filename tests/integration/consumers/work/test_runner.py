"""A consumer at work on a real Redis: patterns, parts, holding, trying again, setting aside, sharing, stopping, outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from headgate.consumers import Consumer, Defer, Delivery, Reject, Retry
from headgate.consumers.work import runner as runners
from headgate.consumers.work import worker as workers
from headgate.consumers.work.dead_letters import DeadLetter, DeadLetters
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.consumers.work.worker import PAGE_TASKS
from headgate.errors import BusUnavailable
from headgate.metrics import CONSUMER_FULL
from headgate.publisher import Publisher
from headgate.redis.client import Client, call
from headgate.redis.keys import group_in_log
from headgate.redis.log import EventLog
from headgate.settings import Settings
from tests.fault.redis_process import RedisProcess
from tests.support.consumers_state import count_leased
from tests.support.redis_server import DEADLINE_S, wait_until

LOG = "hg:{notifications}:log"
GROUP = "hg:{notifications}:group:mail"
QUICK = RunnerOptions(retry_first_s=0.01, retry_last_s=0.02)
# Hundreds of tasks, each several round trips, on a machine that others want too.
AT_REST_DEADLINE_S = 90.0

# The first event was handed out five times, the second four times, long ago.
FIVE_TIMES = """
redis.call('XREADGROUP', 'GROUP', ARGV[1], 'headgate', 'STREAMS', KEYS[1], '>')
redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '1-0', 'RETRYCOUNT', 5, 'IDLE', 10000000, 'JUSTID')
redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '2-0', 'RETRYCOUNT', 4, 'IDLE', 10000000, 'JUSTID')
"""

Script = Callable[[Delivery], Defer | None]


class Recorder(Consumer):
    """Does what the test's script says, and writes down what it was handed. One class for each test: see `recorder`."""

    lock = threading.Lock()
    seen: list[Delivery]
    together: list[tuple[str, list[Delivery]]]
    pages: list[list[Delivery]]
    calls: list[str]
    script: Script
    parts: Callable[[Delivery], Sequence[str]]
    digest: Callable[[str, Sequence[Delivery]], Defer | None]

    def start(self) -> None:
        self.calls.append("start")

    def keys(self, delivery: Delivery) -> Sequence[str]:
        return type(self).parts(delivery)

    def handle(self, delivery: Delivery) -> Defer | None:
        with self.lock:
            self.seen.append(delivery)
        return type(self).script(delivery)

    def handle_together(self, key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        with self.lock:
            self.together.append((key, list(deliveries)))
        return type(self).digest(key, deliveries)

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        with self.lock:
            self.pages.append(list(deliveries))
        for delivery in deliveries:
            type(self).script(delivery)

    def tick(self) -> None:
        self.calls.append("tick")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """What was logged, as fields: writing out tracebacks for people takes longer than the tests."""
    with structlog.testing.capture_logs() as logged:
        yield logged


@pytest.fixture
def recorder() -> type[Recorder]:
    """A class whose objects, one for each worker, write into the same lists."""
    return type(
        "Recorder",
        (Recorder,),
        {
            "seen": [], "together": [], "pages": [], "calls": [],
            "script": staticmethod(lambda delivery: None),
            "parts": staticmethod(lambda delivery: ("",)),
            "digest": staticmethod(lambda key, deliveries: None),
        },
    )  # fmt: skip


@pytest.fixture
def run(recorder: type[Recorder], redis_url: str) -> Iterator[Callable[..., Runner]]:
    """Start a runner of the recorder, `run(patterns=…, lease_s=…)`; it is stopped with the test."""
    started: list[Runner] = []

    def start(patterns: tuple[str, ...] = ("#",), name: str = "mail", url: str = redis_url, **options: Any) -> Runner:
        spec = ConsumerSpec(name, recorder, recorder.Options(), patterns, "notifications", replace(QUICK, **options))
        runner = Runner(spec, url, Settings())
        started.append(runner)
        runner.open()
        runner.start()
        return runner

    yield start
    for runner in started:
        assert runner.stop(DEADLINE_S)


@pytest.fixture(autouse=True)
def log(redis_client: Client) -> None:
    """There is a log, as where a gateway runs: the wait for an event ends with the event."""
    EventLog("notifications", redis_client, 65536).configure(10000, 86400)


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher into the log that it reads."""
    with Publisher(redis_url) as publisher:
        yield publisher


@pytest.fixture
def letters(redis_client: Client) -> DeadLetters:
    """The consumer's dead letters."""
    return DeadLetters(redis_client, "notifications", "mail")


def values(recorder: type[Recorder]) -> list[Any]:
    return [delivery.value() for delivery in recorder.seen]


def at_rest(client: Client, offset: int, group: str = GROUP) -> bool:
    """Whether the group has taken everything up to `offset`, and nothing is leased or waiting."""
    position = call(client, "HGET", group, "position")
    if not position or int(position) < offset:
        return False
    return not count_leased(client, group.rpartition(":")[2]) and not call(client, "ZCARD", f"{group}:held")


def wait_at_rest(client: Client, offset: int) -> None:
    wait_until(lambda: at_rest(client, offset), f"everything up to {offset} to be answered", AT_REST_DEADLINE_S)


def make_first_due(client: Client) -> None:
    """Let the time come for the task that is the first to come back."""
    first, *_ = call(client, "ZRANGE", f"{GROUP}:held", 0, -1)
    call(client, "ZADD", f"{GROUP}:held", "XX", 1, first)


def wait_buried(letters: DeadLetters, count: int = 1) -> list[DeadLetter]:
    wait_until(lambda: letters.count() >= count, f"{count} dead letters")
    return letters.page()


def hurry(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    """Have the time of runners that are made from now on, but not that of Redis, go by so many times as fast."""

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(None if timeout is None else timeout / times)

    monkeypatch.setattr(runners, "threading", SimpleNamespace(Event=Event, Thread=threading.Thread))
    monkeypatch.setattr(workers, "time", SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() * times))


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"headgate_consumer_{name}", {"consumer": "mail", **labels}) or 0.0


# What is handed over -------------------------------------------------------------------------------------------------------


def test_events_that_match_are_handled_in_order_and_acknowledged(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Each once, also when it matches twice; the others are acknowledged without being handed over."""
    before = metric("handled_total")
    run(patterns=("orders.*.failed", "orders.#"))
    publisher.publish_many([("orders.1.failed", 1), ("other", 2), ("orders.2", 3), ("orders", 4)])

    wait_at_rest(redis_client, 4)

    assert values(recorder) == [1, 3, 4]
    assert metric("handled_total") - before == 3
    assert metric("lag_events") == 0


def test_a_delivery_says_what_it_is(run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher) -> None:
    """Its identity is the same for every attempt."""
    recorder.script = staticmethod(lambda delivery: _raise(Retry("later")) if delivery.attempt == 1 else None)
    run()
    receipt = publisher.publish("orders.1", {"a": "ü"}, id="order-1")
    wait_until(lambda: len(recorder.seen) == 2, "the second attempt")

    first, second = recorder.seen
    assert (first.topic, first.id, first.value(), first.offset) == ("orders.1", "order-1", {"a": "ü"}, 1)
    assert (first.namespace, first.consumer, first.key, first.deferred) == ("notifications", "mail", "", False)
    assert first.identity == second.identity == f"mail:notifications:{receipt.epoch}-1"
    assert (first.attempt, second.attempt) == (1, 2)


def test_parts_are_done_and_tried_again_by_themselves(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """One recipient's trouble is not the others'; none: ignored; one: no detour; doubles count once."""
    recorder.parts = staticmethod(lambda delivery: delivery.value())
    recorder.script = staticmethod(
        lambda delivery: _raise(Retry("later")) if (delivery.key, delivery.attempt) == ("b", 1) else None
    )
    run()
    publisher.publish_many([("a", ["a", "b", "c", "a"]), ("a", []), ("a", ["d"])])

    wait_at_rest(redis_client, 3)

    found = [(delivery.offset, delivery.key, delivery.attempt) for delivery in recorder.seen]
    assert sorted(found) == [(1, "a", 1), (1, "b", 1), (1, "b", 2), (1, "c", 1), (3, "d", 1)]
    assert len({delivery.identity for delivery in recorder.seen}) == 4


def test_keys_that_failed_at_first_are_asked_again(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """The event waits whole, and is split, or given its one key, when they are known."""
    tries = iter([Retry("who is it for?")])

    def parts(delivery: Delivery) -> Sequence[str]:
        if delivery.offset == 1 and (error := next(tries, None)):
            raise error
        return ["a"]

    recorder.parts = staticmethod(parts)
    recorder.script = staticmethod(lambda delivery: _raise(Retry("later")) if len(recorder.seen) == 1 else None)
    run()
    publisher.publish("a", 1)

    wait_at_rest(redis_client, 1)

    assert [delivery.key for delivery in recorder.seen] == ["a", "a"]


def test_an_event_of_too_many_parts_is_rejected(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, letters: DeadLetters
) -> None:
    """One event cannot fill Redis."""
    recorder.parts = staticmethod(lambda delivery: [str(number) for number in range(1001)])
    run()
    publisher.publish("a", 1)

    (letter,) = wait_buried(letters)
    assert (letter.why, letter.reason) == ("rejected", "1001 keys, at most 1000 are allowed")
    assert recorder.seen == []


def test_a_batch_consumer_gets_pages(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """All of a backlog, in order, many at a time."""
    recorder.batch = True
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", number) for number in range(250)])
    run()

    wait_at_rest(redis_client, 250)

    assert [delivery.value() for page in recorder.pages for delivery in page] == list(range(250))
    assert [len(page) for page in recorder.pages] == [PAGE_TASKS] * (250 // PAGE_TASKS)


def test_a_backlog_is_read_no_faster_than_allowed(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Fifty a second: the second page comes half a second after the first may have come, but for the slack."""
    recorder.script = staticmethod(lambda delivery: recorder.calls.append(str(time.monotonic())))
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", number) for number in range(2 * PAGE_TASKS)])
    began_s = time.monotonic()  # not when the first was handled: the pace is that of taking pages
    run(max_per_s=2 * PAGE_TASKS)

    wait_at_rest(redis_client, 2 * PAGE_TASKS)

    at_s = [float(call) for call in recorder.calls[1:]]
    assert at_s[PAGE_TASKS] - began_s > 0.4


def test_one_bad_event_of_a_page_does_not_take_the_others_along(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client, letters: DeadLetters
) -> None:
    """Whose fault it is shows when each is handed over by itself."""
    recorder.batch = True

    def script(delivery: Delivery) -> None:
        if delivery.value() == 3:
            raise Reject("not this one")
        if delivery.value() == 5:
            raise KeyError("x")

    recorder.script = staticmethod(script)
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", number) for number in range(10)])
    run()

    found = wait_buried(letters, 2)
    wait_at_rest(redis_client, 10)

    assert {(letter.task.offset, letter.why) for letter in found} == {(4, "rejected"), (6, "poison")}
    done = {delivery.value() for page in recorder.pages if len(page) == 1 for delivery in page} - {3, 5}
    assert done == {0, 1, 2, 4, 6, 7, 8, 9}


def test_a_page_that_is_to_be_tried_again_comes_one_by_one(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """What a receiver would not take at once, it may take in tasks."""
    recorder.batch = True
    recorder.script = staticmethod(lambda delivery: _raise(Retry("full")) if delivery.attempt == 1 else None)
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", number) for number in range(3)])
    run()

    wait_at_rest(redis_client, 3)

    assert sorted(page[0].value() for page in recorder.pages[1:]) == [0, 1, 2]
    assert {len(page) for page in recorder.pages[1:]} == {1}


# Later ---------------------------------------------------------------------------------------------------------------------


def test_what_is_held_comes_back_when_it_is_due(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """It says that it was deferred, and what the answer asked for has passed."""
    until_s = time.time() + 0.2
    recorder.script = staticmethod(lambda delivery: None if delivery.deferred else Defer(until_s))
    run()
    publisher.publish("a", 1)
    wait_at_rest(redis_client, 1)

    assert [(delivery.attempt, delivery.deferred) for delivery in recorder.seen] == [(1, False), (2, True)]
    assert time.time() >= until_s


def test_what_is_held_is_not_due_before_its_time(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Not by the part of a millisecond that Redis' clock does not have."""
    until_s = int(time.time()) + 3600.0004
    recorder.script = staticmethod(lambda delivery: Defer(until_s))
    run()
    publisher.publish("a", 1)
    wait_until(lambda: call(redis_client, "ZCARD", f"{GROUP}:held"), "the task to be deferred")

    _, due_ms = call(redis_client, "ZRANGE", f"{GROUP}:held", 0, -1, "WITHSCORES")
    assert 0 <= float(due_ms) - until_s * 1000 < 1


def test_what_is_held_together_comes_in_one_call(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Oldest first, when the first of them is due; all of them may be tried again, and deferred again."""
    answers: list[Any] = [Retry("not now"), Defer(0.0, together=True), None]

    def digest(key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    recorder.parts = staticmethod(lambda delivery: ["ada"])
    recorder.digest = staticmethod(digest)
    due_s = time.time() + 3600
    recorder.script = staticmethod(lambda delivery: Defer(due_s + delivery.value() * 1000, together=True))
    run()
    publisher.publish_many([("a", number) for number in range(3)])
    wait_until(lambda: call(redis_client, "ZCARD", f"{GROUP}:held") == 3, "all to be deferred")
    assert recorder.together == []
    make_first_due(redis_client)

    wait_at_rest(redis_client, 3)

    assert [(key, [delivery.value() for delivery in found]) for key, found in recorder.together] == [("ada", [0, 1, 2])] * 3
    assert [{delivery.attempt for delivery in found} for _, found in recorder.together] == [{2}, {3}, {4}]


def test_it_is_tried_again_until_it_works(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """An event behind it does not wait for that."""
    before = metric("retried_total")
    recorder.script = staticmethod(
        lambda delivery: _raise(Retry("later")) if delivery.value() == 1 and delivery.attempt < 8 else None
    )
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", 1), ("a", 2)])
    run()

    wait_at_rest(redis_client, 2)

    assert values(recorder)[:2] == [1, 2]
    assert values(recorder).count(1) == 8
    assert metric("retried_total") - before == 7


def test_a_retry_may_ask_for_a_least_wait(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Longer than the back-off's own."""
    recorder.script = staticmethod(lambda delivery: _raise(Retry("in an hour", after_s=3600)))
    run()
    before_ms = int(time.time() * 1000)  # whole ones, as Redis' clock has them
    publisher.publish("a", 1)
    wait_until(lambda: call(redis_client, "ZCARD", f"{GROUP}:held"), "the task to be deferred")

    _, due_ms = call(redis_client, "ZRANGE", f"{GROUP}:held", 0, -1, "WITHSCORES")
    assert before_ms <= float(due_ms) - 3_600_000 <= time.time() * 1000
    wait_until(lambda: metric("waiting") == 1, "it to be counted")


def test_redis_trouble_inside_a_consumer_counts_as_to_be_tried_again(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """It is nobody's fault, however often: no poison."""
    recorder.script = staticmethod(lambda delivery: _raise(BusUnavailable("gone")) if delivery.attempt < 8 else None)
    run()
    publisher.publish("a", 1)
    wait_at_rest(redis_client, 1)

    assert [delivery.attempt for delivery in recorder.seen] == list(range(1, 9))


# Set aside -----------------------------------------------------------------------------------------------------------------


def test_what_was_tried_for_too_long_is_given_up(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, letters: DeadLetters
) -> None:
    """With the last reason."""
    recorder.script = staticmethod(lambda delivery: _raise(Retry(f"no {delivery.attempt}")))
    run(retry_for_s=1)
    publisher.publish("a", 1)

    (letter,) = wait_buried(letters)

    assert letter.why == "gave_up"
    assert letter.reason == f"no {letter.task.attempt}"
    assert letter.task.attempt == len(recorder.seen) > 1


def test_what_is_rejected_is_set_aside_at_once(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """And goes through when an operator tries it again."""
    before = metric("dead_total", why="rejected")
    recorder.script = staticmethod(lambda delivery: _raise(Reject("nobody lives there")) if len(recorder.seen) == 1 else None)
    run()
    publisher.publish("a", {"to": "x"})

    (letter,) = wait_buried(letters)
    assert (letter.why, letter.reason, letter.task.data) == ("rejected", "nobody lives there", b'{"to":"x"}')
    assert metric("dead_total", why="rejected") - before == 1
    letters.retry_all()
    wait_at_rest(redis_client, 1)

    assert [delivery.attempt for delivery in recorder.seen] == [1, 1]
    assert letters.count() == 0


@pytest.mark.parametrize("fault", [ValueError("a secret"), KeyError("x"), TypeError("y")])
def test_a_fault_of_the_code_is_tried_five_times_then_set_aside(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, fault: Exception
) -> None:
    """The reason names its kind, not its text."""
    recorder.script = staticmethod(lambda delivery: _raise(fault))
    run()
    publisher.publish("a", 1)

    (letter,) = wait_buried(letters)

    assert (letter.why, letter.reason) == ("poison", f"{type(fault).__name__} in the consumer's code")
    assert [delivery.attempt for delivery in recorder.seen] == [1, 2, 3, 4, 5]


def test_an_answer_that_is_none_is_a_fault_of_the_code(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, letters: DeadLetters
) -> None:
    """Something that is no Defer; a time that is no time."""
    answers: dict[int, Any] = {1: "done", 2: Defer(float("nan"))}
    recorder.script = staticmethod(lambda delivery: answers[delivery.value()])
    run()
    publisher.publish_many([("a", 1), ("a", 2)])

    assert [letter.why for letter in wait_buried(letters, 2)] == ["poison", "poison"]


def test_what_was_handed_out_five_times_without_an_answer_is_set_aside(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """It ended the process each time: this one does not even see it. What was leased with it is handled."""
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", "deadly"), ("a", "harmless")])
    epoch = call(redis_client, "HGET", GROUP, "epoch").decode()
    call(redis_client, "EVAL", FIVE_TIMES, 1, LOG, group_in_log("mail", epoch))
    call(redis_client, "HSET", GROUP, "position", 2)

    run()
    (letter,) = wait_buried(letters)
    wait_at_rest(redis_client, 2)

    assert (letter.why, letter.task.data) == ("poison", b'"deadly"')
    assert [(delivery.value(), delivery.attempt) for delivery in recorder.seen] == [("harmless", 5)]


def test_an_entry_that_is_no_event_is_set_aside(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """And the consumer goes on behind it."""
    run(patterns=("a",))
    publisher.publish("a", 1)
    call(redis_client, "XADD", LOG, "2-0", "topic", "a", "id", "x", "time", "1", "data", "{not json")
    call(redis_client, "XADD", LOG, "3-0", "topic", "b", "id", "x", "time", "1", "data", "{not json")
    call(redis_client, "HSET", "hg:{notifications}:head", "offset", 3)
    publisher.publish("a", 4)

    (letter,) = wait_buried(letters)
    wait_at_rest(redis_client, 4)

    assert (letter.why, letter.task.offset, letter.task.data) == ("unreadable", 2, b"{not json")
    assert values(recorder) == [1, 4]


# Bounds, sharing, slowness -------------------------------------------------------------------------------------------------


def test_when_it_is_full_nothing_new_is_taken_until_there_is_room(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """The log keeps what it has no room for; nothing is lost when the trouble has passed."""
    CONSUMER_FULL.labels("mail").set(0)
    trouble = threading.Event()
    trouble.set()
    recorder.script = staticmethod(lambda delivery: _raise(Retry("down")) if trouble.is_set() else None)
    run(max_waiting=5)
    publisher.publish_many([("a", number) for number in range(500)])
    wait_until(lambda: metric("full") == 1, "the consumer to be full")
    assert call(redis_client, "ZCARD", f"{GROUP}:held") <= 5

    trouble.clear()
    wait_at_rest(redis_client, 500)

    assert {delivery.value() for delivery in recorder.seen if not trouble.is_set()} == set(range(500))
    wait_until(lambda: metric("full") == 0, "room")


def test_an_event_that_fills_it_keeps_the_rest_of_its_page_in_the_log(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """A page of events with many parts each goes over the bound by one event's parts only."""
    release = threading.Event()
    most_held = 0

    def script(delivery: Delivery) -> None:
        nonlocal most_held
        most_held = max(most_held, call(redis_client, "ZCARD", f"{GROUP}:held"))
        release.wait(DEADLINE_S)

    recorder.parts = staticmethod(lambda delivery: [str(number) for number in range(50)])
    recorder.script = staticmethod(script)
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", number) for number in range(5)])
    run(max_waiting=60)
    wait_until(lambda: recorder.seen, "the first part")
    release.set()

    wait_at_rest(redis_client, 5)

    assert most_held < 60 + 50
    assert len({delivery.identity for delivery in recorder.seen}) == len(recorder.seen) == 5 * 50


def test_instances_and_workers_share_the_work(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Two instances of two workers: each event once."""
    for _ in range(2):
        run(workers=2)
    wait_until(lambda: recorder.calls.count("start") == 4, "all four to be there")
    publisher.publish_many([("a", number) for number in range(1000)])

    wait_at_rest(redis_client, 1000)

    assert sorted(values(recorder)) == list(range(1000))


def test_consumers_do_not_disturb_each_other(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Each has every event."""
    run()
    run(name="chat")
    publisher.publish_many([("a", number) for number in range(10)])

    wait_at_rest(redis_client, 10)
    wait_until(lambda: at_rest(redis_client, 10, GROUP.replace("mail", "chat")), "the other to be done")

    assert sorted(values(recorder)) == sorted([*range(10)] * 2)


def test_slow_work_is_not_handed_to_another(
    run: Callable[..., Runner],
    recorder: type[Recorder],
    publisher: Publisher,
    redis_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is kept leased for as long as it takes, also when the log has trimmed it meanwhile: two instances."""
    hurry(monkeypatch, 60)
    release = threading.Event()
    recorder.script = staticmethod(lambda delivery: _none(release.wait(DEADLINE_S)))
    for _ in range(2):
        run(lease_s=120)  # as the instances have it, a third of it is over in a second
    publisher.publish("a", 1)
    wait_until(lambda: call(redis_client, "ZCARD", f"{GROUP}:held"), "the work to be kept by itself")
    call(redis_client, "XTRIM", LOG, "MAXLEN", 0)
    [task] = call(redis_client, "ZRANGE", f"{GROUP}:held", 0, -1)
    ends_ms = int((time.time() + 40) * 1000)
    call(redis_client, "ZADD", f"{GROUP}:held", "XX", ends_ms, task)

    wait_until(
        lambda: float(call(redis_client, "ZSCORE", f"{GROUP}:held", task)) > ends_ms + 40_000,
        "the lease to be renewed for its length before it ends",
    )
    release.set()
    wait_at_rest(redis_client, 1)

    assert [(delivery.value(), delivery.attempt) for delivery in recorder.seen] == [(1, 1)]
    assert int(call(redis_client, "HGET", GROUP, "missed") or 0) == 0


# Trouble with Redis and its log --------------------------------------------------------------------------------------------


def test_a_redis_that_restarts_loses_nothing(recorder: type[Recorder], run: Callable[..., Runner], tmp_path: Any) -> None:
    """Killed while events are handled and acknowledged; what was deferred is still deferred."""
    with RedisProcess(tmp_path / "redis") as redis:
        recorder.script = staticmethod(
            lambda delivery: Defer(time.time() + 0.3) if delivery.value() % 10 == 0 and not delivery.deferred else None
        )
        runner = run(url=redis.url, lease_s=3.0)  # a page whose answer went with the old process comes again after it
        redis.call("CONFIG", "SET", "appendfsync", "always")
        with Publisher(redis.url) as publisher:
            publisher.publish_many([("a", number) for number in range(400)])
            wait_until(lambda: len(recorder.seen) > 50, "the work to have begun")
            redis.kill()
            wait_until(lambda: runner.status().trouble, "the trouble to be told")
            redis.start()
            publisher.publish_many([("a", number) for number in range(400, 500)])

        def done() -> set[int]:
            return {delivery.value() for delivery in list(recorder.seen) if delivery.value() % 10 or delivery.deferred}

        wait_until(lambda: done() == set(range(500)), "every event to be done")
        wait_until(lambda: runner.status() == type(runner.status())(1, None), "the trouble to be over")
        assert runner.stop(DEADLINE_S)


def test_a_new_log_is_followed(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """From its first event."""
    run()
    publisher.publish_many([("a", 1), ("a", 2)])
    wait_at_rest(redis_client, 2)
    lost = metric("logs_lost_total")
    call(redis_client, "DEL", "hg:{notifications}:head")
    publisher.publish_many([("a", 3), ("a", 4), ("a", 5)])
    wait_until(lambda: len(recorder.seen) == 5, "the new log's events")

    assert values(recorder) == [1, 2, 3, 4, 5]
    assert metric("logs_lost_total") - lost == 1


def test_an_emptied_redis_is_filled_again(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Without functions, group and log: everything that is published afterwards arrives."""
    run()
    publisher.publish("a", 1)
    wait_at_rest(redis_client, 1)
    call(redis_client, "FLUSHALL")
    call(redis_client, "FUNCTION", "FLUSH")
    publisher.publish_many([("a", number) for number in range(2, 5)])
    wait_until(lambda: len(recorder.seen) == 4, "the events since then")

    assert values(recorder) == [1, 2, 3, 4]


def test_what_was_trimmed_before_it_came_is_counted(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Never silently."""
    before = metric("missed_total")
    EventLog("notifications", redis_client, 65536).configure(10, 86400)
    Runner(_spec(recorder), _url(redis_client), Settings()).open()
    publisher.publish_many([("a", number) for number in range(50)])
    run()

    wait_at_rest(redis_client, 50)

    assert values(recorder) == list(range(40, 50))
    assert metric("missed_total") - before == 40


# Beginning and end ---------------------------------------------------------------------------------------------------------


def test_stopping_finishes_what_is_in_hand_and_gives_the_rest_back(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """The next instance has the rest at once, each event once."""
    begun, release = threading.Event(), threading.Event()

    def script(delivery: Delivery) -> None:
        begun.set()
        release.wait(DEADLINE_S)

    recorder.script = staticmethod(script)
    first = run()
    publisher.publish_many([("a", number) for number in range(50)])
    assert begun.wait(DEADLINE_S)
    first.ask_to_stop()
    release.set()
    assert first.stop(DEADLINE_S)
    assert len(recorder.seen) < 50

    run()
    wait_at_rest(redis_client, 50)

    assert values(recorder) == list(range(50))
    assert {delivery.attempt for delivery in recorder.seen} == {1}
    assert recorder.calls[:2] == ["start", "close"]


def test_work_that_does_not_end_does_not_keep_it_from_stopping(
    recorder: type[Recorder], publisher: Publisher, redis_url: str
) -> None:
    """The drain is bounded; it says that something is left."""
    begun, release = threading.Event(), threading.Event()

    def script(delivery: Delivery) -> None:
        begun.set()
        release.wait(DEADLINE_S)

    recorder.script = staticmethod(script)
    runner = Runner(_spec(recorder), redis_url, Settings())
    runner.open()
    runner.start()
    publisher.publish("a", 1)
    assert begun.wait(DEADLINE_S)

    assert not runner.stop(drain_s=0.05)
    release.set()
    wait_until(runner.stop, "the work to end")


def test_it_stops_while_redis_is_away(recorder: type[Recorder], publisher: Publisher) -> None:
    """Nothing to wait for."""
    runner = Runner(_spec(recorder), "redis://127.0.0.1:1", Settings())
    runner.start()
    wait_until(lambda: runner.status().trouble, "the trouble to be told")

    assert "127.0.0.1:1" in (runner.status().trouble or "")
    assert runner.stop()
    assert runner.stop()


def test_a_consumer_that_cannot_start_is_started_again(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Nothing is taken meanwhile, so nothing is lost by it."""
    faults = [OSError("no mail server"), OSError("still none")]

    def start(self: Recorder) -> None:
        self.calls.append("start")
        if faults:
            raise faults.pop()

    recorder.start = start  # type: ignore[method-assign]
    run()
    publisher.publish("a", 1)
    wait_at_rest(redis_client, 1)

    assert recorder.calls == ["start", "close", "start", "close", "start"]
    assert values(recorder) == [1]


def test_ticks_come_with_and_without_events(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """A tick that fails is told; the next one comes, and so do events."""
    recorder.tick_s = 0.02

    def tick(self: Recorder) -> None:
        self.calls.append("tick")
        raise RuntimeError

    recorder.tick = tick  # type: ignore[method-assign]
    run()
    wait_until(lambda: recorder.calls.count("tick") >= 3, "ticks without events")
    publisher.publish("a", 1)
    wait_at_rest(redis_client, 1)

    assert values(recorder) == [1]


def _spec(recorder: type[Recorder]) -> ConsumerSpec:
    return ConsumerSpec("mail", recorder, recorder.Options(), ("#",), "notifications", QUICK)


def _url(client: Client) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def _raise(error: Exception) -> None:
    raise error


def _none(_: object) -> None:
    return None
