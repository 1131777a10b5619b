"""`headgate status` against a real Redis, with the reports of gateways and consumers in it."""

import json
import time

import pytest

from headgate.consumers.base import Consumer
from headgate.redis import loads
from headgate.redis.client import Client, call
from headgate.redis.keys import head_key
from headgate.redis.log import EventLog
from headgate.redis.registry import leave
from headgate.services.publisher import Publisher
from tests.integration.cli.conftest import Run
from tests.support.registered import register, write_row
from tests.support.stepped_worker import MakeWorker


def test_status_shows_all_and_what_is_wrong(run: Run, redis_url: str, redis_client: Client, make_worker: MakeWorker) -> None:
    """Without a gateway the exit code is 1; with one it is 0, though a consumer has a backlog. A pause is a warning."""
    worker = make_worker(Consumer, patterns=("none.#",))
    with Publisher(redis_url) as publisher:
        publisher.publish("orders.1", {"sum": 1})
        worker.work()
        publisher.publish("orders.2", {"sum": 2})
    leave(redis_client, "a-gateway", ["notifications", "other"])
    without = run("status")
    assert without.returncode == 1
    assert "fault    gateways: none is at work" in without.stdout

    register(redis_client, "a-gateway", ["notifications"])
    write_row(redis_client, "one", loads.Load(3, int(time.time()), "notifications", name="web-1/7", version="0.1.0"))
    # As after an hour, before which Redis' wall clock was set back by one.
    call(redis_client, "HSET", head_key("notifications"), "clock", round((time.time() + 3600) * 1000))
    found = run("status", "--json")
    said = json.loads(found.stdout)
    assert (found.returncode, said["ok"]) == (0, True), said["wrong"]
    [gateway] = said["gateways"]
    assert (gateway["name"], gateway["sessions"], gateway["version"]) == ("web-1/7", 3, "0.1.0")
    notifications = {each["name"]: each for each in said["namespaces"]}["notifications"]
    assert (notifications["gateways"], notifications["head"], notifications["events"]) == (1, 2, 2)
    assert notifications["bytes"] > 0
    assert 3600 <= notifications["oldest_s"] < 7200
    [consumer] = said["consumers"]
    assert (consumer["name"], consumer["lag"], consumer["dead"]) == ("mail", 1, 0)
    assert said["redis"]["used_bytes"] > 0

    run("pause", "connects")
    assert run("status").returncode == 0
    assert run("status", "--strict").returncode == 1


def test_a_log_that_is_too_short_to_come_back_to_is_a_warning(run: Run, redis_url: str, redis_client: Client) -> None:
    """At the rate of the last seconds; the doctor and the check say so too."""
    register(redis_client, "a-gateway", ["notifications"])
    write_row(redis_client, "one", loads.Load(3, int(time.time()), "notifications", name="web-1/7", version="0.1.0"))
    log = EventLog("notifications", redis_client, 65536)
    log.configure(10_000_000, 600)
    with Publisher(redis_url) as publisher:
        publisher.publish_many([("orders.1", number) for number in range(200)])
    fine = run("status", "--json")
    assert json.loads(fine.stdout)["namespaces"][0]["retention_s"] == 600
    assert "log of notifications: keeps an event for 600 s at the present rate" in run("check").stdout
    log.configure(10, 600)
    short = run("status", "--strict")
    assert short.returncode == 1
    assert "at the present rate the log keeps an event for 0.5 s" in short.stdout
    assert "raise HEADGATE_LOG_MAX_BYTES or HEADGATE_LOG_MAX_EVENTS" in run("check").stdout


def test_a_watch_goes_on_until_it_is_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One JSON object for each look; the usual code after Ctrl-C."""
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    ended = run("status", "--watch", "--every", "7", "--json")
    assert (ended.returncode, looks) == (130, [7.0] * 3)
    assert len(ended.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    "command",
    [
        "replay #",
        "trace 1",
        "presence room",
        "clients",
        "consumers list",
        "dead-letters list mail",
        "dead-letters drop mail --all",
    ],
)
def test_a_namespace_that_is_not_there_is_not_answered_as_empty(run: Run, command: str) -> None:
    """The names that gateways serve are reported, and the nearest."""
    wrong = run(*command.split(), "--namespace", "othr")
    assert wrong.returncode == 1
    assert "no gateway has ever served namespace 'othr' here" in wrong.stderr
    assert "did you mean other?" in wrong.stderr


def test_a_session_that_is_not_there_is_not_answered_as_none(run: Run, redis_client: Client) -> None:
    """A user may have no clients; a session is one."""
    leave(redis_client, "a-gateway", ["notifications", "other"])
    assert "no gateway has the session 'nosuch'" in run("clients", "--session", "nosuch").stderr
    wrong = run("disconnect", "--session", "nosuch")
    assert (wrong.returncode, wrong.stderr) == (1, "headgate: no gateway has the session 'nosuch'\n")


def test_other_commands_print_objects_for_programs_too(run: Run, redis_client: Client) -> None:
    """One JSON object a line, and nothing where there is nothing."""
    assert run("pause", "--json").stdout == run("rebalance", "--show", "--json").stdout == ""
    assert json.loads(run("pause", "namespace", "shop", "--for", "10m", "--json").stdout) == {
        "paused": "namespace:shop",
        "left_s": 600,
    }
    [paused] = map(json.loads, run("pause", "--json").stdout.splitlines())
    assert paused["paused"] == "namespace:shop"
    assert 0 < paused["left_s"] <= 600
    write_row(redis_client, "one", loads.Load(3, 0, "a,b"))
    [group] = map(json.loads, run("rebalance", "--show", "--json").stdout.splitlines())
    assert group == {"serves": ["a", "b"], "sessions": [3], "asked_per_s": None}
