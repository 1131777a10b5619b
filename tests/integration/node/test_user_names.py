"""Users of any name, through a gateway on a real Redis: their events, presence, seen items."""

import pytest

from headgate.auth.identity import Handshake, Identity
from headgate.diagnosis.tracing import trace
from headgate.events.topic import own_topics, pattern, user_word
from headgate.node.presence import presence
from headgate.redis.client import Client
from headgate.redis.inbox import read_user_facts
from headgate.redis.presence import read_page
from headgate.services.publisher import Publisher
from tests.support.bus_here import CooperativeLink
from tests.support.gateway_here import StartGatewayHere

# Each is something's syntax: a topic's, a pattern's, a field's of presence, a key's, JSON's, a page's.
NAMES = ["ana@example.org", "auth0|5f7c", "Ana Müller", "a.b", "#", "*", "ana.#", 'a"b}\\', "👨‍👩‍👧", "me", "__41", "x" * 240]


def somebody(handshake: Handshake) -> Identity | None:
    name = handshake.token or ""
    return Identity(name, (pattern("rooms.{of}.chat", of=user_word(name)[:200]), "rooms.7"))


def test_a_user_of_any_name_gets_its_own_events_and_no_others(
    gateway_here: StartGatewayHere, monkeypatch: pytest.MonkeyPatch, redis_url: str, redis_client: Client
) -> None:
    """Published to the name, granted to it, counted for it, and present under it, with the word on the wire only."""
    monkeypatch.setattr(presence, "SubscriberLink", CooperativeLink)
    gateway = gateway_here(somebody)
    clients = [gateway.join({"token": name, "subscriptions": [{"pattern": own_topics(name)}]}) for name in NAMES]
    for client, name in zip(clients, NAMES, strict=True):
        assert (client.welcome["user"], client.welcome["own"] + "#") == (name, own_topics(name))
        assert client.welcome["subscriptions"] == [{"pattern": own_topics(name), "ok": True}]
        for other in {"ana", *NAMES} - {name}:
            assert client.request("subscribe", {"pattern": own_topics(other)})["error"]["code"] == "forbidden"
        assert client.request("presence", {"topic": "rooms.7", "act": "enter"})["ok"]
        assert client.request("seen", {"ids": ["e1"]}) == {"ok": True, "seen": 1}
        assert read_user_facts(redis_client, "notifications", name, "news", "e1").is_shown
    with Publisher(redis_url) as publisher:
        receipts = [publisher.publish("mail", name, "e1", user=name) for name in NAMES]
    for client, name in zip(clients, NAMES, strict=True):
        assert [(topic, data) for topic, data, _ in client.wait_for_events(1)] == [(f"users.{user_word(name)}.mail", name)]
    gateway.wait_until(lambda: all(len(client.events) == 1 for client in clients), "one event for each")
    assert all(trace(redis_client, "notifications", str(receipt.offset)).shown for receipt in receipts)
    gateway.wait_until(
        lambda: {one.user for one in read_page(redis_client, "notifications", "rooms.7")[1]} == set(NAMES), "all in it"
    )
