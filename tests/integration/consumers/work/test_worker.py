"""A worker on a real Redis, stepped by the test: patterns, parts, deferring, trying again, dead letters, bounds, lost logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from headgate.consumers import Defer, Delivery, OutcomeUnknown, Reject, Retry
from headgate.consumers.work import worker as workers
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.worker import PAGE_TASKS
from headgate.errors import BusUnavailable
from headgate.redis.client import Client, call
from headgate.redis.keys import group_in_log
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from tests.support.consumers_state import count_leased
from tests.support.recording_consumer import Recorder, fail, values
from tests.support.stepped_worker import SteppedWorker, WorkerClock

LOG = "hg:{notifications}:log"
GROUP = "hg:{notifications}:group:mail"

# The first event was handed out three times, the second twice, long ago.
THRICE = """
redis.call('XREADGROUP', 'GROUP', ARGV[1], 'headgate', 'STREAMS', KEYS[1], '>')
redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '1-0', 'RETRYCOUNT', 3, 'IDLE', 10000000, 'JUSTID')
redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '2-0', 'RETRYCOUNT', 2, 'IDLE', 10000000, 'JUSTID')
"""

Make = Callable[..., SteppedWorker]


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """The lines of the log as fields: writing out tracebacks for people takes longer than the tests."""
    with structlog.testing.capture_logs() as logged:
        yield logged


@pytest.fixture(autouse=True)
def log(redis_client: Client) -> None:
    """There is a log, as where a gateway runs."""
    EventLog("notifications", redis_client, 65536).configure(10000, 86400)


@pytest.fixture
def make(recorder: type[Recorder], make_worker: Make) -> Make:
    """Make a worker of the recorder: `make(patterns=…, lease_s=…)`."""
    return lambda **given: make_worker(recorder, recorder.Options(), **given)


@pytest.fixture
def letters(redis_client: Client) -> DeadLetters:
    """The consumer's dead letters."""
    return DeadLetters(redis_client, "notifications", "mail")


def check_at_rest(worker: SteppedWorker, client: Client, offset: int, group: str = "mail") -> None:
    """Assert that the group has taken everything up to `offset`, and nothing is leased or waiting."""
    assert int(call(client, "HGET", GROUP.replace("mail", group), "position")) == offset
    assert (count_leased(client, group), worker.waiting()) == (0, 0)


def due_ms(client: Client) -> float:
    """Return when the only task that waits is due."""
    [(_, due_ms)] = _pairs(call(client, "ZRANGE", f"{GROUP}:held", 0, -1, "WITHSCORES"))
    return float(due_ms)


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"headgate_consumer_{name}", {"consumer": "mail", **labels}) or 0.0


# Items of an inbox ---------------------------------------------------------------------------------------------------------


# Deliveries ----------------------------------------------------------------------------------------------------------------


def test_events_that_match_are_handled_in_order_and_acknowledged(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Each once, also when it matches twice; the others are acknowledged without being handed over."""
    before = metric("handled_total")
    worker = make(patterns=("orders.*.failed", "orders.#"))
    publisher.publish_many([("orders.1.failed", 1), ("other", 2), ("orders.2", 3), ("orders", 4)])

    worker.work()

    check_at_rest(worker, redis_client, 4)
    assert values(recorder) == [1, 3, 4]
    assert metric("handled_total") - before == 3
    assert metric("lag_events") == 0


def test_a_delivery_names_its_event_and_its_attempt(make: Make, recorder: type[Recorder], publisher: Publisher) -> None:
    """Its identity is the same for every attempt."""
    recorder.script = staticmethod(lambda delivery: fail(Retry("later")) if delivery.attempt == 1 else None)
    worker = make()
    receipt = publisher.publish("orders.1", {"a": "ü"}, id="order-1")

    worker.finish()

    first, second = recorder.seen
    assert (first.topic, first.id, first.value(), first.offset) == ("orders.1", "order-1", {"a": "ü"}, 1)
    assert (first.namespace, first.consumer, first.key, first.deferred) == ("notifications", "mail", "", False)
    assert first.identity == second.identity == f"mail:notifications:{receipt.epoch}-1"
    assert (first.attempt, second.attempt) == (1, 2)


def test_parts_are_done_and_tried_again_by_themselves(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """The trouble of one recipient does not touch the others; no parts: ignored; one: no detour; doubles count once."""
    recorder.parts = staticmethod(lambda delivery: delivery.value())
    recorder.script = staticmethod(
        lambda delivery: fail(Retry("later")) if (delivery.key, delivery.attempt) == ("b", 1) else None
    )
    worker = make()
    publisher.publish_many([("a", ["a", "b", "c", "a"]), ("a", []), ("a", ["d"])])

    worker.finish()

    check_at_rest(worker, redis_client, 3)
    found = [(delivery.offset, delivery.key, delivery.attempt) for delivery in recorder.seen]
    assert sorted(found) == [(1, "a", 1), (1, "b", 1), (1, "b", 2), (1, "c", 1), (3, "d", 1)]
    assert len({delivery.identity for delivery in recorder.seen}) == 4


def test_keys_that_failed_at_first_are_asked_again(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """The event waits whole, and is split, or given its one key, when they are known."""
    tries = iter([Retry("no address yet")])

    def parts(delivery: Delivery) -> Sequence[str]:
        if delivery.offset == 1 and (error := next(tries, None)):
            raise error
        return ["a"]

    recorder.parts = staticmethod(parts)
    recorder.script = staticmethod(lambda delivery: fail(Retry("later")) if len(recorder.seen) == 1 else None)
    worker = make()
    publisher.publish("a", 1)

    worker.finish()

    check_at_rest(worker, redis_client, 1)
    assert [delivery.key for delivery in recorder.seen] == ["a", "a"]


def test_an_event_of_too_many_parts_is_rejected(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters
) -> None:
    """One event cannot fill Redis."""
    recorder.parts = staticmethod(lambda delivery: [str(number) for number in range(1001)])
    worker = make()
    publisher.publish("a", 1)

    worker.work()

    (letter,) = letters.page()
    assert (letter.why, letter.reason) == ("rejected", "1001 keys, at most 1000 are allowed")
    assert recorder.seen == []


def test_a_batch_consumer_gets_pages(make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client) -> None:
    """All of a backlog, in order, many at a time."""
    recorder.batch = True
    worker = make()
    publisher.publish_many([("a", number) for number in range(250)])

    worker.work()

    check_at_rest(worker, redis_client, 250)
    assert [delivery.value() for page in recorder.pages for delivery in page] == list(range(250))
    assert [len(page) for page in recorder.pages] == [PAGE_TASKS] * (250 // PAGE_TASKS)


def test_a_backlog_is_read_no_faster_than_allowed(
    make: Make, recorder: type[Recorder], publisher: Publisher, worker_clock: WorkerClock
) -> None:
    """At two pages a second, each page waits half a second after the one before, but for the slack of the first."""
    worker_clock.stand_still()
    worker = make(max_per_s=2 * PAGE_TASKS)
    publisher.publish_many([("a", number) for number in range(3 * PAGE_TASKS)])

    worker.work(waits=2)

    assert worker.stopping.waits_s == pytest.approx([0.49, 0.5, 0.5])
    assert len(recorder.seen) == 3 * PAGE_TASKS


def test_one_bad_event_of_a_page_does_not_take_the_others_along(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client, letters: DeadLetters
) -> None:
    """After a fault each event of the page is handed over by itself, so that only the bad ones go to the dead letters."""
    recorder.batch = True

    def script(delivery: Delivery) -> None:
        if delivery.value() == 3:
            raise Reject("not this one")
        if delivery.value() == 5:
            raise KeyError("x")

    recorder.script = staticmethod(script)
    worker = make()
    publisher.publish_many([("a", number) for number in range(10)])

    worker.finish()

    check_at_rest(worker, redis_client, 10)
    assert {(letter.task.offset, letter.why) for letter in letters.page()} == {(4, "rejected"), (6, "poison")}
    done = {delivery.value() for page in recorder.pages if len(page) == 1 for delivery in page} - {3, 5}
    assert done == {0, 1, 2, 4, 6, 7, 8, 9}


def test_a_page_that_is_to_be_tried_again_comes_one_by_one(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """A receiver that would not take them at once may take one at a time."""
    recorder.batch = True
    recorder.script = staticmethod(lambda delivery: fail(Retry("full")) if delivery.attempt == 1 else None)
    worker = make()
    publisher.publish_many([("a", number) for number in range(3)])

    worker.finish()

    check_at_rest(worker, redis_client, 3)
    assert sorted(page[0].value() for page in recorder.pages[1:]) == [0, 1, 2]
    assert {len(page) for page in recorder.pages[1:]} == {1}


# Later ---------------------------------------------------------------------------------------------------------------------


def test_a_deferred_task_comes_back_when_it_is_due(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Not before, and from Redis alone: the log need not have the event any more. It says that it was deferred."""
    recorder.script = staticmethod(lambda delivery: None if delivery.deferred else Defer(time.time() + 3600))
    worker = make()
    publisher.publish("a", 1)
    worker.work()
    call(redis_client, "XTRIM", LOG, "MAXLEN", 0)
    worker.work()
    assert len(recorder.seen) == 1

    worker.finish()

    check_at_rest(worker, redis_client, 1)
    assert [(delivery.attempt, delivery.deferred) for delivery in recorder.seen] == [(1, False), (2, True)]


def test_a_worker_waits_for_an_event_until_the_next_task_is_due(
    make: Make, recorder: type[Recorder], publisher: Publisher, monkeypatch: pytest.MonkeyPatch, worker_clock: WorkerClock
) -> None:
    """And no longer than its longest wait, after which it looks for tasks of other instances."""
    monkeypatch.setattr(workers, "IDLE_S", 7200.0)
    recorder.script = staticmethod(lambda delivery: Defer(worker_clock.time() + 3600))
    worker = make()
    worker.work()
    publisher.publish("a", 1)
    worker.work()

    without, with_task = worker.stopping.waits_s
    assert without == 7200
    assert 3000 < with_task <= 3600.001  # Redis has whole milliseconds


def test_a_deferred_task_is_not_due_before_its_time(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Not by the part of a millisecond that Redis' clock does not have."""
    until_s = int(time.time()) + 3600.0004
    recorder.script = staticmethod(lambda delivery: Defer(until_s))
    worker = make()
    publisher.publish("a", 1)

    began_s = time.time()
    worker.work()
    took_ms = (time.time() - began_s) * 1000

    assert 0 <= due_ms(redis_client) - until_s * 1000 <= took_ms + 2


def test_tasks_that_are_deferred_together_come_in_one_call(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
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
    worker = make()
    publisher.publish_many([("a", number) for number in range(3)])
    worker.work()
    assert (recorder.together, worker.waiting()) == ([], 3)
    first, *_ = call(redis_client, "ZRANGE", f"{GROUP}:held", 0, -1)
    call(redis_client, "ZADD", f"{GROUP}:held", "XX", 1, first)
    worker.work()
    assert [(key, [delivery.value() for delivery in found]) for key, found in recorder.together] == [("ada", [0, 1, 2])]

    worker.finish()

    check_at_rest(worker, redis_client, 3)
    assert [(key, [delivery.value() for delivery in found]) for key, found in recorder.together] == [("ada", [0, 1, 2])] * 3
    assert [{delivery.attempt for delivery in found} for _, found in recorder.together] == [{2}, {3}, {4}]


def test_a_task_is_tried_again_until_it_works(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """An event behind it does not wait for that."""
    before = metric("retried_total")
    recorder.script = staticmethod(
        lambda delivery: fail(Retry("later")) if delivery.value() == 1 and delivery.attempt < 8 else None
    )
    worker = make()
    publisher.publish_many([("a", 1), ("a", 2)])

    worker.finish()

    check_at_rest(worker, redis_client, 2)
    assert values(recorder) == [1, 2, *[1] * 7]
    assert metric("retried_total") - before == 7


def test_a_retry_may_ask_for_a_least_wait(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Longer than the back-off's own."""
    recorder.script = staticmethod(lambda delivery: fail(Retry("in two hours", after_s=7200)))
    worker = make()
    before_ms = int(time.time() * 1000)  # whole ones, as Redis' clock has them
    publisher.publish("a", 1)

    worker.work()

    assert before_ms <= due_ms(redis_client) - 7_200_000 <= time.time() * 1000
    assert metric("waiting") == 1


def test_redis_trouble_inside_a_consumer_counts_as_to_be_tried_again(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """It is nobody's fault, however often: no poison."""
    recorder.script = staticmethod(lambda delivery: fail(BusUnavailable("gone")) if delivery.attempt < 8 else None)
    worker = make()
    publisher.publish("a", 1)

    worker.finish()

    check_at_rest(worker, redis_client, 1)
    assert [delivery.attempt for delivery in recorder.seen] == list(range(1, 9))


# Dead letters --------------------------------------------------------------------------------------------------------------


def test_a_task_that_was_tried_for_too_long_is_given_up(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, worker_clock: WorkerClock
) -> None:
    """With the last reason, at the first attempt after its time."""
    recorder.script = staticmethod(lambda delivery: fail(Retry(f"no {delivery.attempt}")))
    worker_clock.stand_still()
    worker = make(retry_for_s=3600)
    publisher.publish("a", 1)
    worker.work()
    worker_clock.move(3000)
    worker.make_due()
    worker.work()
    assert letters.count() == 0

    worker_clock.move(700)
    worker.make_due()
    worker.work()

    (letter,) = letters.page()
    assert (letter.why, letter.reason, letter.task.attempt) == ("gave_up", "no 3", 3)


def test_a_rejected_event_goes_to_the_dead_letters_at_once(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """And goes through when an operator tries it again."""
    before = metric("dead_total", why="rejected")
    recorder.script = staticmethod(lambda delivery: fail(Reject("nobody lives there")) if len(recorder.seen) == 1 else None)
    worker = make()
    publisher.publish("a", {"to": "x"})
    worker.work()

    (letter,) = letters.page()
    assert (letter.why, letter.reason, letter.task.data) == ("rejected", "nobody lives there", b'{"to":"x"}')
    assert metric("dead_total", why="rejected") - before == 1
    letters.retry_all()
    worker.work()

    check_at_rest(worker, redis_client, 1)
    assert [delivery.attempt for delivery in recorder.seen] == [1, 1]
    assert letters.count() == 0


def test_a_fault_of_the_code_is_tried_five_times_then_set_aside(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters
) -> None:
    """The reason names its kind, not its text. Code that would end its thread does not."""
    faults = [ValueError("a secret"), KeyError("x"), SystemExit(1)]
    recorder.script = staticmethod(lambda delivery: fail(faults[delivery.value()]))
    worker = make()
    publisher.publish_many([("a", number) for number in range(len(faults))])

    worker.finish()

    assert {(letter.task.offset, letter.why, letter.reason) for letter in letters.page()} == {
        (1, "poison", "ValueError in the consumer's code"),
        (2, "poison", "KeyError in the consumer's code"),
        (3, "poison", "SystemExit in the consumer's code"),
    }
    for number in range(len(faults)):
        assert [delivery.attempt for delivery in recorder.seen if delivery.value() == number] == [1, 2, 3, 4, 5]


def test_an_answer_that_is_none_is_a_fault_of_the_code(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters
) -> None:
    """Something that is no Defer; a time that is no time."""
    answers: dict[int, Any] = {1: "done", 2: Defer(float("nan"))}
    recorder.script = staticmethod(lambda delivery: answers[delivery.value()])
    worker = make()
    publisher.publish_many([("a", 1), ("a", 2)])

    worker.finish()

    assert [letter.why for letter in letters.page()] == ["poison", "poison"]


def test_an_event_that_was_handed_out_three_times_without_an_answer_is_set_aside(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """It ended the process each time: this one does not even see it. The event that was leased with it is handled."""
    worker = make()
    publisher.publish_many([("a", "deadly"), ("a", "harmless")])
    epoch = call(redis_client, "HGET", GROUP, "epoch").decode()
    call(redis_client, "EVAL", THRICE, 1, LOG, group_in_log("mail", epoch))
    call(redis_client, "HSET", GROUP, "position", 2)

    worker.work()

    check_at_rest(worker, redis_client, 2)
    (letter,) = letters.page()
    assert (letter.why, letter.task.data) == ("poison", b'"deadly"')
    assert [(delivery.value(), delivery.attempt) for delivery in recorder.seen] == [("harmless", 3)]


def test_an_attempt_of_unknown_outcome_is_repeated_twice_and_no_sooner_than_the_last_wait(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """Then it may have been done, and is repeated no further. The count is kept in Redis: each attempt has another worker."""
    outcomes = [OutcomeUnknown("no answer"), Retry("451"), OutcomeUnknown("no answer"), OutcomeUnknown("reset")]
    recorder.script = staticmethod(lambda delivery: fail(outcomes[delivery.attempt - 1]))
    before = metric("dead_total", why="outcome_unknown")
    for attempt in range(1, 5):
        worker, asked_ms = make(start="oldest", retry_first_s=60, retry_last_s=300), int(time.time() * 1000)
        if attempt == 1:
            publisher.publish("a", 1)
        worker.work()
        assert [delivery.attempt for delivery in recorder.seen] == [*range(1, attempt + 1)]
        if isinstance(outcomes[attempt - 1], OutcomeUnknown) and attempt < 4:
            assert due_ms(redis_client) - asked_ms >= 300_000
        worker.make_due()

    (letter,) = letters.page()
    assert (letter.why, letter.reason, letter.task.attempt) == ("outcome_unknown", "reset", 4)
    assert metric("dead_total", why="outcome_unknown") - before == 1
    letters.retry_all()
    worker.work()
    assert [delivery.attempt for delivery in recorder.seen][4:] == [1]


def test_a_process_that_ends_under_its_work_counts_as_an_attempt_of_unknown_outcome(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """Lost answers and lost processes together: three copies at most."""
    recorder.script = staticmethod(lambda delivery: fail(OutcomeUnknown("no answer")))
    worker = make()
    publisher.publish_many([("a", "killed thrice"), ("a", "killed twice")])
    epoch = call(redis_client, "HGET", GROUP, "epoch").decode()
    call(redis_client, "EVAL", THRICE, 1, LOG, group_in_log("mail", epoch))
    call(redis_client, "HSET", GROUP, "position", 2)

    worker.work()

    assert [(delivery.value(), delivery.attempt) for delivery in recorder.seen] == [("killed twice", 3)]
    assert {(letter.task.data, letter.why) for letter in letters.page()} == {
        (b'"killed thrice"', "poison"),
        (b'"killed twice"', "outcome_unknown"),
    }


def test_an_entry_that_is_no_event_is_set_aside(
    make: Make, recorder: type[Recorder], publisher: Publisher, letters: DeadLetters, redis_client: Client
) -> None:
    """And the consumer goes on behind it."""
    worker = make(patterns=("a",))
    publisher.publish("a", 1)
    call(redis_client, "XADD", LOG, "2-0", "topic", "a", "id", "x", "time", "1", "data", "{not json")
    call(redis_client, "XADD", LOG, "3-0", "topic", "b", "id", "x", "time", "1", "data", "{not json")
    call(redis_client, "HSET", "hg:{notifications}:head", "offset", 3)
    publisher.publish("a", 4)

    worker.work()

    check_at_rest(worker, redis_client, 4)
    (letter,) = letters.page()
    assert (letter.why, letter.task.offset, letter.task.data) == ("unreadable", 2, b"{not json")
    assert values(recorder) == [1, 4]


# Bounds, sharing, slowness -------------------------------------------------------------------------------------------------


def test_a_full_consumer_takes_nothing_new_until_there_is_room(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """The log keeps what it has no room for; nothing is lost when the trouble has passed."""
    trouble = [Retry("down")]
    recorder.script = staticmethod(lambda delivery: fail(trouble[0]) if trouble else None)
    worker = make(max_waiting=5)
    publisher.publish_many([("a", number) for number in range(500)])

    worker.work()

    assert (metric("full"), worker.waiting(), len(recorder.seen)) == (1, 5, 5)
    trouble.clear()
    worker.finish()

    check_at_rest(worker, redis_client, 500)
    assert {delivery.value() for delivery in recorder.seen[5:]} == set(range(500))
    assert metric("full") == 0


def test_an_event_that_fills_it_keeps_the_rest_of_its_page_in_the_log(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """A page of events with many parts each goes over the bound by one event's parts only."""
    waiting: list[int] = []
    recorder.parts = staticmethod(lambda delivery: [str(number) for number in range(50)])
    worker = make(max_waiting=60)
    recorder.script = staticmethod(lambda delivery: waiting.append(worker.waiting()))
    publisher.publish_many([("a", number) for number in range(5)])

    worker.finish()

    check_at_rest(worker, redis_client, 5)
    assert 60 <= max(waiting) < 60 + 50
    assert len({delivery.identity for delivery in recorder.seen}) == len(recorder.seen) == 5 * 50


def test_consumers_do_not_disturb_each_other(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Each has every event."""
    one, other = make(), make(name="chat")
    publisher.publish_many([("a", number) for number in range(10)])

    one.work()
    other.work()

    check_at_rest(one, redis_client, 10)
    check_at_rest(other, redis_client, 10, "chat")
    assert [(delivery.consumer, delivery.value()) for delivery in recorder.seen] == [
        (consumer, number) for consumer in ("mail", "chat") for number in range(10)
    ]


def test_slow_work_is_kept_for_as_long_as_it_takes(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client, worker_clock: WorkerClock
) -> None:
    """From a third of its lease on it is a leased task, which the log may trim and no other instance gets; then it is renewed."""
    worker_clock.stand_still()
    slow, other = make(lease_s=120), make(lease_s=120)
    renewed_ms: list[float] = []

    def script(delivery: Delivery) -> None:
        worker_clock.move(39)
        slow.worker.keep(other.store)
        assert slow.waiting() == 0  # not a third of the lease yet
        worker_clock.move(1)
        slow.worker.keep(other.store)
        renewed_ms.append(due_ms(redis_client))
        call(redis_client, "XTRIM", LOG, "MAXLEN", 0)
        task, *_ = call(redis_client, "ZRANGE", f"{GROUP}:held", 0, -1)
        call(redis_client, "ZADD", f"{GROUP}:held", "XX", int(renewed_ms[0]) - 80_000, task)
        other.work()
        slow.worker.keep(other.store)
        renewed_ms.append(due_ms(redis_client))

    recorder.script = staticmethod(script)
    publisher.publish("a", 1)

    slow.work()

    check_at_rest(slow, redis_client, 1)
    assert renewed_ms[1] >= renewed_ms[0]
    assert [(delivery.value(), delivery.attempt) for delivery in recorder.seen] == [(1, 1)]
    assert int(call(redis_client, "HGET", GROUP, "missed") or 0) == 0


# Trouble with the log ------------------------------------------------------------------------------------------------------


def test_a_new_log_is_followed(make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client) -> None:
    """From its first event."""
    worker = make()
    publisher.publish_many([("a", 1), ("a", 2)])
    worker.work()
    lost = metric("logs_lost_total")
    call(redis_client, "DEL", "hg:{notifications}:head")
    publisher.publish_many([("a", 3), ("a", 4), ("a", 5)])

    worker.work()

    assert values(recorder) == [1, 2, 3, 4, 5]
    assert metric("logs_lost_total") - lost == 1


def test_an_emptied_redis_is_filled_again(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Without functions, group and log: everything that is published afterwards arrives."""
    worker = make()
    publisher.publish("a", 1)
    worker.work()
    call(redis_client, "FLUSHALL")
    call(redis_client, "FUNCTION", "FLUSH")
    publisher.publish_many([("a", number) for number in range(2, 5)])

    worker.work()

    assert values(recorder) == [1, 2, 3, 4]


def test_events_that_were_trimmed_before_they_came_are_counted(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Never silently."""
    before = metric("missed_total")
    EventLog("notifications", redis_client, 65536).configure(10, 86400)
    worker = make()
    publisher.publish_many([("a", number) for number in range(50)])

    worker.work()

    check_at_rest(worker, redis_client, 50)
    assert values(recorder) == list(range(40, 50))
    assert metric("missed_total") - before == 40


# Beginning and end ---------------------------------------------------------------------------------------------------------


def test_stopping_finishes_the_task_in_work_and_gives_the_rest_back(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """The next instance has the rest at once, each event once."""
    first, second = make(), make()

    def script(delivery: Delivery) -> None:
        if delivery.value() == 3:
            first.stopping.set()

    recorder.script = staticmethod(script)
    publisher.publish_many([("a", number) for number in range(50)])
    first.work()
    assert values(recorder) == [0, 1, 2, 3]

    second.work()

    check_at_rest(second, redis_client, 50)
    assert values(recorder) == list(range(50))
    assert {delivery.attempt for delivery in recorder.seen} == {1}
    assert recorder.calls == ["start", "close"] * 2


def test_a_consumer_that_cannot_start_is_started_again(
    make: Make, recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Nothing is taken meanwhile, so nothing is lost by it."""
    faults = [OSError("no mail server"), OSError("still none")]

    def start(self: Recorder) -> None:
        self.calls.append("start")
        if faults:
            raise faults.pop()

    recorder.start = start  # type: ignore[method-assign]
    worker = make()
    publisher.publish("a", 1)

    worker.work()
    assert (worker.worker.trouble, recorder.seen, count_leased(redis_client, "mail")) == ("OSError", [], 0)
    worker.work(waits=1)

    check_at_rest(worker, redis_client, 1)
    assert recorder.calls == ["start", "close", "start", "close", "start", "close"]
    assert (worker.worker.trouble, values(recorder)) == (None, [1])


def test_ticks_come_with_and_without_events(
    make: Make, recorder: type[Recorder], publisher: Publisher, worker_clock: WorkerClock
) -> None:
    """At their time, also between two events of a page; a tick that fails is told, and the next one comes."""
    worker_clock.stand_still()
    recorder.tick_s = 1.0
    ticks_s: list[float] = []
    began_s = worker_clock.monotonic()

    def tick(self: Recorder) -> None:
        ticks_s.append(worker_clock.monotonic() - began_s)
        raise RuntimeError

    recorder.tick = tick  # type: ignore[method-assign]
    worker = make()
    worker.work(waits=4)  # the longest wait is half a second
    assert ticks_s == pytest.approx([0, 1, 2])
    recorder.script = staticmethod(lambda delivery: worker_clock.move(0.75))
    publisher.publish_many([("a", number) for number in range(4)])

    worker.work()

    assert values(recorder) == [0, 1, 2, 3]
    assert ticks_s[3:] == pytest.approx([3.25, 4.75])
