"""Requests about presence in a gateway on models of the bus and of presence in Redis."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.auth.identity import Handshake, Identity
from headgate.node.presence import presence as presence_module
from headgate.node.presence.leases import BACK_S
from headgate.node.presence.presence import IDLE_CHECK_S, Presence
from headgate.redis.pauses import namespace_member
from headgate.redis.presence_entries import LEASE_S, Entry, TopicWrite, encode_entry
from tests.support.gateway_here import ClientHere, GatewayOnModel, StartGatewayOnModel
from tests.support.model_redis import NAMESPACE
from tests.support.presence_world import StoreHere

TOPIC = "rooms.7"
Start = Callable[..., GatewayOnModel]


def somebody(handshake: Handshake) -> Identity | None:
    """The token is the user's name; `rooms.*` is granted."""
    return Identity(handshake.token or "", subscribe=("rooms.*",))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StoreHere:
    """The presence in Redis."""
    kept = StoreHere()
    monkeypatch.setattr(presence_module, "store", kept)
    monkeypatch.setattr(presence_module, "SubscriberLink", kept.link)
    return kept


@pytest.fixture
def start(gateway_on_model: StartGatewayOnModel, store: StoreHere) -> Start:
    """Start a gateway."""
    return lambda authenticator=somebody, **settings: gateway_on_model(authenticator, **settings)


@pytest.fixture
def gateway(start: Start) -> GatewayOnModel:
    """A gateway of these users."""
    return start()


@pytest.fixture
def ana(gateway: GatewayOnModel) -> ClientHere:
    """A client."""
    return gateway.join({"token": "ana"})


def on_the_clock(gateway: GatewayOnModel, monkeypatch: pytest.MonkeyPatch) -> Presence:
    """Return the presence of a gateway, which waits on the test's clock from now on."""
    presence, clock = gateway.gateway.namespaces[NAMESPACE].presence, gateway.clock
    for name, replaced in (("sleep", clock.sleep), ("one_round", clock.sleep), ("Signal", clock.signal)):
        monkeypatch.setattr(presence_module, name, replaced)
    presence._now_s = clock.time
    presence._pulse_now, presence._notify_now, presence._read_now = clock.signal(), clock.signal(), clock.signal()
    presence._link_now = clock.signal()
    return presence


def ask(client: ClientHere, act: str, topic: str = TOPIC, **more: Any) -> Any:
    """Make a request."""
    assert client.welcome
    return client.request("presence", {"topic": topic, "act": act, **more})


def told(client: ClientHere) -> list[Any]:
    """Return the notices that a client got."""
    return [body for (body,) in client.named("presence")]


def test_who_enters_is_told_to_those_who_watch(gateway: GatewayOnModel, ana: ClientHere, store: StoreHere) -> None:
    """And is in Redis; a leaving user is taken out."""
    ben = gateway.join({"token": "ben"})
    assert ask(ana, "watch")["members"] == []
    answer = ask(ben, "enter", meta={"at": "door"})
    assert [member[0] for member in answer["members"]] == ["ben"]
    (notice,) = ana.wait_for(lambda: told(ana), "the notice")
    assert (notice["copy"], notice["base"], notice["version"]) == (answer["copy"], 0, 1)
    assert [member[0] for member in notice["members"]] == ["ben"]
    ana.wait_for(lambda: any("ben" in users for _, users in store.model.read(TOPIC).values()), "ben in Redis")
    assert ask(ana, "page", after="a")["members"][0][0] == "ben"
    assert ask(ben, "watch")["members"] == []
    ana.wait_for(lambda: store.model.read(TOPIC) == {}, "nobody in Redis")
    assert ask(ben, "leave") == {"ok": True, "topic": TOPIC}
    assert ask(ana, "leave")["ok"]
    assert not gateway.gateway.namespaces[NAMESPACE].presence.rooms.open


def test_members_of_another_process_are_shown_and_go_with_it(ana: ClientHere, store: StoreHere) -> None:
    """Its writes come over the link; word of its death too."""
    assert ask(ana, "watch")["ok"]
    store.model._publish(TOPIC, b'["p9", 0, 1, 1, [["eve", 1, 5, 6, null]], []]')
    ana.wait_for(lambda: told(ana), "eve")
    store.model._publish(TOPIC, b'["p9", 0, 0, 0]')
    ana.wait_for(lambda: len(told(ana)) == 2, "her end")
    assert told(ana)[1]["left"] == ["eve"]


def test_what_is_not_granted_not_known_or_turned_off_is_refused(ana: ClientHere, start: Start) -> None:
    """With the code that says why."""
    assert ask(ana, "enter", "orders.7")["error"]["code"] == "forbidden"
    assert ask(ana, "look")["error"]["code"] == "invalid_request"
    assert ask(ana, "page", after="x")["error"]["code"] == "invalid_request"
    off = start(max_presence_topics=0).join({"token": "ana"})
    assert off.welcome["limits"]["max_presence_topics"] == 0
    assert ask(off, "enter")["error"]["name"] == "presence_topics"


def test_a_topic_that_is_full_is_refused_and_forgotten(start: Start) -> None:
    """Until there is room."""
    gateway = start(max_presence_members=1)
    ana, ben = gateway.join({"token": "ana"}), gateway.join({"token": "ben"})
    assert ask(ana, "enter")["ok"]
    assert ask(ben, "enter")["error"]["name"] == "presence_members"
    assert gateway.gateway.namespaces[NAMESPACE].presence.rooms.topics_of(ben.welcome["session"]) == []


def test_a_pause_of_the_namespace_keeps_newcomers_out(gateway: GatewayOnModel, ana: ClientHere) -> None:
    """Watching goes on."""
    assert ana.welcome
    gateway.gateway.cluster.pauses.replace({namespace_member(NAMESPACE): 60.0})
    assert ask(ana, "enter")["error"]["code"] == "paused"
    assert ask(ana, "watch")["ok"]


def test_an_entry_that_is_under_way_when_the_namespace_is_paused_is_refused(
    gateway: GatewayOnModel, ana: ClientHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for Redis or for the application, and then has changed nothing."""
    session, presence = ana.welcome["session"], gateway.gateway.namespaces[NAMESPACE].presence
    prepare = presence.prepare

    def pause(session: str, topic: str) -> None:
        prepare(session, topic)
        gateway.gateway.cluster.pauses.replace({namespace_member(NAMESPACE): 60.0})

    monkeypatch.setattr(presence, "prepare", pause)
    assert ask(ana, "enter")["error"]["code"] == "paused"
    assert presence.rooms.topics_of(session) == []


def test_another_token_ends_what_it_does_not_grant(start: Start) -> None:
    """With a notice; granted ones stay."""
    grants = ["rooms.*"]
    gateway = start(lambda handshake: Identity("ana", subscribe=tuple(grants)))
    ana = gateway.join({"token": "x"})
    assert ask(ana, "enter")["ok"]
    assert ask(ana, "enter", "rooms.8")["ok"]
    grants[:] = ["rooms.8"]
    assert ana.request("refresh", {"token": "y"})["ok"]
    assert [notice["topic"] for notice in told(ana) if "ended" in notice] == [TOPIC]
    assert gateway.gateway.namespaces[NAMESPACE].presence.rooms.topics_of(ana.welcome["session"]) == ["rooms.8"]


def test_without_redis_a_room_never_read_is_refused(
    gateway: GatewayOnModel, ana: ClientHere, store: StoreHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was read goes on without it, and reports to Redis when it is back."""
    ben = gateway.join({"token": "ben"})
    assert ask(ana, "enter")["ok"]
    monkeypatch.setattr(presence_module, "READ_WAIT_S", 0.05)
    store.up = False
    for link in list(store.links):
        link.close()
    error = ask(ben, "enter", "rooms.8")["error"]
    assert (error["code"], error["retry"]) == ("bus_unavailable", True)
    assert [member[0] for member in ask(ben, "enter")["members"]] == ["ana", "ben"]
    store.model.flush()
    store.up = True
    ana.wait_for(lambda: [sorted(users) for _, users in store.model.read(TOPIC).values()] == [["ana", "ben"]], "both in Redis")
    monkeypatch.setattr(presence_module, "READ_WAIT_S", 30.0)
    assert ask(ben, "enter", "rooms.8")["ok"]


def test_one_that_leaves_while_redis_is_asked_is_no_member(gateway: GatewayOnModel, ana: ClientHere, store: StoreHere) -> None:
    """Its answer has no receiver."""
    assert ana.welcome
    store.up = False
    ana.send_request('["presence", {"topic": "rooms.7", "act": "enter"}]')
    ana.send_packet(f"41/{NAMESPACE},")
    ana.read()
    presence = gateway.gateway.namespaces[NAMESPACE].presence
    assert presence.rooms.open
    store.up = True
    gateway.wait_until(lambda: not presence.rooms.open, "the end of it")
    assert store.model.read(TOPIC) == {}


def test_a_process_without_rooms_takes_out_one_that_has_died(start: Start, store: StoreHere) -> None:
    """So the last member's end is reported, though no page watches."""
    store.model.beat("p9", 0)
    gateway = start(presence_events=("rooms.#",))
    published: list[tuple[str, Any]] = []
    presence = gateway.gateway.namespaces[NAMESPACE].presence
    presence._publish = lambda topic, data, *_: published.append((topic, data))
    store.model.news.append(["vacated", TOPIC, "p9-1"])
    store.model.news.append(["vacated", "orders.1", "p9-1b"])
    presence.start()
    gateway.wait(1)
    gateway.wait_until(lambda: not store.model.beats and not store.model.news, "its end")
    assert published == [("rooms.7.vacated", {"topic": TOPIC})]


@pytest.mark.parametrize(("events", "times"), [((), 1), (("rooms.#",), 1 + int(60 / IDLE_CHECK_S))])
def test_where_nobody_is_there_redis_is_asked_once_unless_events_are_wanted(
    start: Start, store: StoreHere, monkeypatch: pytest.MonkeyPatch, events: tuple[str, ...], times: int
) -> None:
    """A gateway that dies later is found by those that have its topics, and else only its `vacated` would be missed."""
    gateway = start(presence_events=events)
    presence = on_the_clock(gateway, monkeypatch)
    presence.start()
    gateway.wait(60)
    assert set(store.asked) == {"any_process"}
    assert times - 2 <= len(store.asked) <= times
    ana = gateway.join({"token": "ana"})
    assert ask(ana, "enter")["ok"]
    ana.wait_for(lambda: store.model.read(TOPIC), "ana in Redis")


def test_it_is_asked_until_nobody_is_there(start: Start, store: StoreHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a dead site are taken out by the next one."""
    store.model.beat("p9", 0)
    gateway = start()
    on_the_clock(gateway, monkeypatch).start()
    gateway.wait(3 * BACK_S)
    assert not store.model.beats
    asked = list(store.asked)
    gateway.wait(60)
    assert store.asked == asked


def test_members_of_a_process_that_may_be_dead_are_not_shown_before_that_is_known(
    start: Start, store: StoreHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request waits."""
    store.model.beat("p9", 1)
    store.model.write("p9", [TopicWrite(TOPIC, 0, 1, 1, [("eve", encode_entry(Entry(1, 5, 6, None)))], [], b"[]")])
    gateway = start()
    presence = on_the_clock(gateway, monkeypatch)
    ana = gateway.join({"token": "ana"})
    assert ana.welcome
    ana.send_request('["presence", {"topic": "rooms.7", "act": "enter"}]')
    ana.read()
    gateway.wait(BACK_S - 1)
    assert not presence.rooms.open[TOPIC].was_live
    gateway.wait(2)
    assert [member[0] for member in ask(ana, "enter")["members"]] == ["ana"]
    assert store.model.beats.keys() == {presence.rooms.process}


def test_a_topic_that_is_closed_and_opened_while_it_is_read_is_read_for_itself(
    gateway: GatewayOnModel, store: StoreHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading for the one before says nothing about it."""
    presence = gateway.gateway.namespaces[NAMESPACE].presence
    read_parts, readings = store.read_parts, 0

    def read(*names: Any) -> Iterator[dict[str, bytes]]:
        nonlocal readings
        readings += 1
        if readings == 1:
            presence.rooms.gone("one", in_order=True)
            presence.rooms.prepare("another", TOPIC)
        yield from read_parts(*names)

    monkeypatch.setattr(store, "read_parts", read)
    store.model.beat("p9", 1)
    store.now_ms = 2
    store.model.write("p9", [TopicWrite(TOPIC, 0, 1, 1, [("eve", encode_entry(Entry(1, 5, 6, None)))], [], b"[]")])
    presence.rooms.prepare("one", TOPIC)
    gateway.wait_until(lambda: presence.rooms.open[TOPIC].was_live, "it has been read")
    assert presence.rooms.open[TOPIC].member("eve") is not None
    assert readings == 2


def test_members_unknown_to_redis_are_kept_and_reread(
    gateway: GatewayOnModel, store: StoreHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a lease is over."""
    on_the_clock(gateway, monkeypatch)
    ana = gateway.join({"token": "ana"})
    store.model.beat("p9", 10**12)
    store.model.write("p9", [TopicWrite(TOPIC, 0, 1, 1, [("eve", encode_entry(Entry(1, 5, 6, None)))], [], b"[]")])
    assert [member[0] for member in ask(ana, "enter")["members"]] == ["ana", "eve"]
    store.model.flush()
    for link in list(store.links):
        link.close()
    gateway.wait(LEASE_S - 0.5)
    ana.read()
    assert not any(notice["left"] for notice in told(ana))
    gateway.wait(4)
    ana.wait_for(lambda: ["eve"] in [notice["left"] for notice in told(ana)], "eve's end")


def test_a_gateway_that_stops_without_members_gives_its_lease_back(
    gateway: GatewayOnModel, ana: ClientHere, store: StoreHere
) -> None:
    """One with members leaves it to end, because their pages are on their way."""
    assert ask(ana, "enter")["ok"]
    assert ask(ana, "leave")["ok"]
    ana.wait_for(lambda: store.model.beats, "the beat")
    presence = gateway.gateway.namespaces[NAMESPACE].presence
    presence.close()
    presence.close()
    assert store.model.beats == {}


def test_a_member_that_the_application_refuses_when_its_grants_change_is_none(
    gateway: GatewayOnModel, ana: ClientHere, store: StoreHere
) -> None:
    """It is asked again then, about the topics that the client is in; the client is notified."""
    for topic in (TOPIC, "rooms.8"):
        assert ask(ana, "enter", topic)["ok"]
    asked: list[tuple[str, str]] = []

    def refuse(identity: Identity, pattern: str, action: str) -> bool:
        asked.append((pattern, action))
        return pattern != TOPIC

    gateway.gateway.set_authorizer(refuse)
    assert ana.request("refresh", {"token": "ana"})["ok"]
    assert sorted(asked) == [(TOPIC, "presence"), ("rooms.8", "presence")]
    (ended,) = [notice for notice in told(ana) if "ended" in notice]
    assert (ended["topic"], ended["ended"]["code"]) == (TOPIC, "forbidden")


def test_a_client_may_ask_again_after_the_application_has_raised(
    gateway: GatewayOnModel, ana: ClientHere, store: StoreHere
) -> None:
    """Its part in the topic ends as after a refusal, and the notice says that it may."""
    assert ask(ana, "enter")["ok"]

    def fail(identity: Identity, pattern: str, action: str) -> bool:
        raise RuntimeError

    gateway.gateway.set_authorizer(fail)
    assert ana.request("refresh", {"token": "ana"})["ok"]
    (ended,) = [notice for notice in told(ana) if "ended" in notice]
    assert (ended["ended"]["code"], ended["ended"]["retry"]) == ("authorize_failed", True)
    assert ask(ana, "enter")["error"]["code"] == "authorize_failed"
    gateway.gateway.set_authorizer(None)
    assert ask(ana, "enter")["ok"]


def test_an_entry_that_is_under_way_when_the_grants_change_is_refused(
    gateway: GatewayOnModel, ana: ClientHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for Redis; no client is a member without a grant."""
    assert ana.welcome
    (inside,) = gateway.namespace.clients.values()
    presence = gateway.gateway.namespaces[NAMESPACE].presence
    prepare = presence.prepare

    def lose_the_grant(session: str, topic: str) -> None:
        prepare(session, topic)
        inside.identity = Identity("ana")

    monkeypatch.setattr(presence, "prepare", lose_the_grant)
    assert ask(ana, "enter")["error"]["code"] == "forbidden"
    assert presence.rooms.topics_of(inside.session) == []


def test_a_replay_that_waits_when_the_grants_change_is_refused(
    gateway: GatewayOnModel, ana: ClientHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn to read the log came too late."""
    assert ana.welcome
    (inside,) = gateway.namespace.clients.values()
    monkeypatch.setattr(gateway.namespace.search, "wait_to_read", lambda client: setattr(inside, "identity", Identity("ana")))
    assert ana.request("replay", {"pattern": TOPIC, "from": 1, "to": 2})["error"]["code"] == "forbidden"


@pytest.mark.parametrize("also_there", [True, False])
@pytest.mark.parametrize("regranted_in", ["check", "prepare"])
def test_an_entry_that_is_under_way_when_the_application_says_no_is_refused(
    gateway: GatewayOnModel, ana: ClientHere, monkeypatch: pytest.MonkeyPatch, also_there: bool, regranted_in: str
) -> None:
    """The grants cover the topic before and after, but the application is asked again. No client stays in the room for good."""
    ben = gateway.join({"token": "ben"})
    assert ana.welcome
    assert ben.welcome
    if also_there:
        assert ask(ben, "enter")["ok"]
    inside = gateway.namespace.clients[ana.welcome["session"]]
    presence, authorizing = gateway.gateway.namespaces[NAMESPACE].presence, gateway.gateway.authorizing
    answers = [True, False, False]
    authorizing.authorizer = lambda identity, pattern, action: answers.pop(0)
    of, name = (authorizing, "check") if regranted_in == "check" else (presence, "prepare")
    waits = getattr(of, name)

    def regrant_meanwhile(*arguments: Any) -> None:
        waits(*arguments)
        monkeypatch.setattr(of, name, waits)
        gateway.gateway.access.regranting.take(inside, Identity("ana", subscribe=("rooms.*", "a.#")))

    monkeypatch.setattr(of, name, regrant_meanwhile)
    assert ask(ana, "enter")["error"]["code"] == "forbidden"
    assert presence.rooms.topics_of(inside.session) == []
    assert list(presence.rooms.open) == ([TOPIC] if also_there else [])
    if also_there:
        authorizing.authorizer = None
        assert [member[0] for member in ask(ben, "watch")["members"]] == []
