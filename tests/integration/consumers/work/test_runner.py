"""A runner with its threads on a real Redis: workers that share, kept leases, stopping."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from headgate.consumers import Delivery
from headgate.consumers.work import runner as runners
from headgate.consumers.work import worker as workers
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.redis.client import Client, call
from headgate.redis.functions import server_token
from headgate.redis.loads import process_name
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.support.consumers_state import count_leased
from tests.support.recording_consumer import Recorder, values
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import DEADLINE_S, full_memory, wait_until

LOG = "hg:{notifications}:log"
GROUP = "hg:{notifications}:group:mail"
QUICK = RunnerOptions(retry_first_s=0.01, retry_last_s=0.02)
# Hundreds of tasks, each several round trips, on a machine that others want too.
AT_REST_DEADLINE_S = 90.0


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """The lines of the log as fields, because writing out tracebacks for people takes longer than the tests."""
    with structlog.testing.capture_logs() as logged:
        yield logged


@pytest.fixture
def run(recorder: type[Recorder], redis_url: str) -> Iterator[Callable[..., Runner]]:
    """Start a runner of the recorder, `run(lease_s=…)`; it is stopped with the test."""
    started: list[Runner] = []

    def start(**options: Any) -> Runner:
        runner = Runner(_spec(recorder, **options), redis_url, Settings())
        started.append(runner)
        runner.open()
        runner.start()
        return runner

    yield start
    for runner in started:
        assert runner.stop(DEADLINE_S)


@pytest.fixture(autouse=True)
def log(redis_client: Client) -> None:
    """There is a log, as where a gateway runs, so the wait for an event ends with the event."""
    EventLog("notifications", redis_client, 65536).configure(10000, 86400)


def at_rest(client: Client, offset: int) -> bool:
    """Whether the group has taken everything up to `offset`, and nothing is leased or waiting."""
    position = call(client, "HGET", GROUP, "position")
    if not position or int(position) < offset:
        return False
    return not count_leased(client, "mail") and not call(client, "ZCARD", f"{GROUP}:held")


def hurry(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    """Have the time of later runners, but not that of Redis, go by so many times as fast."""

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(None if timeout is None else timeout / times)

    monkeypatch.setattr(runners, "threading", SimpleNamespace(Event=Event, Lock=threading.Lock, Thread=threading.Thread))
    monkeypatch.setattr(
        workers, "time", SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() * times, sleep=time.sleep)
    )
    monkeypatch.setattr(workers, "awake_or_asleep_s", lambda: time.monotonic() * times)


def test_instances_and_workers_share_the_work(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client
) -> None:
    """Two instances of two workers, and each event once."""
    for _ in range(2):
        run(workers=2)
    wait_until(lambda: recorder.calls.count("start") == 4, "all four to be there")
    publisher.publish_many([("a", number) for number in range(1000)])

    wait_until(lambda: at_rest(redis_client, 1000), "everything to be answered", AT_REST_DEADLINE_S)

    assert sorted(values(recorder)) == list(range(1000))


def test_an_instance_says_at_which_server_it_is_until_it_is_stopped(
    run: Callable[..., Runner], publisher: Publisher, redis_client: Client
) -> None:
    """By its machine and process, in the hash of its group."""
    publisher.publish("a", 1)
    runner = run()
    field = f"at:{process_name()}"
    wait_until(lambda: call(redis_client, "HGET", GROUP, field), "a word of the instance")
    assert call(redis_client, "HGET", GROUP, field).decode().split(" ")[0] == server_token(redis_client, GROUP)
    assert runner.stop(DEADLINE_S)
    wait_until(lambda: call(redis_client, "HGET", GROUP, field) is None, "its word to go with it")


def test_slow_work_is_not_handed_to_another(
    run: Callable[..., Runner],
    recorder: type[Recorder],
    publisher: Publisher,
    redis_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is kept leased for as long as it takes, also when the log has trimmed it in between, with two instances."""
    hurry(monkeypatch, 120)
    release = threading.Event()
    recorder.script = staticmethod(lambda delivery: _wait(release))
    for _ in range(2):
        run(lease_s=120)  # as the instances have it, a third of it is over at once
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
    wait_until(lambda: at_rest(redis_client, 1), "it to be answered")

    assert [(delivery.value(), delivery.attempt) for delivery in recorder.seen] == [(1, 1)]
    assert int(call(redis_client, "HGET", GROUP, "missed") or 0) == 0


def test_endless_work_is_reported_and_does_not_keep_it_from_stopping(
    recorder: type[Recorder], publisher: Publisher, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain is bounded; it says that something is left. The gauges of the backlog go on."""
    monkeypatch.setattr(runners, "WATCH_EVERY_S", 0.01)
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
    publisher.publish_many([("a", 2), ("a", 3)])

    gauges = ("headgate_consumer_lag_events", "headgate_consumer_age_seconds")
    wait_until(lambda: runner.status(hung_s=0.05)[1], "the endless work to be reported")
    wait_until(
        lambda: all(REGISTRY.get_sample_value(gauge, {"consumer": "mail"}) for gauge in gauges), "a backlog that has an age"
    )
    assert REGISTRY.get_sample_value(gauges[0], {"consumer": "mail"}) == 2
    assert runner.status() == (1, None)
    assert not runner.stop(drain_s=0.05)
    release.set()
    wait_until(runner.stop, "the work to end")


def test_it_stops_while_redis_is_away(recorder: type[Recorder], publisher: Publisher) -> None:
    """Nothing to wait for."""
    runner = Runner(_spec(recorder), "redis://127.0.0.1:1", Settings())
    runner.start()
    wait_until(lambda: runner.status()[1], "the trouble to be told")

    assert "127.0.0.1:1" in (runner.status()[1] or "")
    assert runner.stop()
    assert runner.stop()


def test_work_whose_answer_redis_has_not_taken_is_unfinished(recorder: type[Recorder], tmp_path: Path) -> None:
    """It is handed out again."""
    begun, release = threading.Event(), threading.Event()
    recorder.script = staticmethod(lambda delivery: begun.set() or _wait(release))  # type: ignore[func-returns-value]
    with RedisProcess(tmp_path) as redis:
        runner = Runner(_spec(recorder), redis.url, Settings())
        runner.open()
        runner.start()
        Publisher(redis.url).publish("a", 1)
        assert begun.wait(DEADLINE_S)
        redis.kill()
        release.set()
        wait_until(lambda: runner.status()[1], "the answer to wait for Redis")
        assert not runner.stop(drain_s=0.1)
        redis.start()
        wait_until(runner.stop, "Redis to take the answer")


def _spec(recorder: type[Recorder], **options: Any) -> ConsumerSpec:
    return ConsumerSpec("mail", recorder, recorder.Options(), ("#",), "notifications", replace(QUICK, **options))


def _wait(release: threading.Event) -> None:
    release.wait(DEADLINE_S)


def test_a_consumer_waits_for_room_in_a_full_redis_and_then_takes_what_has_come(
    run: Callable[..., Runner], recorder: type[Recorder], publisher: Publisher, redis_client: Client, logged: list[Any]
) -> None:
    """It asks now and then, since a wait for an event would end at once with those that it may not take."""

    def calls(command: str, count: str = "calls") -> int:
        return int(call(redis_client, "INFO", "commandstats").get(f"cmdstat_{command}", {}).get(count, 0))

    def refused() -> int:
        return calls("fcall", "rejected_calls") + calls("fcall", "failed_calls")

    GROUP_LIBRARY.ensure_loaded(redis_client)
    publisher.publish_many([("a", number) for number in range(3)])
    waits, refusals = calls("xread"), refused()
    with full_memory(redis_client):
        run(start="oldest")
        wait_until(lambda: refused() >= refusals + 3, "it to ask several times")
        assert calls("xread") == waits
        assert values(recorder) == []
    wait_until(lambda: at_rest(redis_client, 3), "everything to be answered")

    assert values(recorder) == [0, 1, 2]
    assert [line["lag"] for line in logged if "while Redis is full" in line["event"]] == [3]
