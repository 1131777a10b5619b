"""The clients of all gateways: seen, looked up and disconnected from anywhere. On models of Redis (people_here.py)."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Handshake, Identity
from headgate.delivery.state import FIRST
from headgate.errors import BusUnavailable, InvalidRequest, InvalidTopic, NotSerializable, PayloadTooLarge
from headgate.node.population import client_list
from headgate.node.population.client_list import shown_network
from headgate.services.clients import Clients, ConnectedClient, Reached
from tests.support.gateway_here import GatewayOnModel
from tests.support.people_here import PeopleHere


def by_name(handshake: Handshake) -> Identity | None:
    """The token is the name."""
    return Identity(handshake.token or "?", subscribe=("orders.#", "shop.#"))


@pytest.fixture
def gateway(people: PeopleHere) -> GatewayOnModel:
    """A gateway of these users."""
    return people.start("a", by_name)


def join(gateway: GatewayOnModel, user: str, *patterns: str, **options: Any) -> Any:
    """Connect a user, and wait until it is welcome."""
    client = gateway.join({"token": user, "subscriptions": [{"pattern": each} for each in patterns]}, **options)
    assert client.welcome["user"] == user
    return client


def page(people: PeopleHere, **options: Any) -> Any:
    return people.ask(lambda: people.clients.page(**options))


def test_the_clients_of_all_gateways_are_one_list(people: PeopleHere) -> None:
    """Each has its place, its user, and its subscriptions."""
    one, two = people.start("web1/7", by_name), people.start("web2/9", by_name)
    ana, ben = join(one, "ana", "orders.#"), join(two, "ben")
    found = page(people)
    assert found.total == 2
    assert found.silent == ()
    assert found.after is None
    rows = {each.user: each for each in found.clients}
    assert rows["ana"].gateway == "web1/7"
    assert rows["ben"].gateway == "web2/9"
    assert rows["ana"].session == ana.welcome["session"]
    assert rows["ben"].session == ben.welcome["session"]
    assert rows["ana"].patterns == ("orders.#",)
    assert rows["ana"].transport == "websocket"
    assert rows["ana"].state == "live"
    assert rows["ana"].trouble == ()
    assert rows["ana"].since_ms > 0


def test_a_page_may_be_of_one_user_or_namespace(gateway: GatewayOnModel, people: PeopleHere) -> None:
    """A namespace that no gateway serves has no clients."""
    for user in ("ana", "ben", "ana"):
        join(gateway, user)
    assert [each.user for each in page(people, user="ana").clients] == ["ana", "ana"]
    assert page(people, user="ana", namespace="n").total == 2
    assert page(people, namespace="elsewhere").total == 0
    assert page(people, namespace="elsewhere", user="ana").total == 0


def test_a_question_within_namespaces_reaches_no_client_of_another(gateway: GatewayOnModel, people: PeopleHere) -> None:
    """To list, to look up, to send to and to disconnect, by session and by user, it does not exist."""
    ana = join(gateway, "ana")
    session, clients = ana.welcome["session"], people.clients
    for within, count in ((("elsewhere",), 0), (("elsewhere", "n"), 1)):
        assert page(people, within=within).total == count
        assert page(people, user="ana", within=within).total == count
        assert (people.ask(lambda: clients.client(session, within=within)) is not None) == bool(count)  # noqa: B023
        assert people.ask(lambda: clients.send(session, "orders.1", 1, within=within)) == bool(count)  # noqa: B023
    for who in ({"user": "ana"}, {"session": session}):
        assert people.ask(lambda: clients.disconnect(**who, within=("elsewhere",))).count == 0  # noqa: B023
    assert people.ask(lambda: clients.disconnect(user="ana", within=("n",))).count == 1


def slow(gateway: GatewayOnModel, client: Any, frames: int) -> None:
    """Let a client not read until so many frames wait for it."""
    client.session.cork()
    gateway.publish(frames)


def test_clients_with_trouble_come_first(people: PeopleHere) -> None:
    """A full queue, before a gap, before nothing; each describes its trouble in words."""
    gateway = people.start("a", by_name, queue_frames=8)
    join(gateway, "ana", "orders.#")
    stuck = gateway.join({"token": "ben", "subscriptions": [{"pattern": "orders.#", "overflow": "drop"}]})
    assert stuck.welcome["user"] == "ben"
    slow(gateway, stuck, 20)
    first, second = page(people).clients
    assert (first.user, second.user) == ("ben", "ana")
    assert first.lagging
    assert first.queued == 8
    assert first.discarded == 12
    assert first.trouble[0].startswith("queue full: 8 frames")
    stuck.session.uncork()
    stuck.wait_for(lambda: stuck.named("gap"), "the gap")
    first, _ = page(people).clients
    assert first.user == "ben"
    assert first.gaps == 1
    assert first.trouble == ("notified of 1 gap",)


def test_a_client_that_catches_up_says_how_far_behind_it_is(people: PeopleHere) -> None:
    """It reads the log from the first event that found no room."""
    gateway = people.start("a", by_name, queue_frames=8)
    client = join(gateway, "ana", "orders.#")
    slow(gateway, client, 20)
    (row,) = page(people).clients
    assert row.catching_up
    assert row.behind == 12
    assert row.position == 8
    assert row.trouble[1] == "catching up, 12 events of the log behind"
    client.session.uncork()


@pytest.mark.parametrize("sort", ["trouble", "queue", "newest", "user"])
def test_pages_name_every_client_once_over_several_gateways(people: PeopleHere, sort: str) -> None:
    """In every order, however the pages are cut, when nothing changes in between."""
    gateways = [people.start(name, by_name) for name in ("a", "b")]
    sessions = {join(gateways[at % 2], f"user{at % 4}").welcome["session"] for at in range(7)}
    found: list[ConnectedClient] = []
    after = None
    while True:
        one = page(people, sort=sort, limit=3, after=after)
        assert one.total == 7
        found += one.clients
        after = one.after
        if after is None:
            break
        assert len(one.clients) == 3
    assert len(found) == 7
    assert {each.session for each in found} == sessions
    if sort == "user":
        assert [each.user for each in found] == sorted(each.user for each in found)


def test_a_gateway_that_does_not_answer_is_named(people: PeopleHere) -> None:
    """The clients of the others are shown nevertheless."""
    join(people.start("a", by_name), "ana")
    people.start("deaf/1", by_name, hears=False)
    found = page(people)
    assert [each.user for each in found.clients] == ["ana"]
    assert found.silent == ("deaf/1",)


def test_one_client_is_found_with_all_its_patterns(people: PeopleHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page shows some of them."""
    monkeypatch.setattr(client_list, "SHOWN_PATTERNS", 1)
    gateway = people.start("a", by_name)
    people.start("b", by_name)
    client = join(gateway, "ana", "orders.1", "orders.2")
    session = client.welcome["session"]
    assert page(people).clients[0].patterns == ("orders.1",)
    assert page(people).clients[0].subscriptions == 2
    assert people.ask(lambda: people.clients.client(session)).patterns == ("orders.1", "orders.2")
    assert people.ask(lambda: people.clients.client("nobody")) is None


def test_nobody_is_not_said_while_a_gateway_is_silent(people: PeopleHere) -> None:
    """It may be connected there."""
    people.start("stopped/1", by_name, answers=False)
    with pytest.raises(BusUnavailable, match="stopped/1"):
        people.ask(lambda: people.clients.client("nobody"))
    assert people.ask(lambda: people.clients.disconnect(session="nobody")).silent == ("stopped/1",)


def test_a_gateway_that_was_killed_does_not_hide_that_nobody_has_a_session(people: PeopleHere) -> None:
    """It is in the registry until its lease ends, and Redis has no link of it. An action on a whole user still names it."""
    people.start("a", by_name)
    people.start("killed/1", by_name, hears=False)
    assert people.ask(lambda: people.clients.client("nobody")) is None
    assert send(people, "nobody") is False
    assert people.ask(lambda: people.clients.disconnect(session="nobody")) == Reached(0, ())
    assert people.ask(lambda: people.clients.disconnect(user="nobody")) == Reached(0, ("killed/1",))


def test_a_session_is_disconnected_wherever_it_is(people: PeopleHere) -> None:
    """It is given the reason; another client of the user stays. The gateway that did it has a line in its audit log."""
    people.start("a", by_name)
    gateway = people.start("b", by_name)
    client, other = join(gateway, "ana"), join(gateway, "ana")
    with capture_logs() as lines:
        done = people.ask(lambda: people.clients.disconnect(session=client.welcome["session"], reason="stuck", by="eve"))
    assert done.count == 1
    client.wait_for(lambda: client.closed, "the end of the connection")
    assert client.named("status") == [[{"moving": {"reason": "disconnected", "within_s": 0, "detail": "stuck"}}]]
    assert client.closed == (1000, "disconnected: stuck")
    assert other.closed is None
    (line,) = [line for line in lines if line["event"] == "disconnected"]
    assert (line["session"], line["count"], line["reason"], line["by"]) == (client.welcome["session"], 1, "stuck", "eve")


def test_all_clients_of_a_user_are_disconnected_on_all_gateways(people: PeopleHere) -> None:
    """Others stay, and the disconnected ones may come back."""
    one, two = people.start("a", by_name), people.start("b", by_name)
    clients = [join(one, "ana"), join(two, "ana"), join(two, "ana")]
    ben = join(two, "ben")
    assert people.ask(lambda: people.clients.disconnect(user="ana")).count == 3
    for client in clients:
        client.wait_for(lambda client=client: client.closed, "the end of the connection")
    assert ben.closed is None
    assert people.ask(lambda: people.clients.disconnect(user="ana")).count == 0
    join(one, "ana")


def test_a_look_at_thousands_lets_the_loop_run_between_any_two(
    gateway: GatewayOnModel, people: PeopleHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of the loop is checked before each client, and before each row."""
    for user in ("ana", "ben", "eve"):
        join(gateway, user)
    asked: list[str] = []
    the_list = gateway.gateway.population.clients

    def noted(word: str, method: Any) -> Any:
        def note(*arguments: Any) -> Any:
            asked.append(word)
            return method(*arguments)

        return note

    monkeypatch.setattr(the_list, "_place", noted("place", the_list._place))
    monkeypatch.setattr(the_list, "_row", noted("row", the_list._row))
    monkeypatch.setattr(the_list._share, "pause", lambda: asked.append("pause"))
    assert page(people).total == 3
    assert asked[asked.index("place") - 1 :] == ["pause", "place"] * 3 + ["pause", "row"] * 3


@pytest.mark.parametrize(
    ("address", "shown"),
    [("192.0.2.77", "192.0.2.0/24"), ("2001:db8:1:2::/64", "2001:db8:1::/48"), ("no address", None), (None, None)],
)
def test_of_an_address_its_network_is_shown(address: str | None, shown: str | None) -> None:
    """It shows an operator the site, and not the person."""
    assert shown_network(address) == shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 1001},
        {"limit": True},
        {"sort": "beauty"},
        {"user": ""},
        {"after": "no place"},
        {"after": "W10="},
        {"after": "WyJ1c2VyIiwieCIsInkiXQ=="},  # of the order `user`
    ],
)
def test_a_page_that_cannot_be_is_refused(people: PeopleHere, wrong: Any) -> None:
    """Before any gateway is asked."""
    with pytest.raises(InvalidRequest):
        page(people, **wrong)
    assert people.redis.asked == []


def test_wishes_that_cannot_be_are_refused(people: PeopleHere) -> None:
    """Before any gateway is asked."""
    for wish in ({}, {"session": "s", "user": "u"}, {"session": "s", "reason": ""}, {"user": "x" * 256}, {"user": "a\nb"}):
        with pytest.raises(InvalidRequest):
            people.clients.disconnect(**wish)
    with pytest.raises(InvalidRequest):
        people.clients.client("x" * 65)
    with pytest.raises(InvalidRequest):
        Clients("redis://127.0.0.1:1/0", within_s=0)
    assert people.redis.asked == []


# An event for one session ---------------------------------------------------------------------------------------------------


def send(people: PeopleHere, session: str, data: Any = 1, **options: Any) -> Any:
    return people.ask(lambda: people.clients.send(session, "users.ana.hint", data, **options))


def test_an_event_for_one_session_reaches_that_one_wherever_it_is(people: PeopleHere) -> None:
    """Without an offset and without a subscription; no other client sees it, and no log has it."""
    people.start("a", by_name)
    gateway = people.start("b", by_name)
    client, other = join(gateway, "ana"), join(gateway, "ana", "users.ana.#")
    assert send(people, client.welcome["session"], {"k": [1]}, id="mine") is True
    ((topic, data, meta),) = client.wait_for_events(1)
    assert (topic, data) == ("users.ana.hint", {"k": [1]})
    assert meta.keys() == {"id", "time"}
    assert meta["id"] == "mine"
    other.read()
    assert other.events == []
    assert gateway.redis.log == {}
    assert send(people, "nobody") is False


def test_it_comes_among_the_events_of_the_log_in_its_place(gateway: GatewayOnModel, people: PeopleHere) -> None:
    """And their accounts close without it."""
    client = join(gateway, "ana", "orders.#")
    gateway.publish()
    assert send(people, client.welcome["session"])
    gateway.publish()
    assert [meta.get("offset") for _, _, meta in client.wait_for_events(3)] == [1, None, 2]
    balance = gateway.namespace.balance()
    assert (balance.open, balance.routed, balance.sent) == (0, 2, 2)


def test_a_full_queue_takes_none_and_the_sender_knows(people: PeopleHere) -> None:
    """No gap reports it, and the events of the log come all the same."""
    gateway = people.start("a", by_name, queue_frames=8)
    client = join(gateway, "ana", "orders.#")
    session = client.welcome["session"]
    client.session.cork()
    gateway.publish(7)
    assert send(people, session) is True
    assert send(people, session) is False
    gateway.publish(3)
    assert send(people, session) is False
    client.session.uncork()
    client.wait_for(lambda: len(client.events) == 11, "all events")
    assert [meta.get("offset") for _, _, meta in client.events] == [1, 2, 3, 4, 5, 6, 7, None, 8, 9, 10]
    assert client.named("gap") == []
    assert send(people, session) is True
    client.wait_for_events(12)


def test_it_may_be_as_large_as_the_gateway_of_the_session_takes(people: PeopleHere) -> None:
    """One error, with the size and the limit."""
    gateway = people.start("a", by_name, max_payload_bytes=1024)
    client = join(gateway, "ana")
    session = client.welcome["session"]
    assert send(people, session, "x" * 1022) is True
    with pytest.raises(PayloadTooLarge) as raised:
        send(people, session, "x" * 1023)
    assert (raised.value.size, raised.value.limit, raised.value.where) == (1025, 1024, "gateway")
    people.redis.asked.clear()
    with pytest.raises(PayloadTooLarge):
        send(people, session, "x" * 2**20)
    with pytest.raises(NotSerializable):
        send(people, session, object())
    with pytest.raises(InvalidTopic):
        people.clients.send(session, "a.*", 1)
    assert people.redis.asked == []
    client.wait_for_events(1)
    assert client.closed is None


def test_whether_it_was_sent_is_not_guessed(gateway: GatewayOnModel, people: PeopleHere) -> None:
    """A gateway that does not answer may have the session."""
    people.start("stopped/1", by_name, answers=False)
    assert send(people, join(gateway, "ana").welcome["session"]) is True
    with pytest.raises(BusUnavailable, match="stopped/1"):
        send(people, "nobody")


def test_a_client_that_is_not_welcome_yet_gets_none(gateway: GatewayOnModel, people: PeopleHere) -> None:
    """An event before the welcome means nothing to it."""
    client = join(gateway, "ana")
    (inside,) = gateway.namespace.clients.values()
    inside.state = FIRST
    assert send(people, client.welcome["session"]) is False
