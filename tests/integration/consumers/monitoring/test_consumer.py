"""Monitoring on a real Redis: instances that share one state, silence during a backlog, an alert's way to another consumer."""

import tomllib

import pytest

from headgate.consumers.base import Context, Delivery
from headgate.consumers.monitoring import consumer as monitoring
from headgate.consumers.monitoring.consumer import Monitoring, MonitoringOptions
from headgate.consumers.work.state import State
from headgate.consumers.work.store import LeasedTask, Store, done
from headgate.redis.client import Client, call
from headgate.redis.keys import head_key
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from headgate.settings.options import read_options

NAMESPACE = "notifications"
LIMIT = 65536
RATE = '[[alerts]]\nname = "failing"\npattern = "orders.*.failed"\nabove = 5\nwindow_s = 60\nuser = "ann"\n'
SILENCE = '[[alerts]]\nname = "silent"\npattern = "beats.#"\nkind = "absence"\nwindow_s = 60\n'


def read(toml: str) -> MonitoringOptions:
    options, faults = read_options(MonitoringOptions, tomllib.loads(toml))
    assert options is not None, faults
    return options


class Instance:
    """One process' worth of a monitoring consumer, moved by the test. Its work stays leased until `acknowledge`."""

    def __init__(self, redis_url: str, client: Client, publisher: Publisher, toml: str) -> None:
        self.store = Store(client, redis_url, NAMESPACE, "watch", LIMIT)
        self.store.open("oldest")
        state = State(self.store)
        self.monitoring = Monitoring(read(toml), Context("watch", NAMESPACE, state, publisher))
        self.monitoring.start()

    def take(self, count: int) -> list[LeasedTask]:
        page = self.store.take(count, 30_000, 100, lambda topic: True)
        assert page is not None
        return page.work

    def handle(self, work: list[LeasedTask]) -> None:
        tasks = [taken.task for taken in work]
        self.monitoring.handle_many(
            [Delivery(task.topic, task.data, task.id, task.time_ms, task.epoch, task.offset) for task in tasks]
        )

    def acknowledge(self, work: list[LeasedTask]) -> None:
        self.store.settle(done(taken) for taken in work)


def alerts_in(client: Client) -> list[tuple[str, str]]:
    """Return the alerts' events in the log: (topic, state), in order."""
    entries = EventLog(NAMESPACE, client, LIMIT).page(0, None, 1000)
    events = [entry.event for entry in entries if entry.event is not None]
    return [(event.topic, event.value()["state"]) for event in events if "alerts." in event.topic]


def test_instances_add_up_and_one_of_them_tells(
    redis_url: str, redis_client: Client, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has seen more than the limit; when the one that judges is gone the other goes on where it was."""
    monkeypatch.setattr(monitoring, "LEASE_S", 600.0)  # so that it does not end by itself
    one, other = (Instance(redis_url, redis_client, publisher, RATE) for _ in range(2))
    for number in range(8):
        publisher.publish(f"orders.{number}.failed", {})
    for instance in (one, other):
        work = instance.take(4)
        assert len(work) == 4
        instance.handle(work)
        instance.acknowledge(work)
    for _ in range(3):
        one.monitoring.tick()
        other.monitoring.tick()
    assert alerts_in(redis_client) == [("users.ann.alerts.failing", "firing")]

    (record,) = call(redis_client, "KEYS", "*value*alerts")
    (lease,) = call(redis_client, "KEYS", "*lease*alerts")
    before = call(redis_client, "GET", record)
    other.acknowledge(other.take(9))  # the alert's own event is an open one, too
    other.monitoring.tick()
    assert call(redis_client, "GET", record) == before
    call(redis_client, "DEL", lease)
    other.monitoring.tick()

    assert call(redis_client, "GET", record) != before
    assert alerts_in(redis_client) == [("users.ann.alerts.failing", "firing")]


def test_silence_is_no_silence_while_events_are_leased(redis_url: str, redis_client: Client, publisher: Publisher) -> None:
    """For longer than the window, as Redis' clock has it; reported after that time, when it is one."""
    instance = Instance(redis_url, redis_client, publisher, SILENCE)
    publisher.publish("other", {})
    instance.monitoring.tick()
    work = instance.take(9)
    move_on(redis_client, 150)
    instance.monitoring.tick()
    assert alerts_in(redis_client) == []

    instance.handle(work)
    instance.acknowledge(work)
    for _ in range(2):
        instance.monitoring.tick()
        assert alerts_in(redis_client) == []  # the time was not certain until then
        move_on(redis_client, 50)
    instance.monitoring.tick()

    assert alerts_in(redis_client) == [("alerts.silent", "firing")]


def move_on(client: Client, seconds: int) -> None:
    """Let the log's time be so much later, and never before the newest event."""
    newest_ms = int(call(client, "HGET", head_key(NAMESPACE), "time"))
    call(client, "HSET", head_key(NAMESPACE), "time", newest_ms + seconds * 1000)
