"""Presence through gateways on a real Redis: the answers and notices of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.auth.identity import Handshake, Identity
from headgate.node.presence import presence
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
