"""Routing on a real Redis: events that a user has read, seen, muted or refused are withdrawn, whatever came before."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from headgate.consumers import Delivery, Retry
from headgate.consumers.notification import OUTCOMES, state_of
from headgate.consumers.work.state import MAX_OUTCOMES, State, read_outcomes
from headgate.consumers.work.store import Store
from headgate.errors import BusUnavailable, InvalidRequest
from headgate.redis.client import Client, call
from headgate.redis.inbox import MAX_ITEMS, UserFacts, mark_seen, read_user_facts
from headgate.redis.keys import group_in_log, log_key
from headgate.services.inbox import Inbox
from tests.support.recording_consumer import fail
from tests.support.stepped_worker import Site

NAMESPACE = "notifications"
ITEMS = ("users.*.inbox.*.#",)
_numbers = count()
# Three events after the first one, which a process has taken.
LEASED_LONG_AGO = """
redis.call('XREADGROUP', 'GROUP', ARGV[1], 'headgate', 'STREAMS', KEYS[1], '>')
redis.call('XCLAIM', KEYS[1], ARGV[1], 'headgate', 0, '2-0', '3-0', '4-0', 'RETRYCOUNT', 1, 'IDLE', 10000000, 'JUSTID')
redis.call('HSET', 'hg:{notifications}:group:mail', 'position', 4)
"""


@pytest.fixture(autouse=True)
def logged() -> Iterator[None]:
    """Lines of the log as fields, because writing out tracebacks for people takes longer than the tests."""
    with structlog.testing.capture_logs():
        yield


def even(user: str, event: Delivery, channel: str) -> bool:
    """Want the events with even data."""
    return bool(event.value() % 2 == 0)


def broken(user: str, event: Delivery, channel: str) -> bool:
    """Have a bug."""
    raise KeyError(user)


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"headgate_consumer_{name}", {"consumer": "mail", **labels}) or 0.0


def test_a_shown_event_of_a_user_is_withdrawn_and_counted(site: Site) -> None:
    """By every type of consumer; `seen_user` names the user of a topic for several."""
    before = metric("withdrawn_total", why="seen")
    worker = site.make(unless_seen_s=3600, seen_user="{{ event.data.user }}")
    for name in ("shown", "missed"):
        site.publisher.publish("orders.failed", {"user": "ann", "name": name}, id=name)
    site.publisher.publish("orders.failed", {"user": "", "name": "of nobody"})
    worker.work()
    at_once = [value["name"] for value in site.values()]

    mark_seen(site.redis, NAMESPACE, "ann", ["shown"])
    worker.finish()

    assert at_once == ["of nobody"]
    assert [value["name"] for value in site.values()] == ["of nobody", "missed"]
    assert metric("withdrawn_total", why="seen") - before == 1


def test_an_item_that_the_inbox_has_dropped_unread_is_sent(site: Site) -> None:
    """Its user may never have seen it, and the message is then the only way to learn of it."""
    worker = site.make(("users.ann.inbox.first.#",), unless_read_s=3600)
    Inbox(site.publisher).send("ann", "first", "dropped", "a")
    worker.work()
    site.publisher.publish_many([("users.ann.inbox.next", number) for number in range(MAX_ITEMS)])

    worker.finish()

    assert site.values() == ["dropped"]


def test_a_consumer_without_a_channel_asks_nobody_and_obeys_no_mute(site: Site) -> None:
    """A partner's webhook has every event, whatever its users mute in their pages."""
    Inbox(site.publisher).mute("ann", "#")
    worker = site.make()
    site.publisher.publish("orders.failed", 1, user="ann")

    worker.finish()

    assert site.values()[-1] == 1


def test_beyond_the_rate_notifications_wait_for_each_user_alone(site: Site) -> None:
    """A repeated one was within it; the rest goes when there is room."""
    failures = iter([Retry("busy")])
    site.recorder.script = staticmethod(lambda delivery: fail(error) if (error := next(failures, None)) else None)
    worker = site.make(rate=1, rate_period_s=3600)
    site.publisher.publish_many([("users.ann.a", 1), ("users.ann.a", 2), ("users.bob.a", 3)])
    worker.work()
    worker.make_due()
    worker.work()
    assert site.values() == [1, 3, 1]

    for key in call(site.redis, "KEYS", "hg:{notifications}:group:mail:state:rate:*"):
        call(site.redis, "DEL", key)
    worker.finish()

    assert site.values() == [1, 3, 1, 2]


def test_the_application_is_asked_once_for_all_parts_and_attempts(site: Site) -> None:
    """The user's acts in between count for each of them."""
    site.recorder.parts = staticmethod(lambda delivery: ("one", "other"))
    site.recorder.script = staticmethod(lambda delivery: fail(Retry("busy")) if delivery.attempt == 2 else None)
    worker = site.make(ITEMS, unless_read_s=60, channel="push", wants=even)
    inbox = Inbox(site.publisher)
    for number in (1, 2, 4):
        inbox.send("ann", "news", number, f"{number}")
    worker.work()
    worker.make_due()
    worker.work()
    inbox.mark_read("ann", ["news/2"])

    worker.finish()

    assert sorted(site.values()) == [2, 2, 4, 4, 4, 4]


def test_work_that_failed_before_it_was_sent_counts_for_the_rate(site: Site) -> None:
    """An application without its database for a moment does not send everything at once afterwards."""

    def parts(delivery: Delivery) -> Sequence[str]:
        if delivery.attempt == 1:
            raise Retry("no addresses")
        return ("",)

    site.recorder.parts = staticmethod(parts)
    worker = site.make(rate=1, rate_period_s=3600)
    site.publisher.publish_many([("users.ann.a", number) for number in range(3)])
    worker.work()
    worker.make_due()

    worker.work()

    assert (site.values(), worker.waiting()) == ([0], 2)


def test_work_that_a_lost_process_had_counts_for_the_rate(site: Site) -> None:
    """A process that stood still leaves a page that nobody has begun, and it does not go out at once."""
    worker = site.make(("users.#",), rate=1, rate_period_s=3600)
    epoch = site.publisher.publish("first", 0).epoch
    worker.work()
    site.publisher.publish_many([("users.ann.a", number) for number in range(3)])
    call(site.redis, "EVAL", LEASED_LONG_AGO, 1, log_key(NAMESPACE), group_in_log("mail", epoch))

    worker.work()

    assert (site.values(), worker.waiting()) == ([0], 2)


def test_the_application_is_asked_although_redis_failed_before(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt without the facts about the user does not ask the application, so the next one does."""
    worker = site.make(("users.*.a",), channel="push", wants=even)
    errors, user_facts = iter([BusUnavailable("gone")] * 2), worker.state.user_facts

    def facts(user: str, topic: str, event_id: str) -> UserFacts:
        for error in errors:
            raise error
        return user_facts(user, topic, event_id)

    monkeypatch.setattr(worker.state, "user_facts", facts)
    site.publisher.publish_many([("users.ann.a", 1), ("users.ann.a", 2)])

    worker.finish()

    assert site.values() == [2]


def test_a_preference_that_cannot_be_found_out_sends_and_is_counted(site: Site) -> None:
    """A muted event is not sent all the same, because the application is not asked about it."""
    before = metric("wants_faults_total", why="raised")
    worker = site.make(("users.*.a",), channel="push", wants=broken)
    Inbox(site.publisher).mute("bob", "a", ["push"])
    site.publisher.publish_many([("users.ann.a", 1), ("users.bob.a", 2)])

    worker.finish()

    assert site.values() == [1]
    assert metric("wants_faults_total", why="raised") - before == 1


def test_what_was_done_for_a_user_is_kept_for_a_day_and_bounded(redis_client: Client, redis_url: str) -> None:
    """The oldest gives way."""
    store = Store(redis_client, redis_url, NAMESPACE, "mail", 65536)
    state = State(store)
    for number in range(MAX_OUTCOMES + 1):
        state.record("ann", f"{number}", "mailed")

    [key] = call(redis_client, "KEYS", "hg:{notifications}:group:mail:state:outcome:*")
    assert call(redis_client, "ZCARD", key) == MAX_OUTCOMES
    assert 0 < call(redis_client, "TTL", key) <= 86400
    assert read_outcomes(redis_client, NAMESPACE, "mail", "ann", f"{MAX_OUTCOMES}") == ["mailed"]
    assert read_outcomes(redis_client, NAMESPACE, "mail", "bob", f"{MAX_OUTCOMES}") == []


class User:
    """The acts of one user, in the plainest form."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.sent: list[int] = []
        self.read: set[int] = set()
        self.seen: set[int] = set()
        self.muted = False
        self.outcomes: dict[int, str] = {}

    def come_due(self) -> None:
        for item in self.waiting:
            if item in self.read:
                self.outcomes[item] = "read"
            elif item in self.seen:
                self.outcomes[item] = "seen"
            elif self.muted:
                self.outcomes[item] = "muted"
            elif item % 2:
                self.outcomes[item] = "unwanted"
            else:
                self.outcomes[item] = "pushed"
                self.sent.append(item)
        self.waiting = []

    def state(self, item: int) -> str:
        if item in self.read:
            return "read"
        if item in self.seen:
            return "shown"
        outcome = self.outcomes.get(item, "sent")
        return outcome if outcome in ("sent", "pushed") else "withdrawn"


items = st.integers(0, 7)
steps = st.one_of(
    st.tuples(st.just("send"), items),
    st.tuples(st.sampled_from(["read", "archive", "unread", "seen"]), items),
    st.tuples(st.sampled_from(["mute", "unmute", "due", "due"]), st.just(0)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(steps, max_size=25))
def test_each_item_is_pushed_or_withdrawn_as_the_oracle_says(site: Site, history: list[tuple[str, int]]) -> None:
    """And its state is that of the facts."""
    user, name, oracle, inbox = f"user-{next(_numbers)}", f"push-{next(_numbers)}", User(), Inbox(site.publisher)
    site.recorder.seen.clear()
    patterns = (f"users.{user}.inbox.*.#",)
    worker = site.make(patterns, name, unless_seen_s=60, channel="push", wants=even)
    known: set[int] = set()
    for step, item in [*history, ("due", 0)]:
        if step == "send" and item not in known:
            inbox.send(user, "news", item, f"{user}-{item}")
            known.add(item)
            oracle.waiting.append(item)
        elif step in ("read", "archive", "unread"):
            change = {"read": inbox.mark_read, "archive": inbox.archive, "unread": inbox.mark_unread}[step]
            with suppress(InvalidRequest):
                change(user, [f"news/{user}-{item}"])
                (oracle.read.discard if step == "unread" else oracle.read.add)(item)
        elif step == "seen":
            mark_seen(site.redis, NAMESPACE, user, [f"{user}-{item}"])
            oracle.seen.add(item)
        elif step == "mute":
            inbox.mute(user, "news.#", ["push"])
            oracle.muted = True
        elif step == "unmute":
            inbox.unmute(user, "news.#")
            oracle.muted = False
        elif step == "due":
            worker.finish()
            oracle.come_due()
            assert site.values() == oracle.sent
    for item in known:
        facts = read_user_facts(site.redis, NAMESPACE, user, f"users.{user}.inbox.news", f"{user}-{item}")
        outcomes = read_outcomes(site.redis, NAMESPACE, name, user, f"{user}-{item}")
        assert outcomes == [oracle.outcomes[item]]
        found = [OUTCOMES[outcome] for outcome in outcomes]
        found += ["shown"] * facts.is_shown + ["read"] * facts.is_read
        assert state_of(found) == oracle.state(item)
