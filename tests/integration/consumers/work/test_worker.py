"""A worker on a real Redis, stepped by the test: patterns, parts, deferring, trying again, dead letters, bounds, lost logs."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from headgate.consumers import Defer, Delivery, OutcomeUnknown, Reject, Retry
from headgate.consumers.work import worker as workers
from headgate.consumers.work.store import GROUP_LIBRARY, Answer
from headgate.consumers.work.worker import PAGE_TASKS
from headgate.errors import BusUnavailable
from headgate.redis.client import Client, call
from headgate.redis.keys import group_in_log
from headgate.redis.log import EventLog
from tests.support.consumers_state import count_leased
from tests.support.recording_consumer import Recorder, fail
from tests.support.stepped_worker import MakeWorker, Site

LOG = "hg:{notifications}:log"
GROUP = "hg:{notifications}:group:mail"

# The first event was handed out three times, the second twice, long ago.
THRICE = """
redis.call('XREADGROUP', 'GROUP', ARGV[1], 'headgate', 'STREAMS', KEYS[1], '>')
redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '1-0', 'RETRYCOUNT', 3, 'IDLE', 10000000, 'JUSTID')
redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '2-0', 'RETRYCOUNT', 2, 'IDLE', 10000000, 'JUSTID')
"""
# The leases of the second and the third event have ended.
ABANDON = "redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '2-0', '3-0', 'IDLE', 120000, 'JUSTID')"

ABANDON_FIRST = ABANDON.replace("'2-0', '3-0'", "'1-0'")


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """The lines of the log as fields, because writing out tracebacks for people takes longer than the tests."""
    with structlog.testing.capture_logs() as logged:
        yield logged


@pytest.fixture(autouse=True)
def log(redis_client: Client) -> None:
    """There is a log, as where a gateway runs."""
    EventLog("notifications", redis_client, 65536).configure(10000, 86400)


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"headgate_consumer_{name}", {"consumer": "mail", **labels}) or 0.0


# Deliveries ----------------------------------------------------------------------------------------------------------------


def test_events_that_match_are_handled_in_order_and_acknowledged(site: Site) -> None:
    """Each once, also when it matches twice; the others are acknowledged without being handed over."""
    before = metric("handled_total")
    worker = site.make(patterns=("orders.*.failed", "orders.#"))
    site.publisher.publish_many([("orders.1.failed", 1), ("other", 2), ("orders.2", 3), ("orders", 4)])

    worker.work()

    site.check_at_rest(worker, 4)
    assert site.values() == [1, 3, 4]
    assert metric("handled_total") - before == 3


def test_a_delivery_names_its_event_and_its_attempt(site: Site) -> None:
    """Its identity is the same for every attempt."""
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("later")) if delivery.attempt == 1 else None)
    worker = site.make()
    receipt = site.publisher.publish("orders.1", {"a": "ü"}, id="order-1")

    worker.finish()

    first, second = site.recorder.seen
    assert (first.topic, first.id, first.value(), first.offset) == ("orders.1", "order-1", {"a": "ü"}, 1)
    assert (first.namespace, first.consumer, first.key, first.deferred) == ("notifications", "mail", "", False)
    assert first.identity == second.identity == f"mail:notifications:{receipt.epoch}-1"
    assert (first.attempt, second.attempt) == (1, 2)


def test_parts_are_done_and_tried_again_by_themselves(site: Site) -> None:
    """The trouble of one recipient does not touch the others. Without parts: ignored; one part: no detour; doubles count once."""
    site.recorder.parts = staticmethod(lambda delivery: delivery.value())
    trouble = {("b", 1): Retry("later"), ("c", 1): Reject("unknown")}
    site.recorder.script = staticmethod(
        lambda delivery: fail(error) if (error := trouble.get((delivery.key, delivery.attempt))) else None
    )
    worker = site.make()
    site.publisher.publish_many([("a", ["a", "b", "c", "a"]), ("a", []), ("a", ["d"])])

    worker.finish()

    site.check_at_rest(worker, 3)
    found = [(delivery.offset, delivery.key, delivery.attempt) for delivery in site.recorder.seen]
    assert sorted(found) == [(1, "a", 1), (1, "b", 1), (1, "b", 2), (1, "c", 1), (3, "d", 1)]
    assert [delivery.key for delivery in site.recorder.seen if delivery.admitted] == ["b"]
    assert len({delivery.identity for delivery in site.recorder.seen}) == 4
    assert [(letter.task.key, letter.reason) for letter in site.letters.page()] == [("c", "unknown")]


def test_keys_that_failed_at_first_are_asked_again(site: Site) -> None:
    """The event waits whole, and is split, or given its one key, when they are known."""
    tries = iter([Retry("no address yet")])

    def parts(delivery: Delivery) -> Sequence[str]:
        if delivery.offset == 1 and (error := next(tries, None)):
            raise error
        return ["a"]

    site.recorder.parts = staticmethod(parts)
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("later")) if len(site.recorder.seen) == 1 else None)
    worker = site.make()
    site.publisher.publish("a", 1)

    worker.finish()

    site.check_at_rest(worker, 1)
    assert [(delivery.key, delivery.admitted) for delivery in site.recorder.seen] == [("a", False), ("a", True)]


def test_an_event_of_too_many_parts_is_rejected(site: Site) -> None:
    """One event cannot fill Redis."""
    site.recorder.parts = staticmethod(lambda delivery: [str(number) for number in range(1001)])
    worker = site.make()
    site.publisher.publish("a", 1)

    worker.work()

    (letter,) = site.letters.page()
    assert (letter.why, letter.reason) == ("rejected", "1001 keys, at most 1000 are allowed")
    assert site.recorder.seen == []


def test_a_batch_consumer_gets_pages(site: Site) -> None:
    """All of a backlog, in order, many at a time."""
    site.recorder.batch = True
    worker = site.make()
    site.publisher.publish_many([("a", number) for number in range(250)])

    worker.work()

    site.check_at_rest(worker, 250)
    assert [delivery.value() for page in site.recorder.pages for delivery in page] == list(range(250))
    assert [len(page) for page in site.recorder.pages] == [PAGE_TASKS] * (250 // PAGE_TASKS)


def test_a_backlog_is_read_no_faster_than_allowed(site: Site) -> None:
    """At two pages a second, each page waits half a second after the one before, but for the slack of the first."""
    site.clock.stand_still()
    worker = site.make(max_per_s=2 * PAGE_TASKS)
    site.publisher.publish_many([("a", number) for number in range(3 * PAGE_TASKS)])

    worker.work(waits=2)

    assert worker.stopping.waits_s == pytest.approx([0.49, 0.5, 0.5])
    assert len(site.recorder.seen) == 3 * PAGE_TASKS


def test_one_bad_event_of_a_page_does_not_take_the_others_along(site: Site) -> None:
    """After a fault each event of the page is handed over by itself, so that only the bad ones go to the dead letters."""
    site.recorder.batch = True

    def script(delivery: Delivery) -> None:
        if delivery.value() == 3:
            raise Reject("not this one")
        if delivery.value() == 5:
            raise KeyError("x")

    site.recorder.script = staticmethod(script)
    worker = site.make()
    site.publisher.publish_many([("a", number) for number in range(10)])

    worker.finish()

    site.check_at_rest(worker, 10)
    assert {(letter.task.offset, letter.why) for letter in site.letters.page()} == {(4, "rejected"), (6, "poison")}
    done = {delivery.value() for page in site.recorder.pages if len(page) == 1 for delivery in page} - {3, 5}
    assert done == {0, 1, 2, 4, 6, 7, 8, 9}


def test_a_page_that_is_to_be_tried_again_comes_one_by_one(site: Site) -> None:
    """A receiver that would not take them at once may take one at a time."""
    site.recorder.batch = True
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("full")) if delivery.attempt == 1 else None)
    worker = site.make()
    site.publisher.publish_many([("a", number) for number in range(3)])

    worker.finish()

    site.check_at_rest(worker, 3)
    assert sorted(page[0].value() for page in site.recorder.pages[1:]) == [0, 1, 2]
    assert {len(page) for page in site.recorder.pages[1:]} == {1}


# Later ---------------------------------------------------------------------------------------------------------------------


def test_a_deferred_task_comes_back_when_it_is_due(site: Site) -> None:
    """Not before, and from Redis alone, as the log need not have the event any more. It says that it was deferred."""
    site.recorder.script = staticmethod(lambda delivery: None if delivery.deferred else Defer(time.time() + 3600))
    worker = site.make()
    site.publisher.publish("a", 1)
    worker.work()
    call(site.redis, "XTRIM", LOG, "MAXLEN", 0)
    worker.work()
    assert len(site.recorder.seen) == 1

    worker.finish()

    site.check_at_rest(worker, 1)
    assert [(delivery.attempt, delivery.deferred) for delivery in site.recorder.seen] == [(1, False), (2, True)]


def test_a_worker_waits_for_an_event_until_the_next_task_is_due(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer than its longest wait, after which it looks for tasks of other instances."""
    monkeypatch.setattr(workers, "IDLE_S", 7200.0)
    site.recorder.script = staticmethod(lambda delivery: Defer(site.clock.time() + 3600))
    worker = site.make()
    worker.work()
    site.publisher.publish("a", 1)
    worker.work()

    without, with_task = worker.stopping.waits_s
    assert without == 7200
    assert 3000 < with_task <= 3600.001  # Redis has whole milliseconds


def test_a_deferred_task_is_not_due_before_its_time(site: Site) -> None:
    """Not by the part of a millisecond that Redis' clock does not have."""
    until_s = int(time.time()) + 3600.0004
    site.recorder.script = staticmethod(lambda delivery: Defer(until_s))
    worker = site.make()
    site.publisher.publish("a", 1)

    began_s = time.time()
    worker.work()
    took_ms = (time.time() - began_s) * 1000

    assert 0 <= site.due_ms() - until_s * 1000 <= took_ms + 2


def test_tasks_that_are_deferred_together_come_in_one_call(site: Site) -> None:
    """Oldest first, when the first of them is due; all of them may be tried again, and deferred again."""
    answers: list[Any] = [Retry("not now"), Defer(0.0, together=True), None]

    def digest(key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    site.recorder.parts = staticmethod(lambda delivery: ["ada"])
    site.recorder.digest = staticmethod(digest)
    due_s = time.time() + 3600
    site.recorder.script = staticmethod(lambda delivery: Defer(due_s + delivery.value() * 1000, together=True))
    worker = site.make()
    site.publisher.publish_many([("a", number) for number in range(3)])
    worker.work()
    assert (site.recorder.together, worker.waiting()) == ([], 3)
    first, *_ = call(site.redis, "ZRANGE", f"{GROUP}:held", 0, -1)
    call(site.redis, "ZADD", f"{GROUP}:held", "XX", 1, first)
    worker.work()
    assert [(key, [delivery.value() for delivery in found]) for key, found in site.recorder.together] == [("ada", [0, 1, 2])]

    worker.finish()

    site.check_at_rest(worker, 3)
    assert [(key, [delivery.value() for delivery in found]) for key, found in site.recorder.together] == [("ada", [0, 1, 2])] * 3
    assert [{delivery.attempt for delivery in found} for _, found in site.recorder.together] == [{2}, {3}, {4}]


@pytest.mark.parametrize("error", [Retry("later"), BusUnavailable("gone")])
def test_a_task_is_tried_again_until_it_works(site: Site, error: Exception) -> None:
    """An event after it does not wait for that. An error of Redis is no fault of the code, however often."""
    before = metric("retried_total")
    site.recorder.script = staticmethod(lambda delivery: fail(error) if delivery.value() == 1 and delivery.attempt < 8 else None)
    worker = site.make()
    site.publisher.publish_many([("a", 1), ("a", 2)])

    worker.finish()

    site.check_at_rest(worker, 2)
    assert site.values() == [1, 2, *[1] * 7]
    assert metric("retried_total") - before == 7


def test_a_failure_is_logged_with_its_reason_once_a_minute(site: Site, logged: list[Any]) -> None:
    """Work is tried again for a day, and without a line nobody would know why nothing arrives."""
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("the receiver is at a private address")))
    worker = site.make()
    site.publisher.publish_many([("a", 1), ("a", 2)])

    worker.work()

    lines = [(line["log_level"], line["consumer"], line["reason"]) for line in logged if "reason" in line]
    assert lines == [("warning", "mail", "the receiver is at a private address")]


def test_a_retry_may_ask_for_a_least_wait(site: Site) -> None:
    """Longer than the back-off's own."""
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("in two hours", after_s=7200)))
    worker = site.make()
    before_ms = int(time.time() * 1000)  # whole ones, as Redis' clock has them
    site.publisher.publish("a", 1)

    worker.work()

    assert before_ms <= site.due_ms() - 7_200_000 <= time.time() * 1000
    assert metric("waiting") == 1


# Dead letters --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "why"), [(Retry, "gave_up"), (OutcomeUnknown, "outcome_unknown")])
def test_a_task_that_was_tried_for_too_long_is_given_up(site: Site, first: type[Retry], why: str) -> None:
    """With the last reason, at the first attempt after its time. One that may have been done is named so, however it ended."""
    site.recorder.script = staticmethod(
        lambda delivery: fail((first if delivery.attempt == 1 else Retry)(f"no {delivery.attempt}"))
    )
    site.clock.stand_still()
    worker = site.make(retry_for_s=3600)
    site.publisher.publish("a", 1)
    worker.work()
    site.clock.move(3000)
    worker.make_due()
    worker.work()
    assert site.letters.count() == 0

    site.clock.move(700)
    worker.make_due()
    worker.work()

    (letter,) = site.letters.page()
    assert (letter.why, letter.reason, letter.task.attempt) == (why, "no 3", 3)


def test_a_rejected_event_goes_to_the_dead_letters_at_once(site: Site) -> None:
    """And goes through when an operator tries it again."""
    before = metric("dead_total", why="rejected")
    site.recorder.script = staticmethod(
        lambda delivery: fail(Reject("nobody lives there")) if len(site.recorder.seen) == 1 else None
    )
    worker = site.make()
    site.publisher.publish("a", {"to": "x"})
    worker.work()

    (letter,) = site.letters.page()
    assert (letter.why, letter.reason, letter.task.data) == ("rejected", "nobody lives there", b'{"to":"x"}')
    assert metric("dead_total", why="rejected") - before == 1
    site.letters.retry_all()
    worker.work()

    site.check_at_rest(worker, 1)
    assert [delivery.attempt for delivery in site.recorder.seen] == [1, 1]
    assert site.letters.count() == 0


def test_a_fault_of_the_code_is_tried_five_times_then_set_aside(site: Site) -> None:
    """An exception, even one that ends a thread; keys or an answer that are none. The reason names its kind, not its text."""
    faults: list[Any] = [ValueError("a secret"), KeyError("x"), SystemExit(1), "an answer", "keys", None]
    site.recorder.parts = staticmethod(lambda delivery: "ann" if faults[delivery.value()] == "keys" else ("",))

    def script(delivery: Delivery) -> Any:
        fault = faults[delivery.value()]
        if isinstance(fault, BaseException):
            raise fault
        return fault

    site.recorder.script = staticmethod(script)
    worker = site.make()
    site.publisher.publish_many([("a", number) for number in range(len(faults))])

    worker.finish()

    site.check_at_rest(worker, len(faults))
    assert {(letter.task.offset, letter.why, letter.reason) for letter in site.letters.page()} == {
        (1, "poison", "ValueError in the consumer's code"),
        (2, "poison", "KeyError in the consumer's code"),
        (3, "poison", "SystemExit in the consumer's code"),
        (4, "poison", "TypeError in the consumer's code"),
        (5, "poison", "InvalidRequest in the consumer's code"),
    }
    for number, attempts in enumerate((5, 5, 5, 5, 0, 1)):  # without keys, `handle` is not called
        seen = [delivery.attempt for delivery in site.recorder.seen if delivery.value() == number]
        assert seen == list(range(1, attempts + 1))


def test_an_answer_to_a_page_is_a_fault_of_the_code(site: Site, make_worker: MakeWorker) -> None:
    """A Defer of it would be forgotten, and a coroutine never run, as if all of the page were done."""
    answering = type("Answering", (site.recorder,), {"batch": True, "handle_many": lambda consumer, deliveries: Defer(0)})
    worker = make_worker(answering)
    site.publisher.publish_many([("a", 1), ("a", 2)])

    worker.finish()

    assert [letter.why for letter in site.letters.page()] == ["poison", "poison"]


def hand_out(site: Site, thrice: str, twice: str) -> None:
    """Publish two events, which processes had that ended without an answer."""
    site.publisher.publish_many([("a", thrice), ("a", twice)])
    epoch = call(site.redis, "HGET", GROUP, "epoch").decode()
    call(site.redis, "EVAL", THRICE, 1, LOG, group_in_log("mail", epoch))
    call(site.redis, "HSET", GROUP, "position", 2)


def test_no_other_worker_takes_work_beside_a_task_that_one_more_lost_process_would_set_aside(site: Site) -> None:
    """It would share the blame, and become a dead letter with it. Other tasks hold no worker up."""
    worker = site.make()
    hand_out(site, "deadly", "last chance")
    held: list[tuple[str, bool]] = []
    site.recorder.script = staticmethod(lambda delivery: held.append((delivery.value(), worker.taking.locked())))

    worker.work()
    site.publisher.publish("a", "usual")
    worker.work()

    assert held == [("last chance", True), ("usual", False)]
    assert not worker.taking.locked()


def test_a_worker_in_a_pause_leaves_the_work_to_the_others_while_they_succeed(site: Site) -> None:
    """It returns the rest of its page, and takes no further one, until some seconds after their last success.

    Otherwise the workers that a server refuses for its limit of connections would defer what the others could send.
    """

    def script(delivery: Delivery) -> None:
        if delivery.value() > 1:
            site.recorder.pausing_s = 3600.0
            raise Retry("421 too many connections", 3600.0)

    site.recorder.script = staticmethod(script)
    worker = site.make()
    site.publisher.publish_many([("a", 1), ("a", 2), ("a", 3), ("a", 4)])
    worker.work()
    worker.work()
    assert (site.values(), worker.waiting()) == ([1, 2], 1)

    site.clock.move(workers.RECENT_S)
    worker.work()
    assert (site.values(), worker.waiting()) == ([1, 2, 3, 4], 3)


def test_an_attempt_of_unknown_outcome_is_repeated_twice_and_no_sooner_than_the_last_wait(site: Site) -> None:
    """Then it may have been done, and is repeated no further. The count is kept in Redis, as each attempt has another worker."""
    outcomes = [OutcomeUnknown("no answer"), Retry("451"), OutcomeUnknown("no answer"), OutcomeUnknown("reset")]
    site.recorder.script = staticmethod(lambda delivery: fail(outcomes[delivery.attempt - 1]))
    before = metric("dead_total", why="outcome_unknown")
    for attempt in range(1, 5):
        worker, asked_ms = site.make(start="oldest", retry_first_s=60, retry_last_s=300), int(time.time() * 1000)
        if attempt == 1:
            site.publisher.publish("a", 1)
        worker.work()
        assert [delivery.attempt for delivery in site.recorder.seen] == [*range(1, attempt + 1)]
        assert [delivery.unknown for delivery in site.recorder.seen] == [0, 1, 1, 2][:attempt]
        if isinstance(outcomes[attempt - 1], OutcomeUnknown) and attempt < 4:
            assert site.due_ms() - asked_ms >= 300_000
        worker.make_due()

    (letter,) = site.letters.page()
    assert (letter.why, letter.reason, letter.task.attempt) == ("outcome_unknown", "reset", 4)
    assert metric("dead_total", why="outcome_unknown") - before == 1
    site.letters.retry_all()
    worker.work()
    assert [delivery.attempt for delivery in site.recorder.seen][4:] == [1]


def test_a_process_that_ends_under_its_work_counts_as_an_attempt_of_unknown_outcome(site: Site) -> None:
    """Lost answers and lost processes together: three copies at most. After three lost processes this one does not see it."""
    site.recorder.script = staticmethod(lambda delivery: fail(OutcomeUnknown("no answer")))
    worker = site.make()
    hand_out(site, "killed thrice", "killed twice")

    worker.work()

    site.check_at_rest(worker, 2)
    assert [(delivery.value(), delivery.attempt) for delivery in site.recorder.seen] == [("killed twice", 3)]
    assert {(letter.task.data, letter.why) for letter in site.letters.page()} == {
        (b'"killed thrice"', "poison"),
        (b'"killed twice"', "outcome_unknown"),
    }


def test_an_entry_that_is_no_event_is_set_aside(site: Site) -> None:
    """And the consumer goes on after it."""
    worker = site.make(patterns=("a",))
    site.publisher.publish("a", 1)
    call(site.redis, "XADD", LOG, "2-0", "topic", "a", "id", "x", "time", "1", "data", "{not json")
    call(site.redis, "XADD", LOG, "3-0", "topic", "b", "id", "x", "time", "1", "data", "{not json")
    call(site.redis, "HSET", "hg:{notifications}:head", "offset", 3)
    site.publisher.publish("a", 4)

    worker.work()

    site.check_at_rest(worker, 4)
    (letter,) = site.letters.page()
    assert (letter.why, letter.task.offset, letter.task.data) == ("unreadable", 2, b"{not json")
    assert site.values() == [1, 4]


# Bounds, sharing, slowness -------------------------------------------------------------------------------------------------


def test_a_full_consumer_takes_nothing_new_until_there_is_room(site: Site) -> None:
    """The log keeps the surplus; nothing is lost when the trouble has passed."""
    trouble = [Retry("down")]
    site.recorder.script = staticmethod(lambda delivery: fail(trouble[0]) if trouble else None)
    worker = site.make(max_waiting=5)
    site.publisher.publish_many([("a", number) for number in range(500)])

    worker.work()

    assert (metric("full"), worker.waiting(), len(site.recorder.seen)) == (1, 5, 5)
    trouble.clear()
    worker.finish()

    site.check_at_rest(worker, 500)
    assert {delivery.value() for delivery in site.recorder.seen[5:]} == set(range(500))
    assert metric("full") == 0


def test_an_event_that_fills_it_keeps_the_rest_of_its_page_in_the_log(site: Site) -> None:
    """A page of events with many parts each goes over the bound by one event's parts only."""
    waiting: list[int] = []
    site.recorder.parts = staticmethod(lambda delivery: [str(number) for number in range(50)])
    worker = site.make(max_waiting=60)
    site.recorder.script = staticmethod(lambda delivery: waiting.append(worker.waiting()))
    site.publisher.publish_many([("a", number) for number in range(5)])

    worker.finish()

    site.check_at_rest(worker, 5)
    assert 60 <= max(waiting) < 60 + 50
    assert len({delivery.identity for delivery in site.recorder.seen}) == len(site.recorder.seen) == 5 * 50


@pytest.mark.parametrize("is_moved", [True, False])
@pytest.mark.parametrize("answer", [None, Retry("later")])
def test_slow_work_is_not_repeated_where_the_answer_to_its_move_is_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_moved: bool, answer: Exception | None
) -> None:
    """It may be an entry of the log or a task, and its end is the end of both."""
    site.clock.stand_still()
    slow, other = site.make(lease_s=120), site.make(lease_s=120)
    settle = other.store.settle

    def lost(answers: Iterable[Answer]) -> None:
        if is_moved:
            settle(answers)
        raise BusUnavailable("no answer")

    def script(delivery: Delivery) -> None:
        site.clock.move(40)
        if delivery.attempt == 1:
            with pytest.raises(BusUnavailable):
                slow.worker.keep(other.store)
            if answer is not None:
                raise answer

    monkeypatch.setattr(other.store, "settle", lost)
    site.recorder.script = staticmethod(script)
    site.publisher.publish("a", 1)

    slow.finish()

    site.check_at_rest(slow, 1)
    assert [delivery.attempt for delivery in site.recorder.seen] == ([1] if answer is None else [1, 2])


def test_a_worker_that_stood_still_for_a_lease_leaves_the_rest_of_its_page_to_others(site: Site) -> None:
    """Another instance has done it since, so only the work in hand may be done twice."""
    site.clock.stand_still()
    stopped, other = site.make(lease_s=120), site.make(lease_s=120)

    def script(delivery: Delivery) -> None:
        if delivery.value() == 1:
            site.clock.move(120)
            call(site.redis, "EVAL", ABANDON, 1, LOG, group)
            other.work()
            stopped.worker.keep(other.store)

    site.recorder.script = staticmethod(script)
    receipt = site.publisher.publish("a", 1)
    site.publisher.publish_many([("a", 2), ("a", 3)])
    group = group_in_log("mail", receipt.epoch)

    stopped.work()

    assert site.values() == [1, 2, 3]
    site.check_at_rest(stopped, 3)


@pytest.mark.parametrize("is_task", [False, True], ids=["entry", "task"])
@pytest.mark.parametrize("others", [None, Retry("later")], ids=["done", "retried"])
def test_an_answer_of_a_worker_that_stood_still_does_not_take_the_place_of_a_later_one(
    site: Site, is_task: bool, others: Exception | None
) -> None:
    """Work that another instance has done stays done, and no attempt of the other is forgotten."""
    stopped, other = site.make(lease_s=120), site.make(lease_s=120)
    answers = [*[Retry("later")] * is_task, OutcomeUnknown("no answer"), others, None]

    def script(delivery: Delivery) -> None:
        answer = answers.pop(0)
        if isinstance(answer, OutcomeUnknown):
            call(site.redis, "EVAL", ABANDON_FIRST, 1, LOG, group)
            other.make_due()
            other.work()
        if answer is not None:
            raise answer

    site.recorder.script = staticmethod(script)
    group = group_in_log("mail", site.publisher.publish("a", 1).epoch)

    stopped.finish()

    site.check_at_rest(stopped, 1)
    attempts = [delivery.attempt for delivery in site.recorder.seen]
    assert attempts == list(range(1, 3 + is_task + (others is not None)))


def test_a_library_that_does_not_ask_who_holds_the_work_takes_answers(site: Site) -> None:
    """A process of an older version has loaded it, and this user may not replace it."""
    worker = site.make()
    older = GROUP_LIBRARY.source.replace("held = { 5, is_held },", "").replace("and #args ~= 6", "")
    call(site.redis, "FUNCTION", "LOAD", "REPLACE", older)
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("later")) if delivery.attempt == 1 else None)
    site.publisher.publish("a", 1)

    worker.finish()

    site.check_at_rest(worker, 1)
    assert [delivery.attempt for delivery in site.recorder.seen] == [1, 2]


# Trouble with the log ------------------------------------------------------------------------------------------------------


def test_a_new_log_is_followed(site: Site) -> None:
    """From its first event."""
    worker = site.make()
    site.publisher.publish_many([("a", 1), ("a", 2)])
    worker.work()
    lost = metric("logs_lost_total")
    call(site.redis, "DEL", "hg:{notifications}:head")
    site.publisher.publish_many([("a", 3), ("a", 4), ("a", 5)])

    worker.work()

    assert site.values() == [1, 2, 3, 4, 5]
    assert metric("logs_lost_total") - lost == 1


def test_an_emptied_redis_is_filled_again(site: Site) -> None:
    """Without functions, group and log, every later publish arrives. A pause comes first, as Redis may lose its keys again."""
    worker = site.make()
    site.publisher.publish("a", 1)
    worker.work()
    call(site.redis, "FLUSHALL")
    call(site.redis, "FUNCTION", "FLUSH")
    site.publisher.publish_many([("a", number) for number in range(2, 5)])

    worker.work()
    assert site.values() == [1]
    worker.work()

    assert site.values() == [1, 2, 3, 4]


def test_events_that_were_trimmed_before_they_came_are_counted(site: Site) -> None:
    """Never silently."""
    before = metric("missed_total")
    EventLog("notifications", site.redis, 65536).configure(10, 86400)
    worker = site.make()
    site.publisher.publish_many([("a", number) for number in range(50)])

    worker.work()

    site.check_at_rest(worker, 50)
    assert site.values() == list(range(40, 50))
    assert metric("missed_total") - before == 40


# Beginning and end ---------------------------------------------------------------------------------------------------------


def test_stopping_finishes_the_task_in_work_and_gives_the_rest_back(site: Site) -> None:
    """The next instance has the rest at once, each event once."""
    first, second = site.make(), site.make()

    def script(delivery: Delivery) -> None:
        if delivery.value() == 3:
            first.stopping.set()

    site.recorder.script = staticmethod(script)
    site.publisher.publish_many([("a", number) for number in range(50)])
    first.work()
    assert site.values() == [0, 1, 2, 3]

    second.work()

    site.check_at_rest(second, 50)
    assert site.values() == list(range(50))
    assert {delivery.attempt for delivery in site.recorder.seen} == {1}
    assert site.recorder.calls == ["start", "close"] * 2


def test_a_consumer_that_cannot_start_is_started_again(site: Site) -> None:
    """Nothing is taken in that time, so nothing is lost by it."""
    faults = [OSError("no mail server"), OSError("still none")]

    def start(self: Recorder) -> None:
        self.calls.append("start")
        if faults:
            raise faults.pop()

    site.recorder.start = start  # type: ignore[method-assign]
    worker = site.make()
    site.publisher.publish("a", 1)

    worker.work()
    assert (worker.worker.trouble, site.recorder.seen, count_leased(site.redis, "mail")) == ("OSError", [], 0)
    worker.work(waits=1)

    site.check_at_rest(worker, 1)
    assert site.recorder.calls == ["start", "close", "start", "close", "start", "close"]
    assert (worker.worker.trouble, site.values()) == (None, [1])


def test_ticks_come_with_and_without_events(site: Site) -> None:
    """At their time, also between two events of a page; a tick that fails is reported, and the next one comes."""
    site.clock.stand_still()
    site.recorder.tick_s = 1.0
    ticks_s: list[float] = []
    began_s = site.clock.monotonic()

    def tick(self: Recorder) -> None:
        ticks_s.append(site.clock.monotonic() - began_s)
        raise RuntimeError

    site.recorder.tick = tick  # type: ignore[method-assign]
    worker = site.make()
    worker.work(waits=4)  # the longest wait is half a second
    assert ticks_s == pytest.approx([0, 1, 2])
    site.recorder.script = staticmethod(lambda delivery: site.clock.move(0.75))
    site.publisher.publish_many([("a", number) for number in range(4)])

    worker.work()

    assert site.values() == [0, 1, 2, 3]
    assert ticks_s[3:] == pytest.approx([3.25, 4.75])
