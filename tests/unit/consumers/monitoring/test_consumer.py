"""The monitoring consumer: its options, its counts and their places, and how it judges, with a state in memory and its clock."""

import itertools
import json
import socket
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headgate.consumers.base import Context, Delivery
from headgate.consumers.monitoring.consumer import KEEP_S, MAX_ALERTS, Monitoring, MonitoringOptions
from headgate.errors import BusRefused, BusUnavailable
from headgate.services.publisher import Publisher, Receipt
from headgate.settings.options import read_options
from tests.support.consumers_state import MemoryState

RATE = '[[alerts]]\nname = "failing"\npattern = "orders.*.failed"\nabove = 2\nwindow_s = 60\n'
ABSENCE = '[[alerts]]\nname = "silent"\npattern = "beats.#"\nkind = "absence"\nwindow_s = 60\n'
LOOP = "alerts: their own events would set them off for ever: failing → failing"
names = (f"watch{number}" for number in itertools.count())


class Crash(BaseException):
    """The process ends here."""


class RecordingPublisher:
    """Publishes into a list, an id once; `fault` is raised instead, `crash` after it was published."""

    def __init__(self) -> None:
        self.published: dict[str, tuple[str, Any, str | None]] = {}
        self.fault: Exception | None = None
        self.on_publish: Callable[[str], None] = lambda when: None

    def publish(
        self, topic: str, data: Any, id: str | None = None, namespace: str | None = None, *, user: str | None = None
    ) -> Receipt:
        assert id is not None
        if self.fault is not None:
            raise self.fault
        self.on_publish("before")
        duplicate = id in self.published
        self.published.setdefault(id, (topic, data, user))
        self.on_publish("after")
        return Receipt("0" * 16, len(self.published), duplicate, id)

    @property
    def told(self) -> list[str]:
        return [data["state"] for _, data, _ in self.published.values()]


class Site:
    """One consumer's state and publisher, and as many instances of it as the test starts."""

    def __init__(self, toml: str) -> None:
        self.options = read(toml)
        self.state, self.publisher = MemoryState(), RecordingPublisher()
        self.name = next(names)  # Prometheus' counters are the process's: a separate name keeps them apart
        self.offsets = itertools.count(1)

    def start(self) -> Monitoring:
        monitoring = Monitoring(self.options, Context(self.name, "notifications", self.state, cast(Publisher, self.publisher)))
        monitoring.start()
        return monitoring

    def event(self, topic: str, data: Any = None, before_s: float = 0) -> Delivery:
        time_ms = int((self.state.now_s - before_s) * 1000)
        return Delivery(topic, json.dumps(data).encode(), "id", time_ms, "e", next(self.offsets), "notifications", self.name)

    def samples(self) -> dict[str, float]:
        """Return Prometheus' samples of this consumer: metric and name or code → value."""
        return {
            f"{sample.name}:{sample.labels.get('name') or sample.labels['code']}": sample.value
            for family in text_string_to_metric_families(generate_latest().decode())
            for sample in family.samples
            if sample.labels.get("consumer") == self.name and not sample.name.endswith("_created")
        }


def read(toml: str) -> MonitoringOptions:
    options, faults = read_options(MonitoringOptions, tomllib.loads(toml))
    assert options is not None, faults
    return options


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A StatsD server's socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(30)
        yield listening


@pytest.mark.parametrize(
    ("toml", "fault"),
    [
        ('statsd = "localhost"', "statsd='localhost': expected HOST:PORT, such as 127.0.0.1:8125 or [::1]:8125"),
        ('prefix = "a..b"', "prefix='a..b': expected a name such as shop.headgate"),
        (
            '[[counters]]\nname = "Failed"\npattern = "a"',
            "counters[Failed].name='Failed': expected 1 to 64 characters of [a-z0-9_]",
        ),
        ('[[counters]]\nname = "a"', "counters[a].pattern is missing; expected a pattern such as orders.*.failed"),
        ('[[counters]]\nname = "a"\npattern = "a"\nlabels = ["user"]', "counters[a].labels is not an option"),
        ('[[gauges]]\nname = "a"\npattern = "a"\nvalue = "depth"', "gauges[a].value='depth': expected a path such as data.depth"),
        (RATE + "for_s = -1", "alerts[failing].for_s=-1: expected a whole number from 0 to 86400 seconds"),
        (RATE.replace("60", "0"), "alerts[failing].window_s=0: expected a whole number from 1 to 86400 seconds"),
        (RATE + 'kind = "silence"', "alerts[failing].kind='silence': expected rate or absence"),
        (RATE + 'topic = "a.*"', "alerts[failing].topic='a.*': expected a topic such as alerts.orders"),
        (RATE + 'user = ""', "alerts[failing].user='': expected a user's name"),
        (RATE.replace("failing", "a b"), "alerts[a b].name='a b': expected 1 to 64 characters of [A-Za-z0-9_-]"),
    ],
)
def test_an_option_that_is_wrong_is_told_with_its_place(toml: str, fault: str) -> None:
    """Rule, key, value, and the allowed values."""
    options, faults = read_options(MonitoringOptions, tomllib.loads(toml))
    assert options is None
    assert [fault.line() for fault in faults] == [fault]


@pytest.mark.parametrize(("kind", "most"), [("counters", 256), ("gauges", 256), ("alerts", MAX_ALERTS)])
def test_the_number_of_rules_has_a_limit(kind: str, most: int) -> None:
    """More are refused as a whole."""
    table = {"pattern": "a", **({"value": "data"} if kind == "gauges" else {"window_s": 9} if kind == "alerts" else {})}
    rules = [{"name": f"n{number}", **table} for number in range(most + 1)]
    assert read_options(MonitoringOptions, {kind: rules[:most]})[1] == []
    (fault,) = read_options(MonitoringOptions, {kind: rules})[1]
    assert fault.line().endswith(f"expected a list of at most {most} tables")


@pytest.mark.parametrize(
    ("toml", "patterns", "faults"),
    [
        (RATE + ABSENCE, ["#"], []),
        (
            '[[counters]]\nname = "n"\npattern = "a"\n[[gauges]]\nname = "n"\npattern = "a"\nvalue = "data"',
            ["a"],
            ["counters and gauges: the name n is used more than once"],
        ),
        (RATE + RATE.replace("orders", "jobs"), ["#"], ["alerts: the name failing is used more than once"]),
        (
            RATE + '[[counters]]\nname = "n"\npattern = "a.*"',
            ["a.b.c", "orders.paid"],
            [
                "counters[n].pattern='a.*': no topic matches it and the consumer's patterns",
                "alerts[failing].pattern='orders.*.failed': no topic matches it and the consumer's patterns",
            ],
        ),
        (RATE + 'topic = "orders.any.failed"', ["#"], [LOOP]),
        (RATE.replace("orders.*.failed", "alerts.#"), ["#"], [LOOP]),
        (RATE.replace("orders.*.failed", "alerts.#") + 'user = "ann"', ["#"], []),
        (RATE.replace("orders.*.failed", "users.*.alerts.*") + 'user = "ann"', ["#"], [LOOP]),
        (
            RATE.replace("orders.*.failed", "alerts.silent") + ABSENCE.replace("beats.#", "alerts.failing"),
            ["#"],
            ["alerts: their own events would set them off for ever: failing → silent → failing"],
        ),
        (RATE.replace("orders.*.failed", "alerts.silent") + ABSENCE, ["#"], []),
        (
            RATE + 'topic = "a.b.c.d.e.f.g.h"\nuser = "ann"',
            ["#"],
            ["alerts[failing]: invalid topic 'users.ann.a.b.c.d.e.f.g.h': 10 words, at most 8 are allowed"],
        ),
    ],
)
def test_check_finds_rules_that_cannot_be_right(toml: str, patterns: list[str], faults: list[str]) -> None:
    """A line each."""
    assert Monitoring.check(read(toml), patterns) == faults


def test_counters_and_gauges_together_have_a_limit() -> None:
    """256, whatever they are."""
    rules = [{"name": f"n{number}", "pattern": "a"} for number in range(256)]
    gauge = {"name": "g", "pattern": "a", "value": "data"}
    options, _ = read_options(MonitoringOptions, {"counters": rules, "gauges": [gauge]})
    assert Monitoring.check(options, ["#"]) == ["257 counters and gauges: at most 256 are allowed"]  # type: ignore[arg-type]


COUNTING = """
[[counters]]
name = "orders_failed"
pattern = "orders.*.failed"
[[counters]]
name = "orders"
pattern = "orders.#"
[[gauges]]
name = "depth"
pattern = "jobs.depth"
value = "data.now.0"
"""


def test_a_page_adds_up_in_statsd_and_in_prometheus(listener: socket.socket) -> None:
    """One datagram; labels are the names of the configuration, and a value without a rule leaves no trace."""
    host, port = listener.getsockname()
    site = Site(f'statsd = "{host}:{port}"\nprefix = "shop"\n{COUNTING}')
    monitoring = site.start()
    assert site.samples() == {"headgate_monitored_events_total:orders_failed": 0, "headgate_monitored_events_total:orders": 0}
    page = [site.event(f"orders.{number}.failed", {"user": f"u{number}"}) for number in range(3)]
    page += [site.event("orders.1.paid"), site.event("other.topic"), site.event("jobs.depth", {"now": [-7.5]})]
    monitoring.handle_many(page)
    assert listener.recv(65536).split(b"\n") == [
        b"shop.orders_failed:3|c",
        b"shop.orders:4|c",
        b"shop.depth:0|g",
        b"shop.depth:-7.5|g",
    ]
    monitoring.handle_many([site.event("orders.9.failed")])  # not before: UDP may bring the later one first
    assert listener.recv(65536).split(b"\n") == [b"shop.orders_failed:1|c", b"shop.orders:1|c"]
    monitoring.close()
    assert site.samples() == {
        "headgate_monitored_events_total:orders_failed": 4,
        "headgate_monitored_events_total:orders": 5,
        "headgate_monitored_value:depth": -7.5,
    }
    assert not any("u1" in line for line in generate_latest().decode().splitlines() if site.name in line)


@pytest.mark.parametrize(
    ("path", "data", "value"),
    [
        ("data", 3, 3),
        ("data.a.b", {"a": {"b": 2.5}}, 2.5),
        ("data.1", [1, 2], 2),
        ("data.0", {"0": 5}, 5),
        ("data.a", {"b": 1}, None),
        ("data.a", {"a": "7"}, None),
        ("data.a", {"a": True}, None),
        ("data.a", {"a": None}, None),
        ("data.a", [1], None),
        ("data.2", [1, 2], None),
        ("data.a", 3, None),
        ("data.a.b", {"a": "text"}, None),
        ("data", 10**400, None),
    ],
)
def test_a_gauge_takes_a_number_and_nothing_else(path: str, data: Any, value: float | None) -> None:
    """An invalid value is counted and passed over, and the page goes on."""
    site = Site(f'[[gauges]]\nname = "g"\npattern = "a"\nvalue = "{path}"\n[[counters]]\nname = "n"\npattern = "a"')
    site.start().handle_many([site.event("a", data)])
    samples = site.samples()
    assert samples.pop("headgate_monitored_events_total:n") == 1
    expected = {"headgate_monitor_faults_total:not_a_number": 1.0} if value is None else {"headgate_monitored_value:g": value}
    assert samples == expected


def test_an_event_that_comes_again_late_does_not_set_a_gauge_back() -> None:
    """Another instance died with it, and newer ones have been handled since."""
    site = Site(COUNTING)
    monitoring = site.start()
    late = site.event("jobs.depth", {"now": [1]}, before_s=30)
    monitoring.handle_many([site.event("jobs.depth", {"now": [2]})])
    monitoring.handle_many([late])
    assert site.samples()["headgate_monitored_value:depth"] == 2


def test_a_page_costs_one_round_trip_and_nothing_is_counted_when_it_fails() -> None:
    """However many times and windows its events have; the page comes again, and then counts once."""
    site = Site(RATE + RATE.replace("failing", "slow").replace("60", "7200") + COUNTING)
    monitoring = site.start()
    page = [site.event("orders.1.failed", before_s=number * 7) for number in range(50)]

    def fail(method: str) -> None:
        raise BusUnavailable("gone")

    site.state.on_call = fail
    with pytest.raises(BusUnavailable):
        monitoring.handle_many(page)
    assert site.samples()["headgate_monitored_events_total:orders"] == 0
    site.state.on_call = lambda method: None
    site.state.calls.clear()
    monitoring.handle_many(page)
    assert site.state.calls == ["add"]
    assert site.samples()["headgate_monitored_events_total:orders"] == 50


def test_a_rate_above_its_limit_is_told_once_and_its_end_once() -> None:
    """As an event with an id, on the alert's topic, with the count."""
    site = Site(RATE + 'user = "ann"')
    monitoring = site.start()
    monitoring.handle_many([site.event("orders.1.failed") for _ in range(3)])
    since = int(site.state.now_s * 1000)
    for _ in range(3):
        monitoring.tick()
        site.state.now_s += 1
    (firing,) = site.publisher.published.values()
    assert firing == (
        "alerts.failing",
        {
            "alert": "failing",
            "state": "firing",
            "kind": "rate",
            "value": 3,
            "above": 2,
            "window_s": 60,
            "since": since,
            "pattern": "orders.*.failed",
            "repeats": 0,
        },
        "ann",
    )
    site.state.now_s += 61
    monitoring.tick()
    monitoring.tick()
    assert site.publisher.told == ["firing", "resolved"]


def test_a_backlog_does_not_look_like_a_burst() -> None:
    """Events of an hour, handled in one page, are two a minute, which is no more than allowed."""
    site = Site(RATE)
    monitoring = site.start()
    monitoring.handle_many([site.event("orders.1.failed", before_s=number * 31) for number in reversed(range(120))])
    monitoring.tick()
    assert site.publisher.told == []


def test_alerts_are_judged_as_of_what_has_been_handled() -> None:
    """Five minutes late, it finds the burst of five minutes ago, with its own time."""
    site = Site(RATE)
    monitoring = site.start()
    site.state.handled_ms = int((site.state.now_s - 300) * 1000)
    monitoring.handle_many([site.event("orders.1.failed", before_s=310) for _ in range(3)])
    monitoring.tick()
    (notice,) = site.publisher.published.values()
    assert notice[1]["since"] == site.state.handled_ms


def test_silence_is_told_after_a_whole_window_and_ended_by_an_event() -> None:
    """Measured from the consumer's start at the earliest."""
    site = Site(ABSENCE)
    monitoring = site.start()
    for _ in range(59):
        monitoring.tick()
        site.state.now_s += 1
    assert site.publisher.told == []
    monitoring.tick()
    site.state.now_s += 1
    monitoring.tick()
    assert site.publisher.told == ["firing"]
    monitoring.handle_many([site.event("beats.a")])
    monitoring.tick()
    assert site.publisher.told == ["firing", "resolved"]


@pytest.mark.parametrize("behind_s", [61, KEEP_S, 86_400])
def test_a_consumer_that_is_behind_calls_nothing_silence(behind_s: int) -> None:
    """Though in the window that it has come to there was none."""
    site = Site(ABSENCE)
    monitoring = site.start()
    for _ in range(200):
        site.state.handled_ms = int((site.state.now_s - behind_s) * 1000)
        monitoring.tick()
        site.state.now_s += 1
    assert site.publisher.told == []


def test_too_far_behind_no_rate_is_judged() -> None:
    """Its counts may have ended."""
    site = Site(RATE)
    monitoring = site.start()
    monitoring.handle_many([site.event("orders.1.failed", before_s=KEEP_S + 1) for _ in range(9)])
    site.state.handled_ms = int((site.state.now_s - KEEP_S - 1) * 1000)
    monitoring.tick()
    assert site.publisher.told == []
    site.state.handled_ms += 1000
    monitoring.tick()
    assert site.publisher.told == ["firing"]


def test_only_the_holder_of_the_lease_judges() -> None:
    """The others look at nothing else."""
    site = Site(RATE)
    monitoring = site.start()
    monitoring.handle_many([site.event("orders.1.failed") for _ in range(3)])
    site.state.leased = False
    site.state.calls.clear()
    monitoring.tick()
    assert site.state.calls == ["lease"]
    assert site.publisher.told == []


def test_a_notice_that_redis_refuses_is_told_when_it_does_not() -> None:
    """Though the alert is over by then; others are reported in the meantime, and each fault is counted."""
    site = Site(RATE)
    monitoring = site.start()
    monitoring.handle_many([site.event("orders.1.failed") for _ in range(3)])
    site.publisher.fault = BusRefused("it is out of memory (maxmemory)")
    monitoring.tick()
    site.state.now_s += 120
    monitoring.tick()
    assert site.samples()["headgate_monitor_faults_total:not_published"] == 2
    site.publisher.fault = None
    monitoring.tick()
    assert site.publisher.told == ["firing"]
    monitoring.tick()
    assert site.publisher.told == ["firing", "resolved"]


def test_records_that_cannot_be_read_are_begun_anew() -> None:
    """Counted, and the alerts go on."""
    site = Site(RATE)
    monitoring = site.start()
    site.state.put("alerts", b'{"failing": 3}', 1)
    monitoring.handle_many([site.event("orders.1.failed") for _ in range(3)])
    monitoring.tick()
    assert site.publisher.told == ["firing"]
    assert site.samples()["headgate_monitor_faults_total:bad_record"] == 1


def test_preview_names_what_would_count() -> None:
    """A line each."""
    site = Site(COUNTING + RATE)
    monitoring = site.start()
    assert monitoring.preview(site.event("orders.1.failed")) == (
        "headgate.orders_failed + 1\nheadgate.orders + 1\nalert failing: one event"
    )
    assert monitoring.preview(site.event("jobs.depth", {"now": [3]})) == "headgate.depth = 3"
    assert monitoring.preview(site.event("other")) == "nothing counts it"


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40), st.none() | st.integers(1, 9)), max_size=40))
def test_every_notice_is_published_once_whenever_it_dies(at_once: bool, steps: list[tuple[int, int, int | None]]) -> None:
    """Events, seconds, and the step of judging (a call of the state, before or after publishing) at which it dies, if it does.

    Back at once, it reports the same as a process that never dies. Back later, it may have missed short alerts; but its reports
    alternate, and at rest nothing fires.
    """
    dying, steady = Site(RATE), Site(RATE)
    monitoring, undying = dying.start(), steady.start()
    left: list[int] = []

    def step(at: str) -> None:
        if left:
            left[0] -= 1
            if not left[0]:
                left.clear()
                raise Crash

    dying.state.on_call = step
    dying.publisher.on_publish = step
    for events, seconds, dies_at in [*steps, *[(0, 30, None)] * 3]:
        for site, instance in ((dying, monitoring), (steady, undying)):
            instance.handle_many([site.event("orders.1.failed") for _ in range(events)])
        left[:] = [] if dies_at is None else [dies_at]
        try:
            monitoring.tick()
        except Crash:
            monitoring = dying.start()
        left.clear()
        undying.tick()
        if at_once:
            monitoring.tick()
            assert dying.publisher.told == steady.publisher.told
        for site in (dying, steady):
            site.state.now_s += seconds
    assert dying.publisher.told == ["firing", "resolved"] * (len(dying.publisher.told) // 2)
