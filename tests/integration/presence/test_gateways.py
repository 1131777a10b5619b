"""Presence through gateways on a real Redis: the answers and notices of clients."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Handshake, Identity
from headgate.errors import BusRefused
from headgate.node.presence import presence
from headgate.redis import presence as store
from headgate.redis.client import Client, call
from headgate.runtime.metrics import PRESENCE_WRITES, totals
from headgate.services.publisher import Publisher
from tests.support.bus_here import CooperativeLink
from tests.support.gateway_here import ClientHere, GatewayHere, StartGatewayHere
from tests.support.redis_server import full_memory

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


def test_a_full_redis_delays_what_is_published_about_members_and_loses_none_of_it(
    start: Start, redis_url: str, redis_client: Client
) -> None:
    """Members come and go in the meantime."""
    gateway, other = start(presence_events=("rooms.7",)), start(presence_events=("rooms.7",))
    ana, ben = gateway.join({"token": "ana"}), other.join({"token": "ben"})
    assert ben.welcome
    assert ben.request("subscribe", {"pattern": "rooms.*.*"})["ok"]
    enter(ana)
    ben.wait_for_events(1)
    with Publisher(redis_url) as publisher, full_memory(redis_client):
        assert ana.request("presence", {"topic": TOPIC, "act": "leave"})["ok"]
        ana.wait_for(lambda: not publisher.presence(TOPIC), "nobody in Redis")
        enter(ana)
        ana.wait_for(lambda: publisher.presence(TOPIC), "ana in Redis")
        with pytest.raises(BusRefused, match="out of memory"):
            publisher.publish("a", 1)
        assert len(ben.events) == 1
    assert [topic for topic, _, _ in ben.wait_for_events(3)] == ["rooms.7.occupied", "rooms.7.vacated", "rooms.7.occupied"]


def test_writes_that_are_refused_between_good_beats_are_one_line_in_the_log(start: Start, redis_client: Client) -> None:
    """The beats of the process do not need the right that its user lacks."""
    ana = start().join({"token": "ana"})
    call(redis_client, "ACL", "SETUSER", "default", "-sadd")
    try:
        with capture_logs() as lines:
            before = totals(PRESENCE_WRITES).get("notifications", 0)
            enter(ana)
            ana.wait_for(lambda: totals(PRESENCE_WRITES).get("notifications", 0) >= before + 8, "several writes")
    finally:
        call(redis_client, "ACL", "SETUSER", "default", "+sadd")
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["presence out of reach"]


def test_a_gateway_replaces_an_older_library_of_presence(start: Start, redis_client: Client) -> None:
    """As soon as it has members."""
    library = store.PRESENCE_LIBRARY
    older = library.source.replace(f"local VERSION = {library.version}\n", "local VERSION = 0\n")
    call(redis_client, "FUNCTION", "LOAD", older)
    ana = start().join({"token": "ana"})
    enter(ana)
    ana.wait_for(lambda: library.loaded_version(redis_client) == library.version, "the newer library")
