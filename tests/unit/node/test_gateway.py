"""A gateway, its parts put together: requests of clients in, acknowledgements, events and notices out.

In the test's own process, on a model of Redis (tests/support/gateway_here.py). test_joining.py has the way in.
"""

import json
from typing import Any

import gevent
import pytest
import structlog
from gevent.event import Event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from headgate.auth.identity import Handshake, Identity, PageRequest
from headgate.delivery.live_feed import cursor_turns
from headgate.delivery.page_cache import PAGE_OFFSETS
from headgate.errors import BusUnavailable
from headgate.node.gateway import Gateway
from headgate.runtime.log_throttle import LogThrottle
from headgate.settings.settings import Settings
from tests.support.any_json import BODIES, FIELDS, TEXT, VALUES
from tests.support.gateway_here import ENVIRON, ClientHere, GatewayOnModel, StartGatewayOnModel
from tests.support.model_redis import NAMESPACE, ModelRedis

# Half a surrogate pair, as a browser's JSON spells it.
LONE = "\ud800"
GRANTS = {
    "clerk": Identity("clerk", subscribe=("orders.#", "stock.*"), publish=("orders.*.seen",)),
    "guest": Identity("guest"),
}


def guard(handshake: Handshake) -> Identity | None:
    """The token is the user's name."""
    return GRANTS.get(handshake.token or "")


def told(client: ClientHere, *names: str) -> list[str]:
    """Return the names of the messages of these kinds, in order."""
    return [kind for kind, *_ in client.received if kind in names]


# Subscribing -------------------------------------------------------------------------------------------------------------


def test_subscribe_is_acknowledged_with_the_offset_above_which_events_come(gateway: GatewayOnModel) -> None:
    """Every matching event above that offset comes."""
    gateway.publish(3, "begins.0")
    client = gateway.join()
    answer = client.subscribe("begins.#")
    offsets = gateway.publish(5, "begins.1")

    client.wait_for_events(5)

    assert answer == {"ok": True, "pattern": "begins.#", "epoch": gateway.redis.epoch, "offset": 3}
    assert client.offsets == offsets


def test_unsubscribe_ends_it(gateway: GatewayOnModel) -> None:
    """Events that come afterwards are for the other subscription only."""
    client = gateway.join()
    client.subscribe("ended.*")
    client.subscribe("kept.*")
    assert client.request("unsubscribe", {"pattern": "ended.*"}) == {"ok": True, "pattern": "ended.*"}
    assert client.request("unsubscribe", {"pattern": "never"}) == {"ok": True, "pattern": "never"}
    gateway.publish(1, "ended.1")
    gateway.publish(1, "kept.1")

    assert [topic for topic, _, _ in client.wait_for_events(1)] == ["kept.1"]


def test_a_request_without_an_acknowledgement_is_obeyed(gateway: GatewayOnModel) -> None:
    """Some clients do not ask for one; the requests of one client are taken in order."""
    client = gateway.join()
    client.send_packet(f'42/{NAMESPACE},["subscribe",{{"pattern":"quiet.*"}}]')
    client.subscribe("after")
    gateway.publish(1, "quiet.1")

    assert client.wait_for_events(1)[0][0] == "quiet.1"


@pytest.mark.parametrize("pattern", ["#", "*", "*.1", "#.orders", "stock.#", "stock", "stock.*.*", "users.1", "orders2.#"])
def test_a_pattern_outside_every_grant_is_forbidden(gateway_on_model: StartGatewayOnModel, pattern: str) -> None:
    """Also when some of its topics would be allowed; and nothing of it arrives."""
    gateway = gateway_on_model(guard)
    client = gateway.join({"token": "clerk", "subscriptions": [{"pattern": pattern}]})
    answer = client.request("subscribe", {"pattern": pattern})
    assert client.welcome["subscriptions"][0]["error"]["code"] == answer["error"]["code"] == "forbidden"
    assert answer["error"]["name"] == pattern
    client.subscribe("orders.end")
    for topic in ("stock", "users.1", "stock.1.1", "orders.end"):
        gateway.publish(1, topic)

    assert [topic for topic, _, _ in client.wait_for_events(1)] == ["orders.end"]


def test_a_guest_without_grants_may_join_and_do_nothing(gateway_on_model: StartGatewayOnModel) -> None:
    """Nothing by default."""
    client = gateway_on_model(guard).join({"token": "guest"})

    assert client.request("subscribe", {"pattern": "orders.1"})["error"]["code"] == "forbidden"
    assert client.request("publish", {"topic": "orders.1.seen", "data": 1})["error"]["code"] == "forbidden"


def test_subscriptions_and_wildcards_are_limited_each_by_name(gateway_on_model: StartGatewayOnModel) -> None:
    """The welcome had the limits; subscribing again to the same pattern, or after leaving another, is free."""
    client = gateway_on_model(guard, max_subscriptions=8).join({"token": "clerk"})
    assert (client.welcome["limits"]["max_subscriptions"], client.welcome["limits"]["max_wildcards"]) == (8, 2)
    client.subscribe("orders.*")
    client.subscribe("orders.*.*")
    error = client.request("subscribe", {"pattern": "stock.*"})["error"]
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "wildcards", 2)
    client.subscribe("orders.*", overflow="latest")
    for number in range(6):
        client.subscribe(f"orders.{number}")
    error = client.request("subscribe", {"pattern": "orders.6"})["error"]
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "subscriptions", 8)
    assert not error["retry"], "only the client itself can make room"
    assert "retry_after_s" not in error
    assert client.request("unsubscribe", {"pattern": "orders.*"})["ok"] is True

    client.subscribe("stock.*")


# Refused -----------------------------------------------------------------------------------------------------------------

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
    "subscribe to half a surrogate pair": ("subscribe", [{"pattern": LONE}], "invalid_request"),
    "unsubscribe from an invalid pattern": ("unsubscribe", [{"pattern": "a b"}], "invalid_pattern"),
    "unsubscribe without an object": ("unsubscribe", [None], "invalid_request"),
    "unsubscribe from half a surrogate pair": ("unsubscribe", [{"pattern": LONE}], "invalid_request"),
    "replay of half a surrogate pair": ("replay", [{"pattern": LONE, "from": 1, "to": 2}], "invalid_request"),
    "publish nothing": ("publish", [{}], "invalid_request"),
    "publish without data": ("publish", [{"topic": "a"}], "invalid_request"),
    "publish to a pattern": ("publish", [{"topic": "a.*", "data": 1}], "invalid_topic"),
    "publish to a number": ("publish", [{"topic": 1, "data": 1}], "invalid_topic"),
    "publish to half a surrogate pair": ("publish", [{"topic": LONE, "data": 1}], "invalid_request"),
    "publish with an unknown field": ("publish", [{"topic": "a", "data": 1, "namespace": "b"}], "invalid_request"),
    "publish with an id that is none": ("publish", [{"topic": "a", "data": 1, "id": "a b"}], "invalid_event"),
    "publish with an id of a wrong type": ("publish", [{"topic": "a", "data": 1, "id": 7}], "invalid_event"),
    "publish with half a surrogate pair as id": ("publish", [{"topic": "a", "data": 1, "id": LONE}], "invalid_request"),
    "publish with a number for ephemeral": ("publish", [{"topic": "a", "data": 1, "ephemeral": 1}], "invalid_request"),
    "publish with a text for ephemeral": ("publish", [{"topic": "a", "data": 1, "ephemeral": "yes"}], "invalid_request"),
    "publish with null for ephemeral": ("publish", [{"topic": "a", "data": 1, "ephemeral": None}], "invalid_request"),
    "cancel nothing": ("cancel", [{}], "invalid_event"),
    "cancel a number": ("cancel", [{"id": 7}], "invalid_event"),
    "cancel an id that is none": ("cancel", [{"id": "a b"}], "invalid_event"),
    "cancel a name": ("cancel", [{"id": "r1", "name": "orders.price"}], "invalid_request"),
    "refresh with half a surrogate pair": ("refresh", [{"token": LONE}], "invalid_request"),
    "half a surrogate pair seen": ("seen", [{"ids": [LONE]}], "invalid_request"),
    "ask for what does not exist": ("shout", [{"topic": "a"}], "invalid_request"),
    "ask for half a surrogate pair": (LONE, [{}], "invalid_request"),
}


@pytest.mark.parametrize(("name", "arguments", "code"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_bad_request_is_refused(gateway_on_model: StartGatewayOnModel, name: str, arguments: list[Any], code: str) -> None:
    """With a code, a text and whether to try again; the connection lives, no log has a line of it, and Redis' log no event."""
    with capture_logs() as lines:
        gateway = gateway_on_model()
        client = gateway.join()
        answer = client.request(name, *arguments)

    assert answer["ok"] is False
    assert (answer["error"]["code"], answer["error"]["retry"]) == (code, False)
    assert answer["error"]["message"]
    assert client.subscribe("still.alive")
    assert [line["event"] for line in lines] == ["bus up"]
    assert gateway.redis.log == {}


def test_a_refusal_names_the_pattern_as_it_was_sent(gateway_on_model: StartGatewayOnModel) -> None:
    """So that a page can find out which of its subscriptions is meant."""
    answer = gateway_on_model().join().request("subscribe", {"pattern": "a..b"})
    assert answer["error"]["pattern"] == "a..b"


@pytest.mark.parametrize(
    "request_", [["subscribe", {"pattern": 7}], ["publish", {"topic": "a.*", "data": 1}], ["replay", {}], ["no such request", {}]]
)
def test_every_kind_of_refusal_counts(gateway_on_model: StartGatewayOnModel, request_: list[Any]) -> None:
    """The last one is answered like the others, and then it is over."""
    client = gateway_on_model(max_subscriptions=3).join()
    for _ in range(6):
        assert not client.request_text(json.dumps(request_))["ok"]
    while client.closed is None:  # one more is enough, but for those that have been forgiven since
        number = client.send_request(json.dumps(request_))
        client.wait_for(lambda number=number: number in client.acknowledged or client.closed, "an answer, or the end")  # type: ignore[misc]
    assert client.closed == (1008, "limit_reached: refusals (at most 6)")


def test_a_client_refused_too_often_is_ended_also_if_it_joins_again(gateway_on_model: StartGatewayOnModel) -> None:
    """The connection counts."""
    wrong = {"subscriptions": [{"pattern": f"a..{number}"} for number in range(128)]}
    client = gateway_on_model().join(wrong)
    assert client.welcome["limits"]["max_refusals"] == 256
    for _ in range(2):
        client.send_packet(f"41/{NAMESPACE},")
        client.send_packet(f"40/{NAMESPACE}," + json.dumps(wrong))
    client.wait_for(lambda: client.closed, "the end")
    assert client.closed == (1008, "limit_reached: refusals (at most 256)")


def test_a_flood_of_subscribes_ends_its_sender(gateway: GatewayOnModel) -> None:
    """With the limit's name as the reason; its subscriptions end with it."""
    client = gateway.join()
    assert client.welcome
    number = 0
    while client.closed is None:
        for _ in range(50):
            number += 1
            client.send_packet(f'42/{NAMESPACE},["subscribe",{{"pattern":"a.{number % 100}"}}]')
        client.read()
    assert client.closed == (1008, "limit_reached: rate (at most 50/s, burst 100)")
    client.leave()
    gateway.wait_until(lambda: not gateway.namespace.clients, "the client to be forgotten")
    gateway.wait_until(lambda: not gateway.namespace.subscriptions.count, "its subscriptions to end")


NAMES = st.sampled_from(["subscribe", "unsubscribe", "replay", "publish", "refresh"]) | TEXT
AUTHS = st.dictionaries(
    st.sampled_from(["token", "resume", "subscriptions"]) | TEXT,
    VALUES | st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3), max_size=3),
    max_size=4,
)
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class OpenGateway:
    """A gateway that lets a client ask, and be refused, as often as it likes; and one client of it."""

    def __init__(self, gateway: GatewayOnModel) -> None:
        self.gateway = gateway
        self.client = gateway.join()
        assert self.client.welcome


@pytest.fixture
def open_gateway(gateway_on_model: StartGatewayOnModel) -> OpenGateway:
    """The same for every example of a test."""
    return OpenGateway(gateway_on_model(inbound_per_s=100_000.0, max_subscriptions=50_000))


@FUZZ
@given(NAMES, BODIES)
def test_every_request_is_acknowledged(open_gateway: OpenGateway, name: str, body: Any) -> None:
    """`ok`, or an error with a code, names that belong to Socket.IO included."""
    with capture_logs() as lines:
        answer = open_gateway.client.request(name, body)
    assert answer["ok"] is True or isinstance(answer["error"]["code"], str)
    assert lines == []


@settings(FUZZ, max_examples=50)
@given(AUTHS)
def test_every_connect_is_answered(open_gateway: OpenGateway, auth: Any) -> None:
    """A welcome, or CONNECT_ERROR with a code; no line of the log but the audit's."""
    with capture_logs() as lines:
        asked = open_gateway.gateway.join(auth)
        asked.wait_for(lambda: asked.refusal or asked.named("welcome"), "an answer")
        asked.leave()
    assert asked.refusal is None or isinstance(asked.refusal["data"]["code"], str)
    assert {line["event"] for line in lines} <= {"login refused"}


# The past ----------------------------------------------------------------------------------------------------------------


def ten_events(gateway: GatewayOnModel) -> None:
    """Odd offsets are orders, even ones bills."""
    for number in range(1, 11):
        gateway.publish(1, "orders.1" if number % 2 else "bills.1")


@pytest.mark.parametrize(
    ("since", "pattern", "expected"),
    [
        ({"offset": 6}, "#", [7, 8, 9, 10, 11, 12]),
        ({"time": 0}, "bills.*", [2, 4, 6, 8, 10, 12]),
        ({"last": 2}, "orders.*", [7, 9, 11]),
    ],
)
def test_a_subscription_begins_in_the_past_and_goes_on_live(
    gateway: GatewayOnModel, since: Any, pattern: str, expected: list[int]
) -> None:
    """In order, each once, with no seam between."""
    ten_events(gateway)
    client = gateway.join()
    assert client.request("subscribe", {"pattern": pattern, "since": since})["ok"]
    gateway.publish(1, "orders.1")
    gateway.publish(1, "bills.1")
    client.wait_for_events(len(expected))
    client.request("unsubscribe", {"pattern": "nothing"})  # whatever was under way has come before this answer
    assert client.offsets == expected


def test_a_range_is_replayed_in_the_acknowledgement(gateway: GatewayOnModel) -> None:
    """Topic, data and meta of the events that match; `next` is null when that was all."""
    ten_events(gateway)
    client = gateway.join()
    answer = client.request("replay", {"pattern": "orders.*", "from": 3, "to": 8})
    assert answer["ok"]
    assert [(topic, data, meta["offset"], meta["id"], meta["replayed"]) for topic, data, meta in answer["events"]] == [
        ("orders.1", 1, 3, "id3", True), ("orders.1", 1, 5, "id5", True), ("orders.1", 1, 7, "id7", True),
    ]  # fmt: skip
    assert answer["next"] is None
    assert client.offsets == []


def test_a_long_range_is_replayed_page_by_page(gateway: GatewayOnModel) -> None:
    """`next` says where to go on; together the pages are the range, each event once, and none is larger than its bound."""
    gateway.publish(260, "orders.1", json.dumps("x" * 1000).encode())
    client = gateway.join()
    found: list[int] = []
    first, pages = 1, 0
    while first is not None:
        answer = client.request("replay", {"pattern": "#", "from": first, "to": 260})
        assert sum(len(str(data)) for _, data, _ in answer["events"]) < 2 * 65536
        found += [meta["offset"] for _, _, meta in answer["events"]]
        first, pages = answer["next"], pages + 1
    assert found == list(range(1, 261))
    assert pages > 3


def test_a_range_that_is_gone_is_replayed_as_nothing(gateway: GatewayOnModel) -> None:
    """The offsets say which events are missing."""
    ten_events(gateway)
    gateway.redis.trim(6)
    client = gateway.join()
    answer = client.request("replay", {"pattern": "#", "from": 1, "to": 6})
    assert ([meta["offset"] for _, _, meta in answer["events"]], answer["next"]) == ([5, 6], None)
    answer = client.request("replay", {"pattern": "#", "from": 1000, "to": 2000})
    assert (answer["events"], answer["next"]) == ([], None)


def offsets_of(answer: Any) -> list[int]:
    """The offsets of the events in an acknowledgement."""
    return [meta["offset"] for *_, meta in answer["events"]]


@pytest.mark.parametrize("before", [{}, {"before": {"offset": 6}}, {"before": {"offset": 1000}}])
def test_the_newest_events_are_part_of_the_past_though_nobody_here_listens(
    gateway: GatewayOnModel, before: dict[str, object]
) -> None:
    """The feed has not heard of them, and another gateway may have shown the position."""
    client = gateway.join()
    gateway.publish(5)
    assert offsets_of(client.request("history", {"pattern": "#", "limit": 2, **before})) == [5, 4]


def test_parts_of_the_past_follow_each_other_when_the_log_goes_on_in_another_epoch(gateway: GatewayOnModel) -> None:
    """A failover between two parts of a scrolled list repeats no event."""
    client = gateway.join()
    gateway.publish(5)
    newest = client.request("history", {"pattern": "#", "limit": 2})
    gateway.server.cut()
    gateway.redis.restart(gateway.redis.ago(0))
    gateway.clock.advance(3)
    gateway.publish(1)
    assert offsets_of(client.request("history", {"pattern": "#", "limit": 2, "before": newest["before"]})) == [3, 2]


def test_the_past_before_a_position_of_another_log_is_refused(gateway: GatewayOnModel) -> None:
    """No events would say that the log has no older ones."""
    client = gateway.join()
    gateway.publish(5)
    before = {"epoch": "0123456789abcdef", "offset": 4}
    error = client.request("history", {"pattern": "#", "before": before})["error"]
    assert (error["code"], error["reason"].split(":")[0]) == ("invalid_request", "before")


def test_a_range_outside_the_grants_is_not_replayed(gateway_on_model: StartGatewayOnModel) -> None:
    """The past is granted as the present is."""
    client = gateway_on_model(guard).join({"token": "clerk"})
    error = client.request("replay", {"pattern": "#", "from": 1, "to": 2})["error"]
    assert (error["code"], error["name"]) == ("forbidden", "#")


# Full queues -------------------------------------------------------------------------------------------------------------

PADDED = json.dumps("x" * 2000).encode()


def test_a_client_whose_queue_is_full_has_its_answers_ahead_of_events(gateway_on_model: StartGatewayOnModel) -> None:
    """By the control lane. It hears that it has subscribed, and its connection lives."""
    gateway = gateway_on_model(queue_frames=16)
    client = gateway.join({"subscriptions": [{"pattern": "full.*", "overflow": "drop"}]}, receive_buffer_bytes=4096)
    assert client.welcome
    client.reading = False
    for _ in range(6):
        gateway.publish(100, "full.1", PADDED)
    number = client.send_request('["subscribe",{"pattern":"other"}]')
    gateway.wait(0.1)
    client.reading = True
    client.wait_for(lambda: number in client.acknowledged and told(client, "gap"), "the answer, and the gap")
    answer = [packet.startswith(f"43/{NAMESPACE},{number}[") for packet in client.packets].index(True)
    assert any('"full.1"' in packet for packet in client.packets[answer:]), "nothing waited any more"
    assert any('"full.1"' in packet for packet in client.packets[:answer])
    assert client.closed is None


def test_a_gap_of_a_drop_subscription_is_repaired_by_replay(gateway_on_model: StartGatewayOnModel) -> None:
    """A client can have every event that it was notified of."""
    gateway = gateway_on_model(queue_frames=16)
    client = gateway.join({"subscriptions": [{"pattern": "orders.*", "overflow": "drop"}]}, receive_buffer_bytes=4096)
    assert client.welcome
    client.reading = False
    for _ in range(6):
        gateway.publish(100, "orders.1", PADDED)
    client.reading = True
    client.wait_for(lambda: client.named("gap"), "a gap")
    ((gap,),) = client.named("gap")
    assert (gap["reason"], gap["recoverable"]) == ("overflow", True)
    repaired: list[int] = []
    first = gap["from"]
    while first is not None:
        answer = client.request("replay", {"pattern": "orders.*", "from": first, "to": gap["to"]})
        repaired += [meta["offset"] for _, _, meta in answer["events"]]
        first = answer["next"]
    assert len(repaired) == gap["count"]
    assert sorted({*client.offsets, *repaired}) == list(range(1, 601))


def test_many_clients_back_at_nearby_positions_cost_redis_a_few_reads(
    gateway: GatewayOnModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tens for all of them together, not some for each."""
    gateway.publish(330)
    reads: list[int] = []
    page = ModelRedis.page

    def count(redis: ModelRedis, after: int, upto: int, epoch: str | None) -> Any:
        reads.append(after)
        return page(redis, after, upto, epoch)

    monkeypatch.setattr(ModelRedis, "page", count)
    clients = [
        gateway.join({"subscriptions": [{"pattern": "#"}], "resume": {"epoch": gateway.redis.epoch, "offset": 3 * (number % 10)}})
        for number in range(100)
    ]
    for number, client in enumerate(clients):
        client.wait_for(lambda client=client: client.offsets[-1:] == [330], "everything")  # type: ignore[misc]
        assert client.offsets == list(range(3 * (number % 10) + 1, 331))
    # The events in pages, and the last page again for each time that it had grown.
    assert 0 < len(reads) <= 2 * (330 // PAGE_OFFSETS + 1) + 10


# Bad times ---------------------------------------------------------------------------------------------------------------


def test_an_entry_that_cannot_be_delivered_is_told_in_its_place_as_a_gap(gateway: GatewayOnModel) -> None:
    """To live clients, and to one that reads it from the log later; nothing can bring it back."""
    live = gateway.join({"subscriptions": [{"pattern": "#"}]})
    epoch = live.welcome["epoch"]
    gateway.publish(1)
    gateway.redis.publish("hole.1", b"rubbish", good=False, live=False)
    gateway.publish(1)
    live.wait_for_events(2)
    late = gateway.join({"subscriptions": [{"pattern": "#"}], "resume": {"epoch": epoch, "offset": 1}})
    late.wait_for_events(1)

    assert told(live, "event", "gap") == ["event", "gap", "event"]
    assert told(late, "event", "gap") == ["gap", "event"]
    for client in (live, late):
        ((gap,),) = client.named("gap")
        assert (gap["from"], gap["to"], gap["count"], gap["reason"], gap["recoverable"]) == (2, 2, 1, "quarantined", False)


def test_a_lost_log_is_told_once_to_each_client_and_then_it_is_live(gateway: GatewayOnModel) -> None:
    """A gap, where the new log stands, and every event of the new log."""
    clients = [gateway.join({"subscriptions": [{"pattern": "lost.*"}]}) for _ in range(3)]
    for client in clients:
        assert client.welcome
    gateway.publish(1, "lost.1")
    gateway.redis.flush()
    gateway.clock.advance(3)
    gateway.publish(1, "lost.1", b'"new"')

    for client in clients:
        client.wait_for_events(2)
        assert told(client, "event", "gap") == ["event", "gap", "event"]
        ((gap,),) = client.named("gap")
        assert (gap["reason"], gap["recoverable"]) == ("log_lost", False)
        behind = client.received[[name for name, *_ in client.received].index("gap") + 1]
        assert behind == ["cursor", {"epoch": gateway.redis.epoch, "offset": 0}]
        assert (client.events[-1][1], client.offsets[-1]) == ("new", 1)


def history(client: ClientHere) -> list[tuple[object, ...]]:
    """The events and gaps of a page, in order: `(id, offset)` of each event, `(reason, from, to)` of each gap."""
    return [
        (rest[2]["id"], rest[2]["offset"]) if name == "event" else (rest[0]["reason"], rest[0]["from"], rest[0]["to"])
        for name, *rest in client.received
        if name in ("event", "gap")
    ]


def test_the_events_of_an_old_primary_that_returns_come_again_after_a_rollback(gateway: GatewayOnModel) -> None:
    """From A to B and back to A. On each line once, and between the two copies the page learns that the first one is gone."""
    redis = gateway.redis
    client = gateway.join({"subscriptions": [{"pattern": "#"}]})
    assert client.welcome
    gateway.publish(3)
    client.wait_for_events(3)
    data_of_a = redis.ago(0)
    for data in (redis.ago(2), data_of_a):
        gateway.server.cut()
        redis.restart(data)
        gateway.clock.advance(3)
        gateway.publish(1)
        client.wait_for(lambda: client.offsets[-1] == redis.offset, "the new line")
    first_of_b = ("id2", 2)
    assert history(client) == [
        *(("id1", 1), ("id2", 2), ("id3", 3)),
        *(("rolled_back", 2, 3), first_of_b),
        *(("rolled_back", 2, 2), ("id2", 2), ("id3", 3), ("id4", 4)),
    ]


def test_events_lost_before_the_gateway_read_them_are_reported_to_nobody(gateway: GatewayOnModel) -> None:
    """It had no connection while they were in the log. Its events are right, and its position follows the line."""
    client = gateway.join({"subscriptions": [{"pattern": "#"}]})
    assert client.welcome
    gateway.publish(2)
    client.wait_for_events(2)
    gateway.server.leave()
    for _ in range(3):
        gateway.redis.publish("orders.1")
    gateway.redis.lose_tail(3)
    gateway.server.away = False
    gateway.clock.advance(5)
    gateway.publish(1)
    client.wait_for_events(3)
    assert history(client) == [("id1", 1), ("id2", 2), ("id3", 3)]
    assert client.named("cursor")[-1][0] == {"epoch": gateway.redis.epoch, "offset": 2}


def test_a_client_that_resumes_is_not_told_of_lost_events_that_it_never_had(gateway: GatewayOnModel) -> None:
    """Another one had them and is notified; this one was disconnected. Its position is on the line, so it has Redis' log."""
    everything = {"subscriptions": [{"pattern": "#"}]}
    witness = gateway.join(everything)
    epoch = witness.welcome["epoch"]
    gateway.publish(5)
    witness.wait_for_events(5)
    gateway.redis.lose_tail(3)
    gateway.clock.advance(5)
    gateway.publish(1)
    witness.wait_for_events(6)
    [(gap,)] = witness.named("gap")
    assert (gap["reason"], gap["from"], gap["to"]) == ("rolled_back", 3, 5)
    client = gateway.join({**everything, "resume": {"epoch": epoch, "offset": 2}})
    client.wait_for_events(1)
    assert client.welcome["resumed"] is True
    assert (history(client), client.named("gap")) == ([("id3", 3)], [])


def test_a_lost_redis_is_told_to_clients_and_readiness_and_loses_nothing(gateway: GatewayOnModel) -> None:
    """Down and up again, no socket lost; the events of the meantime arrive."""
    client = gateway.join({"subscriptions": [{"pattern": "orders.*"}]})
    assert client.welcome
    assert gateway.gateway.ready()["ready"]
    gateway.server.stop()
    gateway.clock.advance(4)
    client.read()
    assert client.named("status") == [[{"bus": "down"}]]
    assert not gateway.gateway.ready()["ready"]
    gateway.redis.publish("orders.1")
    gateway.server.go_on()
    gateway.clock.advance(2)
    gateway.publish()
    client.wait_for_events(2)
    assert client.offsets == [1, 2]
    assert client.named("status") == [[{"bus": "down"}], [{"bus": "up"}]]
    assert gateway.gateway.ready()["ready"]
    assert client.closed is None


def test_the_welcome_comes_before_the_news_that_redis_is_lost(gateway: GatewayOnModel) -> None:
    """To a client that joins while Redis stands still, and once."""
    gateway.server.stop()
    client = gateway.join({"subscriptions": [{"pattern": "orders.*"}]})
    gateway.clock.advance(4)
    client.wait_for(lambda: client.named("welcome"), "the welcome")
    assert [name for name, *_ in client.received] == ["welcome", "status"]
    gateway.server.go_on()
    gateway.clock.advance(3)
    client.read()
    assert client.named("status") == [[{"bus": "down"}], [{"bus": "up"}]]


def test_an_idle_client_in_a_busy_log_is_told_its_position_sooner(
    gateway_on_model: StartGatewayOnModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its point of resume would be trimmed away by events of others within seconds."""
    gateway = gateway_on_model(log_max_events=100)
    monkeypatch.setattr("headgate.node.namespace.monotonic", gateway.clock.time)
    gateway.namespace._due_cursors = cursor_turns(gateway.clock.now_s)
    client = gateway.join({"subscriptions": [{"pattern": "orders.*"}]})
    assert client.welcome
    for _ in range(3):
        gateway.publish(50, "bills.1")
        gateway.clock.advance(2.5)
    client.read()
    assert [cursor["offset"] for (cursor,) in client.named("cursor")] == [50, 100, 150]


# The end, and the rest ---------------------------------------------------------------------------------------------------


def test_a_gateway_that_never_registered_does_not_know_that_it_is_alone(gateway_on_model: StartGatewayOnModel) -> None:
    """Not known is not none; it admits no client from then on."""
    gateway = gateway_on_model().gateway
    assert gateway.retire() is False
    assert gateway.draining


def test_a_page_that_waits_for_a_function_is_moved_after_the_answer(gateway_on_model: StartGatewayOnModel) -> None:
    """By the drain and by the balance after a deploy, which both ask the requests."""
    here, go_on = gateway_on_model(), Event()
    here.gateway.requests.page_requests.answerers = {"orders.price": lambda request: go_on.wait()}
    client = here.join()
    client.wait_for(lambda: client.named("welcome"), "welcome")
    request = PageRequest("orders.price", 1, Identity("ana"), NAMESPACE, "r1")
    here.gateway.requests.page_requests.begin("ana", request, 60.0, client.session)(lambda answer: None)
    population = here.gateway.population
    assert population.drain.asking() == population._rebalancing.asking() == {client.session}
    draining = gevent.spawn(here.gateway.drain, 30.0, alone=True)
    client.read()
    assert told(client, "status") == []
    go_on.set()
    draining.join()
    client.read()
    assert client.named("status") == [[{"moving": {"reason": "restart", "within_s": 0}}]]


def test_a_gateway_without_redis_is_refused() -> None:
    """With the setting to set."""
    with pytest.raises(BusUnavailable, match="HEADGATE_REDIS_URL"):
        Gateway(Settings())


def test_an_open_redis_on_another_machine_is_warned_of(gateway_on_model: StartGatewayOnModel) -> None:
    """Everyone who reaches it publishes, reads and revokes."""
    with capture_logs() as lines:
        gateway_on_model(redis_url="redis://192.0.2.1/0")
    assert [line["at"] for line in lines if line["event"] == "Redis without a password"] == ["192.0.2.1:6379"]


def test_a_request_to_another_host_is_counted_and_the_operator_reads_the_setting(
    gateway: GatewayOnModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line in ten seconds, because strangers can cause it."""
    # The logger of the module keeps the configuration of its first line, which an earlier test may have replaced.
    monkeypatch.setattr("headgate.runtime.logging._log", structlog.get_logger())
    monkeypatch.setattr("headgate.runtime.logging._log_throttle", LogThrottle())
    name, application = "headgate_hosts_refused_total", gateway.gateway.wsgi_app(lambda *_: [b""])
    before = REGISTRY.get_sample_value(name) or 0
    with capture_logs() as lines:
        for _ in range(3):
            list(application({**ENVIRON, "PATH_INFO": "/", "HTTP_HOST": "shop.example.com"}, lambda *_: lambda _: None))
    (line,) = (line for line in lines if line["event"] == "refused")
    assert line["code"] == "unknown_host"
    assert "does not answer as 'shop.example.com'; HEADGATE_HOSTS lists" in line["reason"]
    assert REGISTRY.get_sample_value(name) == before + 3


def test_an_authenticator_may_be_set_before_clients_come(gateway_on_model: StartGatewayOnModel) -> None:
    """And serves the HTTP API as well."""
    gateway = gateway_on_model(dev=False)
    gateway.gateway.set_authenticator(guard)
    assert gateway.gateway.access.logins.authenticator is guard
    assert gateway.join({"token": "clerk"}).welcome["user"] == "clerk"
    assert gateway.gateway.access.logins.identify(Handshake(NAMESPACE, {"token": "guest"}, {})).user == "guest"
