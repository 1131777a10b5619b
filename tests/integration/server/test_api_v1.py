"""/api/v1 on a real Redis: the log, one event, namespaces, consumers, and keys from their making to their end."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate.auth.api_keys import new_key
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.store import Store, dead
from headgate.consumers.work.task import Task
from headgate.redis import api_keys
from headgate.redis.client import Client, call
from headgate.redis.keys import log_key
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from headgate_server.app import create_app
from tests.support.unstarted_gateway import UnstartedGateway

ADMIN = "an-admin-key-of-forty-characters-3141592"


class Api:
    """The server over Flask's own client, asked with a key."""

    def __init__(self, client: FlaskClient) -> None:
        self._client = client

    def ask(self, method: str, path: str, body: object = None, key: str = ADMIN) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {key}"}
        answer = self._client.open(
            f"/api/v1{path}", method=method, data=data, content_type="application/json", headers=headers
        )  # fmt: skip
        return answer.status_code, answer.get_json() if answer.data else None

    def get(self, path: str, key: str = ADMIN) -> Any:
        status, answer = self.ask("GET", path, key=key)
        assert status == 200, answer
        return answer


@pytest.fixture
def api(unstarted_gateway: UnstartedGateway, redis_url: str) -> Api:
    settings = Settings(redis_url=redis_url, admin_key=ADMIN, namespaces=("notifications", "other"), read_per_s=250)
    return Api(create_app(settings, gate=unstarted_gateway(settings)).test_client())


@pytest.fixture
def key(redis_client: Client) -> Callable[..., str]:
    def make(*scopes: str, **more: Any) -> str:
        made = new_key("test", scopes, **more)
        api_keys.add(redis_client, made.stored)
        return made.text

    return make


def test_a_second_request_with_an_idempotency_key_publishes_nothing_twice(api: Api) -> None:
    """Of a batch of which only a part had been published, the rest is; an id counts for its topic."""
    client = api._client
    headers = {"Authorization": f"Bearer {ADMIN}", "Idempotency-Key": "run-7"}
    events = [{"topic": "orders.1", "data": number} for number in range(3)]

    def post(count: int) -> list[tuple[int, bool]]:
        answer = client.post("/api/v1/events/batch", json={"events": events[:count], "atomic": True}, headers=headers)
        assert answer.status_code == 201
        return [(each["offset"], each["duplicate"]) for each in answer.get_json()["receipts"]]

    first, second = post(2), post(3)
    assert [was for _, was in first] == [False, False]
    assert second[:2] == [(offset, True) for offset, _ in first]
    assert second[2][1] is False
    other_topic = client.post("/api/v1/events/batch", json={"events": [{"topic": "orders.2", "data": 0}]}, headers=headers)
    assert other_topic.get_json()["receipts"][0]["duplicate"] is False


def test_a_key_may_have_ids_remembered_for_a_day_and_a_user_may_not(
    api: Api, key: Callable[..., str], redis_client: Client, redis_url: str, unstarted_gateway: UnstartedGateway
) -> None:
    """Of one event and of a batch; without an id there is nothing to remember."""
    shop = key("publish:orders.#")
    one = {"topic": "orders.1", "data": 1, "id": "row-1", "id_for_s": 86400}
    batch = {"events": [{"topic": "orders.1", "data": 1, "id": "row-1"}], "id_for_s": 3600}
    assert api.ask("POST", "/events", one, shop)[0] == 201
    call(redis_client, "UNLINK", *call(redis_client, "KEYS", "hg:*:id:[0-9]*"))
    assert api.ask("POST", "/events", one, shop)[1]["duplicate"]
    assert api.ask("POST", "/events/batch", batch, shop)[1]["receipts"][0]["duplicate"]
    for path, body, reason in (
        ("/events", {**one, "id": None}, "id_for_s needs an id"),
        ("/events/batch", {**batch, "events": [{"topic": "orders.1", "data": 1}]}, "id_for_s needs an id"),
        ("/events", {**one, "id_for_s": 86401}, "86400"),
        ("/events/batch", {**batch, "id_for_s": 0}, "1"),
    ):
        status, problem = api.ask("POST", path, body, shop)
        assert (status, problem["code"], problem["errors"][0]["pointer"]) == (422, "invalid_request", "/id_for_s"), problem
        assert reason in str(problem)
    settings = Settings(redis_url=redis_url, dev=True)
    anyone = create_app(settings, gate=unstarted_gateway(settings)).test_client()
    for path, body in (("/events", one), ("/events/batch", batch)):
        answer = anyone.post(f"/api/v1{path}", json=body)
        assert answer.status_code == 422
        assert "with an API key only" in answer.text


def test_the_log_is_read_from_an_offset_and_from_a_time(api: Api, publisher: Publisher, redis_client: Client) -> None:
    """A page ends where it says; a time is the first event at it or after it; a time to come has none."""
    offsets = [receipt.offset for receipt in publisher.publish_many([("orders.1", number) for number in range(150)])]
    page = api.get("/events?pattern=orders.%23")
    rest = api.get(f"/events?pattern=orders.%23&from={page['next']}")
    assert [each["data"] for each in page["events"] + rest["events"]] == list(range(150))
    assert rest["next"] is None
    # Entries with times of the test's own, in place of those that Redis gave.
    times = {offset: 1_000_000 + 10 * index for index, offset in enumerate(offsets)}
    entries = call(redis_client, "XRANGE", log_key("notifications"), "-", "+")
    call(redis_client, "DEL", log_key("notifications"))
    for entry_id, fields in entries:
        fields[b"time"] = str(times[int(entry_id.partition(b"-")[0])]).encode()
        call(redis_client, "XADD", log_key("notifications"), entry_id, *[part for pair in fields.items() for part in pair])

    def first(since: int) -> int | None:
        events = api.get(f"/events?since={since}")["events"]
        return events[0]["data"] if events else None

    assert [first(since) for since in (0, 1_000_000, 1_000_001, 1_000_010, 1_001_490, 1_001_491)] == [0, 0, 1, 1, 149, None]
    assert api.get(f"/events?since=1000010&from={offsets[2]}")["events"][0]["data"] == 2
    assert api.get(f"/events?from={offsets[2]}&to={offsets[1]}")["events"] == []
    assert api.get(f"/events?since=1001491&to={offsets[0]}")["events"] == []


def test_one_event_is_found_by_id_and_by_offset(api: Api, publisher: Publisher, key: Callable[..., str]) -> None:
    """By a reader of its topic; to another one it is not there."""
    receipt = publisher.publish("orders.1", {"carrier": "UPS"}, id="order-1")
    publisher.publish_many([("orders.2", number) for number in range(600)])
    by_id, by_offset = api.get("/events/order-1"), api.get(f"/events/{receipt.offset}")
    assert by_id == by_offset
    assert (by_id["topic"], by_id["data"], by_id["offset"]) == ("orders.1", {"carrier": "UPS"}, receipt.offset)
    assert api.ask("GET", "/events/order-2")[0] == 404
    # Digits are an offset, and there is none, at once. With its topic an id of digits is an id.
    publisher.publish("orders.3", 7, id="8812345")
    assert api.ask("GET", "/events/8812345")[0] == api.ask("GET", "/events/8812345/trace")[0] == 404
    assert api.get("/events/8812345?topic=orders.3")["data"] == 7
    assert api.ask("GET", "/events/8812345?topic=orders.4")[0] == 404
    assert api.ask("GET", "/events/8812345?topic=orders.%23")[0] == 400
    assert api.ask("GET", "/events/order-1/trace")[1]["id"] == "order-1"
    assert api.ask("GET", "/events/order-2/trace")[0] == 404
    # Any text may be asked for, and no event has it, and no page is elsewhere.
    for odd in ("a%3Ab~c", "a/b", "a%2Fb", "//b//", "%ED%A0%80", "x/trace"):
        assert api.ask("GET", f"/events/{odd}/trace")[0] == 404, odd
    other = key("read:mail.#")
    assert api.ask("GET", "/events/order-1", key=other) == api.ask("GET", "/events/order-1", key=key("read:orders.2"))
    for one, none in (("order-1", "order-0"), (str(receipt.offset), "900000")):
        (status, told), (as_none, nothing) = (api.ask("GET", f"/events/{each}", key=other) for each in (one, none))
        assert (status, told["detail"].replace(one, none)) == (as_none, nothing["detail"])
    assert api.ask("GET", "/events/order-1", key=key("publish:#"))[0] == 403


def test_the_newest_readable_event_of_an_id_is_found(api: Api, publisher: Publisher, key: Callable[..., str]) -> None:
    """An id counts for its topic, so an event of another topic with the same id hides none."""
    for topic in ("mail.1", "orders.1"):
        publisher.publish(topic, {}, id="same")
    found = [api.get("/events/same", key=key(scope))["topic"] for scope in ("read:#", "read:mail.#", "read:orders.#")]
    assert found == ["orders.1", "mail.1", "orders.1"]


def test_a_receipt_holds_while_its_event_is_in_the_log(api: Api, publisher: Publisher) -> None:
    """One of another log is unknown, one after the head rolled back."""
    receipt = publisher.publish("orders.1", 1)

    def fate(epoch: str, offset: int) -> Any:
        return api.get(f"/receipts?epoch={epoch}&offset={offset}")["fate"]

    assert fate(receipt.epoch, receipt.offset) == "in_log"
    assert fate(receipt.epoch, receipt.offset + 1) == "rolled_back"
    assert fate("0123456789abcdef", 1) == "unknown"


def test_namespaces_say_where_their_logs_stand(api: Api, publisher: Publisher) -> None:
    """Epoch, first, head and retention; an unserved one is 404."""
    receipt = publisher.publish_many([("orders.1", number) for number in range(3)])[-1]
    found = api.get("/namespaces/notifications")
    assert (found["epoch"], found["head"], found["head"] - found["first"]) == (receipt.epoch, receipt.offset, 2)
    assert found["retention"].keys() == {"max_events", "max_age_s", "max_bytes"}
    assert api.ask("GET", "/namespaces/elsewhere")[0] == 404


def test_dead_letters_are_listed_tried_again_and_dropped(api: Api, publisher: Publisher, redis_client: Client) -> None:
    """Page by page; a departed one does not count; lag and age are there for all waiting ones."""
    store = Store(redis_client, "", "notifications", "on-call", 65536)
    publisher.publish("orders.1", 0)
    store.open("new")
    assert api.get("/consumers/on-call")["age_s"] is None
    publisher.publish("orders.1", 1)
    receipt = publisher.publish("orders.1", 2)
    found = api.get("/consumers/on-call")
    assert (found["lag"], found["dead"]) == (2, 0)
    assert found["age_s"] >= 0
    tasks = [Task(receipt.epoch, receipt.offset, "orders.1", receipt.id, 1, b'{"n":%d}' % number) for number in range(3)]
    store.settle([dead(task, "rejected", "no such address", 100) for task in tasks])
    ids = [each.id for each in DeadLetters(redis_client, "notifications", "on-call").page()]
    page = api.get("/consumers/on-call/dead-letters?limit=2")
    assert (page["count"], [each["id"] for each in page["letters"]], page["next"]) == (3, ids[:2], ids[1])
    assert page["letters"][0]["data"] == {"n": 0}
    assert [each["id"] for each in api.get(f"/consumers/on-call/dead-letters?after={ids[1]}")["letters"]] == ids[2:]
    assert api.get(f"/consumers/on-call/dead-letters/{ids[0]}")["why"] == "rejected"
    path = "/consumers/on-call/dead-letters"
    assert api.ask("POST", f"{path}/retry", {"ids": ids[:1]}) == (200, {"count": 1})
    assert api.ask("POST", f"{path}/drop", {"ids": ids[:2]}) == (200, {"count": 1})
    assert api.ask("POST", f"{path}/drop", {"ids": "all"}) == (200, {"count": 1})
    assert api.ask("GET", f"{path}/{ids[0]}")[0] == 404
    assert api.ask("POST", f"{path}/drop", {})[0] == 422
    assert [each["name"] for each in api.get("/consumers")["consumers"]] == ["on-call"]
    assert api.ask("DELETE", "/consumers/on-call") == (200, {"waiting": 1, "dead": 0})
    assert api.ask("DELETE", "/consumers/on-call")[0] == 404
    for missing in ("/consumers/none", "/consumers/no%20name"):
        assert api.ask("GET", missing)[0] == 404
