"""Presence through gateways on a real Redis: the answers and notices of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.auth.identity import Handshake, Identity
from headgate.node.presence import own_members, presence, rooms
from headgate.redis.client import Client, call
from headgate.services.publisher import Publisher
from tests.support.bus_here import CooperativeLink
from tests.support.gateway_here import ClientHere, GatewayHere, StartGatewayHere

TOPIC = "rooms.7"
Start = Callable[..., GatewayHere]


def somebody(handshake: Handshake) -> Identity | None:
    """The token is the user's name; `rooms.*` is granted, to `guest` only `rooms.8`."""
    token = handshake.token or ""
    return Identity(token, subscribe=("rooms.8",) if token == "guest" else ("rooms.*", "rooms.*.*"))


@pytest.fixture
def start(gateway_here: StartGatewayHere, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a gateway with links that let the loop run."""
    monkeypatch.setattr(presence, "SubscriberLink", CooperativeLink)
    return lambda **settings: gateway_here(somebody, **settings)


def enter(client: ClientHere, topic: str = TOPIC, **more: Any) -> Any:
    """Enter a topic, and return the answer."""
    assert client.welcome
    return client.request("presence", {"topic": topic, "act": "enter", **more})


class Seen:
    """A client's notices since its answer, applied as a page does."""

    def __init__(self, client: ClientHere, answer: Any) -> None:
        assert answer["ok"], answer
        self.client, self.version = client, answer["version"]
        self.members = {user: [connections, meta] for user, connections, _, meta in answer["members"]}
        self._copy, self._taken = answer["copy"], 0

    def wait_for(self, members: dict[str, int]) -> None:
        """Wait until these users are there, with so many connections."""
        self.client.wait_for(lambda: self.look() == members, f"{members}, and not {self.look()}")

    def look(self) -> dict[str, int]:
        notices = self.client.named("presence")
        for (body,) in notices[self._taken :]:
            if body.get("copy") == self._copy and body["version"] > self.version:
                assert body["base"] <= self.version
                self.version = body["version"]
                self.members |= {user: [connections, meta] for user, connections, _, meta in body["members"]}
                for user in body["left"]:
                    self.members.pop(user, None)
        self._taken = len(notices)
        return {user: connections for user, (connections, _) in self.members.items()}


def test_users_on_two_gateways_see_each_other_counted_by_user(start: Start, redis_url: str) -> None:
    """Two tabs of one user are one member with two connections; a meta, and its end, reach the page on the other gateway."""
    here, there = start(), start()
    ana = here.join({"token": "ana"})
    seen = Seen(ana, enter(ana, meta={"at": "door"}))
    assert seen.members == {"ana": [1, '{"at":"door"}']}
    ben, tab = there.join({"token": "ben"}), here.join({"token": "ben"})
    enter(ben, meta=1)
    seen.wait_for({"ana": 1, "ben": 1})
    answer = enter(tab, meta=2)
    assert [member[0] for member in answer["members"]] == ["ana", "ben"]
    seen.wait_for({"ana": 1, "ben": 2})
    assert seen.members["ben"][1] == "2"
    with Publisher(redis_url) as publisher:
        ana.wait_for(lambda: [one.connections for one in publisher.presence(TOPIC)] == [1, 2], "both in Redis")
        assert [(one.user, one.meta) for one in publisher.presence(TOPIC)] == [("ana", {"at": "door"}), ("ben", 2)]
    assert ben.request("presence", {"topic": TOPIC, "act": "leave"})["ok"]
    seen.wait_for({"ana": 1, "ben": 1})
    assert tab.request("presence", {"topic": TOPIC, "act": "watch"})["ok"]
    seen.wait_for({"ana": 1})


def test_a_broken_connection_keeps_its_place_for_a_while(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user is gone when the grace is over, and not before; a disconnect in good order needs none."""
    gateway = start()
    ana = gateway.join({"token": "ana"})
    seen = Seen(ana, enter(ana))
    monkeypatch.setattr(own_members, "GRACE_S", 3600.0)
    held, brief, orderly = (gateway.join({"token": name}) for name in ("held", "brief", "orderly"))
    for each in (held, brief, orderly):
        enter(each)
    seen.wait_for({"ana": 1, "held": 1, "brief": 1, "orderly": 1})
    held.leave()
    orderly.send_packet("41/notifications,")
    seen.wait_for({"ana": 1, "held": 1, "brief": 1})
    monkeypatch.setattr(own_members, "GRACE_S", 0.0)
    monkeypatch.setattr(rooms, "SETTLE_S", 0.0)
    enter(held_again := gateway.join({"token": "held"}))
    brief.leave()
    seen.wait_for({"ana": 1, "held": 1})
    assert held_again.request("presence", {"topic": TOPIC, "act": "leave"})["ok"]
    seen.wait_for({"ana": 1})


def test_topics_of_a_client_and_members_of_a_topic_have_limits(start: Start) -> None:
    """Both are reported with their name, and in the welcome."""
    gateway = start(max_presence_topics=1, max_presence_members=1)
    ana, ben = gateway.join({"token": "ana"}), gateway.join({"token": "ben"})
    assert ana.welcome["limits"]["max_presence_topics"] == 1
    assert enter(ana)["ok"]
    error = enter(ana, "rooms.8")["error"]
    assert (error["code"], error["name"], error["retry"]) == ("limit_reached", "presence_topics", False)
    error = enter(ben)["error"]
    assert (error["code"], error["name"], error["retry"]) == ("limit_reached", "presence_members", True)
    assert ben.request("presence", {"topic": TOPIC, "act": "watch"})["members"][0][0] == "ana"
    assert enter(gateway.join({"token": "ana"}))["ok"]  # another tab of a member
    off = start(max_presence_topics=0).join({"token": "ana"})
    assert enter(off)["error"]["limit"] == 0


def test_a_flush_of_redis_is_seen_by_nobody(start: Start, redis_client: Client, redis_url: str) -> None:
    """Each gateway finds that its lease is gone, and reports all of its members again; the others keep them until it has."""
    gateways = [start() for _ in range(3)]
    ana, ben, eve = (gateway.join({"token": user}) for gateway, user in zip(gateways, ("ana", "ben", "eve"), strict=True))
    seen = Seen(ana, enter(ana))
    enter(ben)
    enter(eve)
    everyone = {"ana": 1, "ben": 1, "eve": 1}
    seen.wait_for(everyone)
    with Publisher(redis_url) as publisher:
        for _ in range(2):
            call(redis_client, "FLUSHALL")
            ana.wait_for(lambda: [one.user for one in publisher.presence(TOPIC)] == list(everyone), "all in Redis again")
    assert seen.look() == everyone
    assert all(not body["left"] for (body,) in ana.named("presence"))


def test_a_broken_link_is_made_good(start: Start) -> None:
    """A change that came while the link of a gateway was down is there when it is up."""
    here, there = start(), start()
    ana, ben = here.join({"token": "ana"}), there.join({"token": "ben"})
    seen = Seen(ana, enter(ana))
    here.gateway.namespaces["notifications"].presence._link.close()  # type: ignore[union-attr]
    enter(ben)
    seen.wait_for({"ana": 1, "ben": 1})


def test_the_first_member_and_the_end_of_the_last_one_are_events_where_that_is_wanted(start: Start, redis_url: str) -> None:
    """`<topic>.occupied` and `<topic>.vacated` are in the log once each; topics outside the setting have none."""
    gateway = start(presence_events=("rooms.7",))
    ana, ben = gateway.join({"token": "ana"}), gateway.join({"token": "ben"})
    assert ana.welcome
    assert ana.request("subscribe", {"pattern": "rooms.*.*"})["ok"]
    for client in (ana, ben):
        enter(client)
        enter(client, "rooms.8")
    with Publisher(redis_url) as publisher:  # a user who leaves before the first write was never there
        for topic in (TOPIC, "rooms.8"):
            ana.wait_for(lambda topic=topic: len(publisher.presence(topic)) == 2, "both in Redis")  # type: ignore[misc]
    for topic in (TOPIC, "rooms.8"):
        for client in (ana, ben):
            assert client.request("presence", {"topic": topic, "act": "leave"})["ok"]
    told = ana.wait_for_events(2)
    assert [(topic, data) for topic, data, _ in told] == [
        ("rooms.7.occupied", {"topic": TOPIC}),
        ("rooms.7.vacated", {"topic": TOPIC}),
    ]


def test_a_token_that_no_longer_grants_a_topic_ends_its_presence(start: Start, gateway_here: StartGatewayHere) -> None:
    """The page learns which topic, and why; the others see it leave."""
    grants = {"ana": ("rooms.7",)}
    gateway = gateway_here(lambda handshake: Identity("ana", subscribe=grants["ana"]))
    other = gateway_here(lambda handshake: Identity("ben", subscribe=("rooms.7",)))
    ana, ben = gateway.join({"token": "x"}), other.join({"token": "x"})
    seen = Seen(ben, enter(ben))
    assert enter(ana)["ok"]
    seen.wait_for({"ana": 1, "ben": 1})
    grants["ana"] = ("rooms.8",)
    assert ana.request("refresh", {"token": "y"})["ok"]
    assert ana.named("presence")[-1][0]["ended"]["code"] == "forbidden"
    seen.wait_for({"ben": 1})
