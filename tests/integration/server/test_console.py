"""The console's views on a real Redis: Redis itself, consumers and dead letters, topics, a trace, schemas."""

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from headgate.auth.api_keys import new_key
from headgate.consumers.work.store import Store, dead
from headgate.consumers.work.task import Task
from headgate.redis import api_keys, loads
from headgate.redis.client import Client, call
from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.keys import group_in_log, log_key
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from headgate_server.api.console import add_console
from headgate_server.api.console.reads import MAX_TOPICS
from headgate_server.api.v1.services import SCAN_EVERY_S, Services
from tests.support.console_gate import ConsoleGate
from tests.support.registered import write_row

KEY = "the-admin-key-of-this-test-0123456789"
ACT = {"Origin": "http://localhost", "X-Headgate-Console": "1"}


@pytest.fixture
def console(redis_url: str, redis_client: Client) -> FlaskClient:
    app = Flask(__name__)
    settings = Settings(admin_key=KEY, console_actions=True, redis_url=redis_url, trace_every=1)
    add_console(app, ConsoleGate(settings=settings), settings)
    client = app.test_client()
    client.post("/console/sign-in", data={"key": KEY}, headers=ACT)
    return client


def told(console: FlaskClient, path: str) -> Any:
    response = console.get(f"/console/api/{path}")
    assert response.status_code == 200, response.text
    return response.get_json()


def test_redis_says_how_it_is(console: FlaskClient) -> None:
    """With advice for an operator."""
    (server,) = told(console, "redis")["servers"]
    assert server["used_memory"] > 0
    assert [line.partition(":")[0] for line in server["advice"]] == ["role", "disk", "memory"]


def test_a_gateway_on_another_server_is_named_with_what_to_do(console: FlaskClient, redis_client: Client) -> None:
    """As `headgate check` names it."""
    LOG_LIBRARY.ensure_loaded(redis_client)
    write_row(redis_client, "a", loads.Load(3, 0, "notifications", name="web-1/7", server="the old primary"))
    (found,) = told(console, "redis")["elsewhere"]
    assert found["text"] == "gateway web-1/7: its events come from another Redis server than this one"
    assert "restart it" in found["remedy"]


def test_keys_are_listed_without_what_proves_them(console: FlaskClient, redis_client: Client) -> None:
    """Neither the secret nor its hash."""
    made = new_key("shop", ["clients"], ttl_s=60)
    api_keys.add(redis_client, made.stored)
    (shown,) = told(console, "keys")["keys"]
    assert (shown["id"], shown["scopes"], shown["expires_s"]) == (made.stored.id, ["clients"], made.stored.expires_s)
    assert not {made.text.rpartition("_")[2], made.stored.sha256} & set(map(str, shown.values()))


def test_topics_of_the_newest_events_come_without_their_data(console: FlaskClient, publisher: Publisher) -> None:
    """Newest first, only those above an offset, and never more than a page counts."""
    assert told(console, "topics") == {"events": []}
    publisher.publish_many([("orders.1.created", {"n": nth}) for nth in range(3)])
    publisher.publish("orders.2.shipped", "é")
    assert told(console, "topics")["events"] == [[4, "orders.2.shipped", 4], *([nth, "orders.1.created", 7] for nth in (3, 2, 1))]
    assert told(console, "topics?after=3")["events"] == [[4, "orders.2.shipped", 4]]
    assert told(console, "topics?after=4")["events"] == []
    publisher.publish_many([("many", nth) for nth in range(MAX_TOPICS + 50)])
    events = told(console, "topics?after=4")["events"]
    assert [offset for offset, _, _ in events] == list(range(MAX_TOPICS + 54, 54, -1))
    assert console.get("/console/api/topics?after=-1").status_code == 400


def test_an_event_is_traced(console: FlaskClient, publisher: Publisher) -> None:
    receipt = publisher.publish("orders.1.created", {"n": 1})
    assert told(console, f"trace?event={receipt.id}")["offset"] == receipt.offset
    assert told(console, f"trace?event={receipt.offset}")["id"] == receipt.id
    assert console.get("/console/api/trace?event=nothing").get_json()["code"] == "invalid_request"


def test_dead_letters_are_shown_retried_and_discarded(console: FlaskClient, publisher: Publisher, redis_client: Client) -> None:
    """A retried letter waits as a task; a discarded one is gone."""
    receipt = publisher.publish("orders.1.failed", {"note": "<b>"})
    store = Store(redis_client, "", "notifications", "mail", 65536)
    store.open("new")
    for nth in range(3):
        task = Task(receipt.epoch, receipt.offset, "orders.1.failed", f"id-{nth}", 1_000 + nth, b'{"note": "<b>"}', str(nth))
        store.settle([dead(task, "rejected", "no such mailbox", 100)])
    (consumer,) = told(console, "consumers")["consumers"]
    assert (consumer["name"], consumer["namespace"], consumer["dead"]) == ("mail", "notifications", 3)
    kept = told(console, "letters?consumer=mail")
    first, second, third = kept["letters"]
    assert (kept["count"], first["why"], first["reason"], first["data"]) == (3, "rejected", "no such mailbox", '{"note": "<b>"}')
    for path, letter in (("retry", first), ("discard", second)):
        body = {"consumer": "mail", "ids": [letter["id"]]}
        assert console.post(f"/console/api/letters/{path}", json=body, headers=ACT).get_json() == {"changed": 1}
    assert [letter["id"] for letter in told(console, "letters?consumer=mail")["letters"]] == [third["id"]]
    (consumer,) = told(console, "consumers")["consumers"]
    assert (consumer["dead"], consumer["waiting"]) == (1, 1)


def test_all_keys_are_looked_through_seldom(publisher: Publisher, redis_client: Client) -> None:
    """A reader of the log is known at once; one with only dead letters, with the next look."""
    publisher.publish("orders.1.created", {})
    now_s = 100.0
    services = Services(ConsoleGate(), Settings(), now_s=lambda: now_s)

    def names() -> list[str]:
        return [status.name for status in services.consumers(redis_client, "notifications")]

    assert names() == []
    Store(redis_client, "", "notifications", "mail", 65536).open("new")
    gone = Store(redis_client, "", "notifications", "gone", 65536)
    epoch, _ = gone.open("new")
    gone.settle([dead(Task(epoch, 1, "orders.1", "id", 1_000, b"1"), "rejected", "no", 100)])
    call(redis_client, "XGROUP", "DESTROY", log_key("notifications"), group_in_log("gone", epoch))
    assert names() == ["mail"]
    now_s += SCAN_EVERY_S
    assert names() == ["gone", "mail"]
