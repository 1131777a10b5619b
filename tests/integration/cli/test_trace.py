"""`headgate trace` and its HTTP route, on a real gateway, a real Redis and the groups of real consumers."""

import json
import socket
import urllib.error
import urllib.request
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.consumers.work.store import Store, dead, defer_for, done
from headgate.diagnosis.tracing import trace
from headgate.errors import BusUnavailable
from headgate.redis.client import open_client
from headgate.redis.inbox import mark_seen
from headgate.services.publisher import Publisher
from tests.support.gateway_process import StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

NAMESPACE = "notifications"
WAIT_S = 20.0


def told(url: str, event: str, **words: str) -> dict[str, Any]:
    found = CliRunner().invoke(main, ["trace", event, "--redis", url, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    answer: dict[str, Any] = json.loads(found.output)
    return answer


def whole(found: dict[str, Any], consumers: int) -> dict[str, Any] | None:
    """The trace, once the gateway has reported all, and if Redis was in time for all consumers; else None."""
    told_all = found["gateways"] and found["gateways"][0]["counts"]["from_log"]
    return found if told_all and len(found["consumers"]) == consumers else None


def test_an_event_is_followed_from_its_publish_to_browsers_and_consumers(
    start_gateway: StartGateway, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written at once, read from the log later, shown; done, waiting, dead, not taken yet; the same over HTTP."""
    gateway = start_gateway({}, "--dev")  # it counts every event while they are few
    url = f"unix://{tmp_path / 'gateway-0' / 'data' / 'redis.sock'}"
    clients = [RawClient(gateway.url, {"subscriptions": [{"pattern": "users.#"}]}) for _ in range(3)]
    for client in clients:
        client.wait_for(partial(client.named, "welcome"), "welcome", WAIT_S)
    redis = open_client(url)
    groups = {name: Store(redis, url, NAMESPACE, name, 65536) for name in ("done", "waiting", "dead", "leased", "late")}
    for store in groups.values():
        store.open("new")
    publisher = Publisher(url)
    receipt = publisher.publish("users.ann.orders", {"number": 1}, id="first")
    for client in clients:
        client.wait_for(partial(client.named, "event"), "the event", WAIT_S)
    past = RawClient(gateway.url, {"subscriptions": [{"pattern": "users.#", "since": {"last": 1}}]})
    past.wait_for(partial(past.named, "event"), "the past", WAIT_S)
    mark_seen(redis, NAMESPACE, "ann", ["first"])
    for name, store in groups.items():
        if name == "late":
            continue
        page = store.take(10, 60_000, 100, lambda topic: True)
        assert page is not None
        [leased] = page.work
        if name == "done":
            store.settle([done(leased)])
        elif name == "waiting":
            store.settle([defer_for(leased.task, 60_000), done(leased)])
        elif name == "dead":
            store.settle([dead(leased.task, "rejected", "no such address", 100), done(leased)])

    found = wait_until(lambda: whole(told(url, "first"), len(groups)), "the whole trace")
    assert (found["offset"], found["epoch"], found["topic"], found["id"]) == (
        receipt.offset,
        receipt.epoch,
        "users.ann.orders",
        "first",
    )
    [at] = found["gateways"]
    assert {name: count for name, count in at["counts"].items() if count} == {"matched": 3, "written": 3, "from_log": 1}
    assert (found["shown"], found["read"], found["state"]) == (True, False, "shown")
    states = {each["consumer"]: (each["state"], each["reason"]) for each in found["consumers"]}
    assert states == {
        "done": ("done", ""),
        "waiting": ("waiting", ""),
        "dead": ("dead", "rejected: no such address"),
        "leased": ("leased", ""),
        "late": ("not taken", ""),
    }

    # The same by its offset, for people, and over HTTP.
    assert told(url, str(receipt.offset))["id"] == "first"
    shown = wait_until(
        lambda: "consumer late" in (text := CliRunner().invoke(main, ["trace", "first", "--redis", url]).output) and text,
        "every consumer",
    )
    assert "for 3 clients: 3 written to at once; 1 read it from the log" in shown
    assert "user ann: shown" in shown
    assert "consumer dead: dead, attempt" in shown or "consumer dead: dead (rejected: no such address)" in shown

    def over_http() -> dict[str, Any]:
        with urllib.request.urlopen(f"{gateway.url}/api/v1/events/first/trace", timeout=WAIT_S) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    assert wait_until(lambda: whole(over_http(), len(groups)), "the same over HTTP") == found
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{gateway.url}/api/v1/events/nothing/trace", timeout=WAIT_S)
    assert refused.value.code == 404
    assert "there is no event 'nothing'" in refused.value.read().decode()

    # A long log is searched within the deadline, by a clock of the test's own, or the answer has the searched part.
    publisher.publish_many([("users.bob.orders", {"number": number}) for number in range(1200)])
    monkeypatch.setattr("headgate.diagnosis.tracing.DEADLINE_S", 60.0)  # of the real clock, which also counts
    clock = iter([0.0] + [61.0] * 100)
    with pytest.raises(BusUnavailable, match="among the newest 500"):
        trace(redis, NAMESPACE, "first", lambda: next(clock))
    assert trace(redis, NAMESPACE, "first", lambda: 0.0).offset == receipt.offset
    for client in (*clients, past):
        client.close()


def test_a_server_that_answers_nothing_holds_a_trace_until_its_deadline_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client would wait for a minute."""
    monkeypatch.setattr("headgate.diagnosis.tracing.DEADLINE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = open_client(f"redis://127.0.0.1:{server.getsockname()[1]}/0", timeout_s=60, max_connections=1)
        with pytest.raises(BusUnavailable, match="did not answer in time"):
            trace(client, NAMESPACE, "first")
        client.close()
