"""The gateway as a process, met by a client made by hand: the wire of docs/protocol.md, and every way to be refused."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from headgate.publisher import Publisher
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.keys import channel, head_key, log_key
from headgate.settings import Settings
from tests.integration.transport.clients import WebSocket
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import DEADLINE_S, wait_until

ROOT = str(Path(__file__).parents[3])
NAMESPACE = "notifications"
Join = Callable[..., RawClient]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """One Redis for every gateway of this module: a flush in another test must not reach them."""
    with start_private_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def commands(redis: EmbeddedRedis) -> Iterator[Client]:
    with closing(open_client(redis.url, timeout_s=DEADLINE_S)) as client:
        yield client


@pytest.fixture(scope="module")
def publisher(redis: EmbeddedRedis) -> Iterator[Publisher]:
    with closing(Publisher(redis.url)) as publisher:
        yield publisher


@pytest.fixture(scope="module")
def start(start_module_gateway: StartGateway, redis: EmbeddedRedis) -> StartGateway:
    """Start a gateway on the module's Redis."""

    def start(settings: Mapping[str, str] | None = None, *arguments: str) -> GatewayProcess:
        return start_module_gateway({"HEADGATE_REDIS_URL": redis.url, "PYTHONPATH": ROOT, **(settings or {})}, *arguments)

    return start


@pytest.fixture(scope="module")
def gateway(start: StartGateway) -> GatewayProcess:
    """A gateway in development: anyone may do everything."""
    return start({"HEADGATE_INBOUND_PER_S": "1000"}, "--dev")


@pytest.fixture(scope="module")
def guarded(start: StartGateway) -> GatewayProcess:
    """A gateway whose application has an authenticator and small limits."""
    limits = {"HEADGATE_MAX_SUBSCRIPTIONS": "4", "HEADGATE_MAX_WILDCARDS": "2"}
    return start(limits, "tests.integration.auth.guarded_app:app")


@pytest.fixture(scope="module")
def closed(start: StartGateway) -> GatewayProcess:
    """A gateway that nobody has configured: neither development nor an authenticator."""
    return start()


@pytest.fixture
def join() -> Iterator[Join]:
    """Connect clients that leave with the test: `join(gateway, auth)`."""
    with ExitStack() as joined:
        yield lambda gateway, auth=None, *rest, **options: joined.enter_context(RawClient(gateway.url, auth, *rest, **options))


def health(gateway: GatewayProcess) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{gateway.url}/healthz", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


# Acknowledgements --------------------------------------------------------------------------------------------------------


def test_a_client_whose_queue_is_full_has_its_answers_ahead_of_what_waits(
    gateway: GatewayProcess, join: Join, publisher: Publisher
) -> None:
    """By the control lane: it hears that it has subscribed, and its connection lives."""
    witness = join(gateway, {"subscriptions": [{"pattern": "full.*"}]})
    assert witness.welcome
    stalled = WebSocket(int(gateway.url.rpartition(":")[2]), receive_buffer_bytes=4096)
    with closing(stalled):
        stalled.send(f'40/{NAMESPACE},{{"subscriptions":[{{"pattern":"full.*","overflow":"drop"}}]}}')
        while '"welcome"' not in stalled.text():
            pass
        for number in range(600):
            publisher.publish("full.1", {"number": number, "padding": "x" * 2000})
        witness.wait_for_events(600)
        stalled.send(f'42/{NAMESPACE},1["subscribe",{{"pattern":"other"}}]')
        stalled.send(f'42/{NAMESPACE},2["publish",{{"topic":"full.2","data":0}}]')
        witness.wait_for_events(601)  # requests go one by one: what the first is answered is in the queue
        packets: list[str] = []
        while '"state":"off"' not in (packets or [""])[-1]:
            packets.append(stalled.text())

    answer = [packet.startswith(f'43/{NAMESPACE},1[{{"ok":true') for packet in packets].index(True)
    assert any('"full.1"' in packet for packet in packets[answer:]), "nothing waited any more"
    assert any('"full.1"' in packet for packet in packets[:answer])


# Joining -----------------------------------------------------------------------------------------------------------------


def test_welcome_says_who_where_and_every_limit(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """Sent once, when the subscriptions of the handshake are in force."""
    receipt = publisher.publish("orders.1", 1)
    client = join(gateway, {"subscriptions": [{"pattern": "orders.*"}, {"pattern": "a..b"}]})

    welcome = client.welcome
    assert client.received[0][0] == "welcome"
    assert welcome["user"] == "anonymous"
    assert welcome["session"]
    assert welcome["epoch"] == receipt.epoch
    assert welcome["offset"] <= receipt.offset
    assert welcome["limits"] == {**Settings().limits(), "inbound_per_s": 1000.0}
    assert welcome["resumed"] is None
    assert welcome["heartbeat_s"] > 0
    good, bad = welcome["subscriptions"]
    assert good == {"pattern": "orders.*", "ok": True}
    assert (bad["pattern"], bad["ok"], bad["error"]["code"]) == ("a..b", False, "invalid_pattern")


def test_a_subscription_of_the_handshake_is_in_force_at_the_welcome(
    gateway: GatewayProcess, join: Join, publisher: Publisher
) -> None:
    """What is published after it arrives."""
    client = join(gateway, {"subscriptions": [{"pattern": "handshake.*"}]})
    assert client.welcome
    receipt = publisher.publish("handshake.7", {"carrier": "UPS", "ß": "\u2028"}, id="event-7")

    ((topic, data, meta),) = client.wait_for_events(1)

    assert (topic, data) == ("handshake.7", {"carrier": "UPS", "ß": "\u2028"})
    assert meta["id"] == "event-7"
    assert meta["offset"] == receipt.offset
    assert isinstance(meta["time"], int)


@pytest.mark.parametrize("wanted", [None, [], {"pattern": "orders.*"}, "orders.*", [7], [None], {"a": 1}, [[]], 3, True])
def test_whatever_stands_in_subscriptions_there_is_a_welcome(gateway: GatewayProcess, join: Join, wanted: object) -> None:
    """A client with a fault of its own is told, not cut off."""
    welcome = join(gateway, {"subscriptions": wanted}).welcome

    assert all(result["ok"] or result["error"]["code"] for result in welcome["subscriptions"])


@pytest.mark.parametrize("auth", ["token", ["a"], True], ids=repr)
def test_auth_that_is_no_object_lets_nobody_in(gateway: GatewayProcess, join: Join, auth: object) -> None:
    """Not a CONNECT of the protocol: the connection ends, as with any other malformed packet."""
    client = join(gateway, auth)
    client.wait_for(lambda: client.closed, "the end of the connection")

    assert not client.connected
    assert client.received == []


def test_an_unknown_namespace_is_refused_in_the_words_of_the_protocol(gateway: GatewayProcess, join: Join) -> None:
    """And the connection lives: another namespace may still be joined over it."""
    client = join(gateway, None, "nobody")
    client.wait_for(lambda: client.refusal, "the refusal")
    assert client.refusal == {"message": "Invalid namespace"}

    client.namespace = NAMESPACE
    client.send_packet(f"40/{NAMESPACE},")

    assert client.welcome


def test_a_gateway_that_nobody_configured_lets_nobody_in(closed: GatewayProcess, join: Join) -> None:
    """Deny by default, with what to do about it."""
    client = join(closed, {"token": "anything"})
    refusal = client.wait_for(lambda: client.refusal, "the refusal")

    assert refusal["data"]["code"] == "unauthorized"
    assert refusal["data"]["retry"] is False
    assert "--dev" in refusal["data"]["message"]
    assert refusal["message"] == refusal["data"]["message"]


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        (None, "missing or not accepted"),
        ({"token": "nobody"}, "missing or not accepted"),
        ({"token": 7}, "missing or not accepted"),
        ({"token": "expired"}, "the token has expired"),
        ({"token": "broken"}, "the authenticator failed"),
    ],
    ids=str,
)
def test_who_is_not_accepted_is_told_so_and_nothing_more(guarded: GatewayProcess, join: Join, auth: object, says: str) -> None:
    """What an authenticator's own fault says stays on the server."""
    client = join(guarded, auth)
    refusal = client.wait_for(lambda: client.refusal, "the refusal")

    assert refusal["data"]["code"] == "unauthorized"
    assert says in refusal["data"]["message"]
    assert "hunter2" not in json.dumps(refusal)
    assert not client.connected


def test_a_page_of_another_origin_is_refused_before_anything_else(gateway: GatewayProcess) -> None:
    """Cross-site WebSocket hijacking."""
    with pytest.raises(InvalidStatus) as refused:
        RawClient(gateway.url, headers={"Origin": "https://evil.example"})

    assert refused.value.response.status_code == 403


# Subscribing -------------------------------------------------------------------------------------------------------------


def test_subscribe_is_acknowledged_with_where_it_begins(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """Every matching event above that offset comes."""
    client = join(gateway)
    answer = client.subscribe("begins.#")
    receipts = [publisher.publish(f"begins.{n}", n) for n in range(5)]

    events = client.wait_for_events(5)

    assert {key: answer[key] for key in ("ok", "pattern", "epoch")} == {
        "ok": True, "pattern": "begins.#", "epoch": receipts[0].epoch,
    }  # fmt: skip
    assert [meta["offset"] for _, _, meta in events] == [receipt.offset for receipt in receipts]
    assert answer["offset"] < events[0][2]["offset"]


def test_unsubscribe_ends_it(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """What comes afterwards is for the other subscription only."""
    client = join(gateway)
    client.subscribe("ended.*")
    client.subscribe("kept.*")
    assert client.request("unsubscribe", {"pattern": "ended.*"}) == {"ok": True, "pattern": "ended.*"}
    publisher.publish("ended.1", "not for you")
    publisher.publish("kept.1", "for you")

    events = client.wait_for_events(1)

    assert [topic for topic, _, _ in events] == ["kept.1"]


def test_to_unsubscribe_from_what_was_never_subscribed_is_no_fault(gateway: GatewayProcess, join: Join) -> None:
    """The outcome is the one that was asked for."""
    assert join(gateway).request("unsubscribe", {"pattern": "never"}) == {"ok": True, "pattern": "never"}


def test_overlapping_subscriptions_bring_an_event_once(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """Each at most once, however many patterns match."""
    client = join(gateway)
    for pattern in ("lapped.#", "lapped.*", "lapped.1", "#"):
        client.subscribe(pattern)
    publisher.publish("lapped.1", "once")
    publisher.publish("lapped.1", "end")

    client.wait_for(lambda: any(data == "end" for _, data, _ in client.events), "the last event")
    assert [data for topic, data, _ in client.events if topic == "lapped.1"] == ["once", "end"]


REFUSALS: dict[str, tuple[str, list[Any], str]] = {
    "subscribe to nothing": ("subscribe", [{}], "invalid_pattern"),
    "subscribe to a number": ("subscribe", [{"pattern": 7}], "invalid_pattern"),
    "subscribe to an empty word": ("subscribe", [{"pattern": "a..b"}], "invalid_pattern"),
    "subscribe to a half wildcard": ("subscribe", [{"pattern": "a.b*"}], "invalid_pattern"),
    "subscribe to nine words": ("subscribe", [{"pattern": "1.2.3.4.5.6.7.8.9"}], "invalid_pattern"),
    "subscribe with an unknown policy": ("subscribe", [{"pattern": "a", "overflow": "keep"}], "invalid_request"),
    "subscribe with a policy of a wrong type": ("subscribe", [{"pattern": "a", "overflow": []}], "invalid_request"),
    "subscribe with an unknown field": ("subscribe", [{"pattern": "a", "policy": "drop"}], "invalid_request"),
    "subscribe without an object": ("subscribe", ["orders.*"], "invalid_request"),
    "subscribe with two arguments": ("subscribe", [{"pattern": "a"}, {}], "invalid_request"),
    "subscribe without an argument": ("subscribe", [], "invalid_request"),
    "unsubscribe from an invalid pattern": ("unsubscribe", [{"pattern": "a b"}], "invalid_pattern"),
    "unsubscribe without an object": ("unsubscribe", [None], "invalid_request"),
    "publish nothing": ("publish", [{}], "invalid_request"),
    "publish without data": ("publish", [{"topic": "a"}], "invalid_request"),
    "publish to a pattern": ("publish", [{"topic": "a.*", "data": 1}], "invalid_topic"),
    "publish to a number": ("publish", [{"topic": 1, "data": 1}], "invalid_topic"),
    "publish with an unknown field": ("publish", [{"topic": "a", "data": 1, "namespace": "b"}], "invalid_request"),
    "publish with an id that is none": ("publish", [{"topic": "a", "data": 1, "id": "a b"}], "invalid_event"),
    "publish with an id of a wrong type": ("publish", [{"topic": "a", "data": 1, "id": 7}], "invalid_event"),
    "ask for what does not exist": ("shout", [{"topic": "a"}], "invalid_request"),
}


@pytest.mark.parametrize(("name", "arguments", "code"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_bad_request_is_refused_in_its_acknowledgement(
    gateway: GatewayProcess, join: Join, name: str, arguments: list[Any], code: str
) -> None:
    """With a code, a text and whether to try again; the connection lives."""
    client = join(gateway)
    answer = client.request(name, *arguments)

    assert answer["ok"] is False
    assert answer["error"]["code"] == code
    assert answer["error"]["retry"] is False
    assert answer["error"]["message"]
    assert client.subscribe("still.alive")


def test_a_refusal_names_the_pattern_as_it_was_sent(gateway: GatewayProcess, join: Join) -> None:
    """So that a page can find out which of its subscriptions is meant."""
    assert join(gateway).request("subscribe", {"pattern": "a..b"})["error"]["pattern"] == "a..b"


def test_a_request_without_an_acknowledgement_is_obeyed(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """Some clients do not ask for one."""
    client = join(gateway)
    client.send_packet(f'42/{NAMESPACE},["subscribe",{{"pattern":"quiet.*"}}]')
    client.subscribe("after")  # requests of one client are taken in order
    publisher.publish("quiet.1", 1)

    assert client.wait_for_events(1)[0][0] == "quiet.1"


def test_a_client_that_leaves_the_namespace_gets_nothing_more(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """And may come back over the same connection."""
    client = join(gateway, {"subscriptions": [{"pattern": "left.*"}]})
    assert client.welcome
    client.send_packet(f"41/{NAMESPACE},")
    wait_until(lambda: health(gateway)[1]["namespaces"][NAMESPACE]["clients"] == 0, "the client to be forgotten")
    publisher.publish("left.1", "not for you")
    client.send_packet(f"40/{NAMESPACE}," + json.dumps({"subscriptions": [{"pattern": "back.*"}]}))
    client.wait_for(lambda: len(client.named("welcome")) == 2, "another welcome")
    publisher.publish("back.1", "for you")

    assert [topic for topic, _, _ in client.wait_for_events(1)] == ["back.1"]


def test_a_second_connect_is_refused_and_the_first_stands(gateway: GatewayProcess, join: Join) -> None:
    """Without a fault of ours in the log: anyone may send one."""
    client = join(gateway)
    assert client.welcome
    client.send_packet(f"40/{NAMESPACE},")
    client.wait_for(lambda: client.refusal, "the refusal")
    client.subscribe("orders.*")
    assert len(client.named("welcome")) == 1
    assert "Traceback" not in gateway.output


# Grants and limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["orders.#", "orders", "orders.*", "orders.*.shipped", "stock.*", "stock.1"])
def test_what_a_grant_contains_may_be_subscribed_to(guarded: GatewayProcess, join: Join, pattern: str) -> None:
    """Pattern in pattern."""
    client = join(guarded, {"token": "clerk"})
    assert client.welcome["user"] == "clerk"

    client.subscribe(pattern)


@pytest.mark.parametrize("pattern", ["#", "*", "*.1", "#.orders", "stock.#", "stock", "stock.*.*", "users.1", "orders2.#"])
def test_what_no_grant_contains_is_forbidden(guarded: GatewayProcess, join: Join, publisher: Publisher, pattern: str) -> None:
    """Also when some of its topics would be allowed; and nothing of it arrives."""
    client = join(guarded, {"token": "clerk", "subscriptions": [{"pattern": pattern}]})
    answer = client.request("subscribe", {"pattern": pattern})
    assert client.welcome["subscriptions"][0]["error"]["code"] == answer["error"]["code"] == "forbidden"
    assert answer["error"]["name"] == pattern
    client.subscribe("orders.end")
    for topic in ("stock", "users.1", "stock.1.1", "orders.end"):
        publisher.publish(topic, 1)

    assert [topic for topic, _, _ in client.wait_for_events(1)] == ["orders.end"]


def test_a_guest_without_grants_may_join_and_do_nothing(guarded: GatewayProcess, join: Join) -> None:
    """Nothing by default."""
    client = join(guarded, {"token": "guest"})

    assert client.request("subscribe", {"pattern": "orders.1"})["error"]["code"] == "forbidden"
    assert client.request("publish", {"topic": "orders.1.seen", "data": 1})["error"]["code"] == "forbidden"


def test_subscriptions_and_wildcards_are_limited_each_by_name(guarded: GatewayProcess, join: Join) -> None:
    """The limits were told in the welcome; subscribing again to the same pattern, or after leaving another, is free."""
    client = join(guarded, {"token": "clerk"})
    assert (client.welcome["limits"]["max_subscriptions"], client.welcome["limits"]["max_wildcards"]) == (4, 2)
    client.subscribe("orders.*")
    client.subscribe("orders.*.*")
    error = client.request("subscribe", {"pattern": "stock.*"})["error"]
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "wildcards", 2)
    client.subscribe("orders.*", overflow="latest")
    client.subscribe("orders.1")
    client.subscribe("orders.2")
    error = client.request("subscribe", {"pattern": "orders.3"})["error"]
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "subscriptions", 4)
    assert client.request("unsubscribe", {"pattern": "orders.*"})["ok"] is True

    client.subscribe("stock.*")


# Publishing --------------------------------------------------------------------------------------------------------------


def test_a_granted_publish_is_acknowledged_with_a_receipt(guarded: GatewayProcess, join: Join) -> None:
    """Epoch, offset and id; the same id again is the same event, and reaches nobody twice."""
    client = join(guarded, {"token": "clerk", "subscriptions": [{"pattern": "orders.*.seen"}]})
    assert client.welcome
    first = client.request("publish", {"topic": "orders.1.seen", "data": {"by": "clerk"}, "id": "seen-1"})
    again = client.request("publish", {"topic": "orders.1.seen", "data": {"by": "clerk"}, "id": "seen-1"})
    client.request("publish", {"topic": "orders.2.seen", "data": None})

    events = client.wait_for_events(2)

    assert first == {"ok": True, "id": "seen-1", "epoch": first["epoch"], "offset": events[0][2]["offset"], "duplicate": False}
    assert again == {**first, "duplicate": True}
    assert [topic for topic, _, _ in events] == ["orders.1.seen", "orders.2.seen"]


@pytest.mark.parametrize("topic", ["orders.1", "orders.seen", "orders.1.2.seen", "stock.1"])
def test_a_publish_outside_the_grants_is_forbidden(guarded: GatewayProcess, join: Join, topic: str) -> None:
    """To subscribe to a topic does not mean to write to it."""
    answer = join(guarded, {"token": "clerk"}).request("publish", {"topic": topic, "data": 1})

    assert (answer["error"]["code"], answer["error"]["name"]) == ("forbidden", topic)


@pytest.mark.parametrize("excess", [0, 1, 60_000])
def test_a_payload_above_the_limit_is_refused_by_the_gateway_and_the_connection_lives(
    gateway: GatewayProcess, join: Join, excess: int
) -> None:
    """Size, limit and where; at the limit itself it passes. Counted in bytes of UTF-8."""
    client = join(gateway)
    data = "é" * 32767 + "x" * excess  # 65,536 bytes of JSON with its quotes
    answer = client.request_text(json.dumps(["publish", {"topic": "big", "data": data}], ensure_ascii=False))

    if excess:
        error = answer["error"]
        assert (error["code"], error["size"], error["limit"], error["where"]) == (
            "payload_too_large", 65536 + excess, 65536, "gateway",
        )  # fmt: skip
    else:
        assert answer["ok"] is True
    client.subscribe("still.alive")


@pytest.mark.parametrize(
    "data", ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"', "[" * 65 + "]" * 65], ids=lambda data: data[:9]
)
def test_data_that_is_not_strict_json_is_refused_and_the_connection_lives(gateway: GatewayProcess, join: Join, data: str) -> None:
    """A lenient parser on the way must not let through what a browser could not read."""
    client = join(gateway)
    answer = client.request_text('["publish",{"topic":"a","data":' + data + "}]")

    assert answer["error"]["code"] == "not_serializable"
    client.subscribe("still.alive")


def test_a_message_nested_beyond_every_parser_harms_nobody_else(gateway: GatewayProcess, join: Join) -> None:
    """Its sender may be cut off; the gateway and the others go on."""
    other, hostile = join(gateway), join(gateway)
    assert hostile.welcome
    hostile.send_packet(f"42/{NAMESPACE},1" + '["publish",{"topic":"a","data":' + "[" * 50_000 + "]" * 50_000 + "}]")

    hostile.wait_for(lambda: hostile.closed or hostile._acks, "an end or an answer")
    other.subscribe("still.alive")
    assert "Traceback" not in gateway.output


# Other ways in -----------------------------------------------------------------------------------------------------------


def test_a_plain_publish_from_any_redis_client_arrives_without_an_offset(
    gateway: GatewayProcess, join: Join, commands: Client
) -> None:
    """Live only, at most once, and marked so: no offset, no id."""
    client = join(gateway)
    client.subscribe("plain.*")
    call(commands, "PUBLISH", channel(NAMESPACE, "plain.5"), '{"plain": [1, 2]}')

    ((topic, data, meta),) = client.wait_for_events(1)

    assert (topic, data) == ("plain.5", {"plain": [1, 2]})
    assert "offset" not in meta
    assert meta["id"] is None


def test_one_fcall_from_any_redis_client_is_like_any_other_event(gateway: GatewayProcess, join: Join, commands: Client) -> None:
    """What docs/protocol.md shows with redis-cli."""
    client = join(gateway)
    client.subscribe("fcall.*")
    _, offset, _ = call(commands, "FCALL", "headgate_publish", 1, log_key(NAMESPACE), "fcall.6", '{"a":1}', "cli-6")

    ((topic, data, meta),) = client.wait_for_events(1)

    assert (topic, data, meta["offset"], meta["id"]) == ("fcall.6", {"a": 1}, offset, "cli-6")


def test_clients_of_two_gateways_on_one_redis_see_the_same_events(
    gateway: GatewayProcess, guarded: GatewayProcess, join: Join
) -> None:
    """Published through one, seen through both, at the same offsets."""
    here, there = join(gateway), join(guarded, {"token": "clerk"})
    here.subscribe("orders.both.*")
    there.subscribe("orders.both.*")
    for n in range(20):
        assert here.request("publish", {"topic": f"orders.both.{n}", "data": n})["ok"] is True

    seen_here, seen_there = here.wait_for_events(20), there.wait_for_events(20)

    assert seen_here == seen_there
    assert [data for _, data, _ in seen_here] == list(range(20))


# An entry that nobody can deliver, with its offset in one step: a fence between the two would find nothing there.
HOLE = (
    "local offset = redis.call('HINCRBY', KEYS[2], 'offset', 1) "
    "redis.call('XADD', KEYS[1], offset .. '-0', 'topic', 'hole.1', 'id', 'x', 'time', '1', 'data', 'rubbish') return offset"
)

# Bad times ---------------------------------------------------------------------------------------------------------------


def test_an_entry_that_cannot_be_delivered_is_told_in_its_place_as_a_gap(
    gateway: GatewayProcess, join: Join, commands: Client, publisher: Publisher
) -> None:
    """Between the event before and the event after it; nothing can bring it back.

    Seen where the whole feed is listened to: on a narrower one what was never published looks like what nobody here wants.
    """
    client = join(gateway)
    client.subscribe("#")
    publisher.publish("hole.1", "before")
    hole = call(commands, "EVAL", HOLE, 2, log_key(NAMESPACE), head_key(NAMESPACE))
    publisher.publish("hole.1", "after")
    client.wait_for(lambda: any(data == "after" for _, data, _ in client.events), "the last event")

    # On the whole feed, what earlier tests published may come first.
    before, (kind, gap), after = [entry for entry in client.received if entry[0] in ("event", "gap")][-3:]

    assert (before[2], kind, after[2]) == ("before", "gap", "after")
    assert (gap["from"], gap["to"], gap["count"], gap["reason"], gap["recoverable"]) == (hole, hole, 1, "quarantined", False)


def test_a_lost_log_is_told_once_to_each_client_and_then_it_is_live(
    gateway: GatewayProcess, join: Join, commands: Client, publisher: Publisher
) -> None:
    """A gap, where the new log stands, and every event of the new log."""
    clients = [join(gateway) for _ in range(3)]
    for client in clients:
        client.subscribe("lost.*")
    publisher.publish("lost.1", "old")
    for client in clients:
        client.wait_for_events(1)
    call(commands, "FLUSHALL")
    for client in clients:
        client.wait_for(lambda client=client: client.named("gap"), "word of the lost log")  # type: ignore[misc]
    receipt = publisher.publish("lost.1", "new")

    for client in clients:
        client.wait_for_events(2)
        # Each also gets a cursor every ten seconds.
        told = [entry for entry in client.received if entry[0] in ("event", "gap")]
        assert [entry[0] for entry in told] == ["event", "gap", "event"]
        assert (told[1][1]["reason"], told[1][1]["recoverable"]) == ("log_lost", False)
        assert client.received[client.received.index(told[1]) + 1] == ["cursor", {"epoch": receipt.epoch, "offset": 0}]
        assert (told[2][2], told[2][3]["offset"]) == ("new", 1)


def test_a_stopped_redis_is_told_to_clients_and_to_readiness(
    start_gateway: StartGateway, tmp_path_factory: pytest.TempPathFactory, join: Join
) -> None:
    """Down and up again, no socket lost, and what was published meanwhile arrives."""
    with ExitStack() as started:
        redis = started.enter_context(start_private_redis(tmp_path_factory.mktemp("r")))
        started.callback(os.kill, redis.pid, signal.SIGCONT)
        settings = {"HEADGATE_REDIS_URL": redis.url, "HEADGATE_PING_TIMEOUT_S": "60"}
        gateway = start_gateway(settings, "--dev")
        client = join(gateway)
        client.subscribe("orders.*")
        os.kill(redis.pid, signal.SIGSTOP)
        # On a slow machine the bus may be given up, and come back, now and then by itself.
        client.wait_for(lambda: client.named("status")[-1:] == [[{"bus": "down"}]], "word that the bus is down")
        assert health(gateway)[0] == 503
        newcomer = join(gateway)
        newcomer.wait_for(lambda: newcomer.named("status") == [[{"bus": "down"}]], "the same word to who comes meanwhile")
        answer = client.request("publish", {"topic": "orders.1", "data": "refused or late"})
        assert (answer["ok"], answer["error"]["code"], answer["error"]["retry"]) == (False, "bus_unavailable", True)

        told = len(client.named("status"))
        os.kill(redis.pid, signal.SIGCONT)
        client.wait_for(lambda: [{"bus": "up"}] in client.named("status")[told:], "word that it is up again")
        assert client.request("publish", {"topic": "orders.1", "data": "after"})["ok"] is True

        client.wait_for(lambda: client.events and client.events[-1][1] == "after", "the event")
        wait_until(lambda: health(gateway)[0] == 200, "readiness")
        offsets = [meta["offset"] for _, _, meta in client.events]
        assert offsets == list(range(1, len(offsets) + 1))
        assert client.closed is None
