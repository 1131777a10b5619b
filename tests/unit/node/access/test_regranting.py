"""Other grants for connected clients, on all gateways. On models of Redis (tests/support/people_here.py)."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Handshake, Identity
from headgate.auth.regrants import store
from headgate.auth.repair import read_regrants
from headgate.auth.tokens import Tokens
from headgate.errors import Unauthorized
from headgate.events.wire.packets import Overflow
from headgate.events.wire.requests import Subscription
from headgate.node.access import logins
from headgate.node.access import regranting as module
from headgate.node.access.regranting import RENEW_WITHIN_S
from headgate.services import clients
from headgate.settings.settings import Settings
from tests.support.gateway_here import ClientHere, GatewayOnModel
from tests.support.people_here import PeopleHere
from tests.support.small_redis import SmallRedis

SECRET = "a secret of the tests, 0123456789abcdef"


class Source:
    """An application that knows the rights of each user, by the token, which is the name."""

    def __init__(self) -> None:
        self.subscribe: dict[str, tuple[str, ...]] = {"ana": ("a.#",), "ben": ("#",)}
        self.says: Callable[[Handshake], Identity | None] | None = None
        self.asked: list[str | None] = []

    def __call__(self, handshake: Handshake) -> Identity | None:
        self.asked.append(handshake.token)
        if self.says is not None:
            return self.says(handshake)
        return Identity(handshake.token or "?", subscribe=self.subscribe[handshake.token or "?"])


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def here(people: PeopleHere, source: Source) -> GatewayOnModel:
    """A gateway of this application."""
    return people.start("a", source)


@pytest.fixture
def client(here: GatewayOnModel) -> ClientHere:
    """Ana, with a subscription."""
    return join(here, "ana", "a.x")


def join(gateway: GatewayOnModel, token: str, *patterns: str) -> ClientHere:
    client = gateway.join({"token": token, "subscriptions": [{"pattern": each} for each in patterns]})
    assert client.welcome["session"]
    return client


def regrant(people: PeopleHere, user: str, **grants: Any) -> Any:
    return people.ask(lambda: people.clients.regrant(user, **grants))


def statuses(client: ClientHere) -> list[Any]:
    client.read()
    return [body for (body,) in client.named("status") if "bus" not in body]


def forbidden(pattern: str) -> Any:
    error = {"code": "forbidden", "message": f"not allowed to subscribe to {pattern!r}", "retry": False}
    return {"pattern": pattern, "error": {**error, "action": "subscribe to", "name": pattern}}


def may(client: ClientHere, pattern: str) -> bool:
    return bool(client.request("subscribe", {"pattern": pattern})["ok"])


def test_the_authenticator_is_asked_again_for_every_client_of_the_user(people: PeopleHere, source: Source) -> None:
    """On all gateways: some subscriptions end, and are reported; others become possible. No other client is asked or notified."""
    one, two = people.start("a", source), people.start("b", source)
    clients = [join(one, "ana", "a.x", "users.ana.mail"), join(two, "ana", "a.y")]
    ben = join(two, "ben", "a.x")
    source.asked.clear()
    source.subscribe["ana"] = ("b.#",)
    with capture_logs() as lines:
        assert regrant(people, "ana", by="eve").count == 2
    assert source.asked == ["ana", "ana"]
    assert statuses(clients[0]) == [{"ended": [forbidden("a.x")], "granted": True}]
    assert statuses(clients[1]) == [{"ended": [forbidden("a.y")], "granted": True}]
    assert statuses(ben) == []
    assert may(clients[0], "b.x")
    assert may(clients[1], "b.x")
    assert not may(clients[1], "a.y")
    two.publish(topic="a.y")
    two.publish(topic="b.x")
    assert [topic for topic, *_ in clients[1].wait_for_events(1)] == ["b.x"]
    told = [(line["user"], line["count"], line["by"]) for line in lines if line["event"] == "regranted"]
    assert told == [("ana", 1, "eve"), ("ana", 1, "eve")]


def test_each_client_is_asked_about_in_a_greenlet_of_its_own(people: PeopleHere, source: Source) -> None:
    """An application may leave something of one user in it."""
    greenlets = []

    def note(handshake: Handshake) -> Identity:
        greenlets.append(gevent.getcurrent())
        return Identity("ana", subscribe=("a.#",))

    here = people.start("a", source)
    for _ in range(3):
        join(here, "ana", "a.x")
    source.says = note
    assert regrant(people, "ana").count == 3
    assert len(set(greenlets)) == 3


def test_an_authenticator_without_answer_failed(people: PeopleHere, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next question about this user is answered."""
    monkeypatch.setattr(logins, "LOGIN_S", 0.01)

    def wait(handshake: Handshake) -> Identity | None:
        gevent.event.Event().wait()
        return None

    here = people.start("a", source)
    client = join(here, "ana", "a.x")
    source.says = wait
    with capture_logs() as lines:
        here.gateway.access.regranting.regrant("ana")
    assert "grants not checked again" in [line["event"] for line in lines]
    assert statuses(client) == []
    source.says = None
    assert regrant(people, "ana").count == 1
    assert statuses(client) == [{"granted": True}]


@pytest.mark.parametrize("refusal", [None, Unauthorized("gone"), Identity("eve")])
def test_a_client_that_is_not_accepted_any_more_is_disconnected(people: PeopleHere, source: Source, refusal: Any) -> None:
    """Nor one that would be another user now."""

    def refuse(handshake: Handshake) -> Identity | None:
        if isinstance(refusal, Exception):
            raise refusal
        return refusal  # type: ignore[no-any-return]

    client = join(people.start("a", source), "ana", "a.x")
    source.says = refuse
    with capture_logs():
        assert regrant(people, "ana").count == 1
    (status,) = statuses(client)
    reason = "another_user" if isinstance(refusal, Identity) else "not_accepted"
    assert status["unauthorized"]["reason"] == reason
    assert client.disconnected


def test_an_authenticator_that_fails_takes_no_rights_away(people: PeopleHere, source: Source) -> None:
    """It is in the log; the client notices nothing."""

    def fail(handshake: Handshake) -> Identity | None:
        raise RuntimeError("the data base is away")

    gateway = people.start("a", source)
    client = join(gateway, "ana", "a.x")
    source.says = fail
    with capture_logs() as lines:
        regrant(people, "ana")
    assert "grants not checked again" in [line["event"] for line in lines]
    assert statuses(client) == []
    gateway.publish(topic="a.x")
    client.wait_for_events(1)


def test_explicit_grants_go_before_the_authenticator_until_they_are_lifted(
    here: GatewayOnModel, client: ClientHere, people: PeopleHere, source: Source
) -> None:
    """On the live connection, and for those that come later."""
    source.asked.clear()
    assert regrant(people, "ana", subscribe=["b.#"], publish=["c"]).count == 1
    assert source.asked == []
    assert statuses(client) == [{"ended": [forbidden("a.x")], "granted": True}]
    assert may(client, "b.x")
    later = join(here, "ana", "a.x")
    assert later.welcome["subscriptions"][0]["ok"] is False
    assert client.request("refresh", {"token": "ana"})["ok"]
    assert not may(client, "a.x")
    regrant(people, "ana")
    assert may(later, "a.x")
    assert not may(later, "b.x")


def test_after_explicit_grants_the_source_counts(
    here: GatewayOnModel, client: ClientHere, people: PeopleHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For live clients too: they are notified within some seconds."""
    regrant(people, "ana", subscribe=["b.#"], for_s=60)
    assert may(client, "b.x")
    regranting = here.gateway.access.regranting
    regranting.tick()
    gevent.idle(-2)
    assert len(statuses(client)) == 1
    monkeypatch.setattr(regranting.regrants, "_now_s", lambda: monotonic() + 61)
    assert here.gateway.access.check_rights() == module.CHECK_EVERY_S
    assert statuses(client)[1:] == [{"ended": [forbidden("b.x")], "granted": True}]
    assert may(client, "a.x")


@pytest.mark.parametrize("lifted", [False, True])
def test_explicit_grants_that_there_was_no_time_to_carry_out_are_carried_out_later(
    here: GatewayOnModel, client: ClientHere, people: PeopleHere, monkeypatch: pytest.MonkeyPatch, lifted: bool
) -> None:
    """A question with a longer wait than its asker is let be. A withdrawn right must go all the same."""
    if lifted:
        regrant(people, "ana", subscribe=["a.#", "b.#"])
        assert may(client, "b.x")
    regranting = here.gateway.access.regranting
    monkeypatch.setattr(here.gateway.cluster.answers, "_now_s", lambda: float("inf"))
    told = len(statuses(client))
    assert regrant(people, "ana", **({} if lifted else {"subscribe": ["b.#"]})).silent
    regranting.tick()
    assert len(statuses(client)) == told
    monkeypatch.setattr(module, "monotonic", lambda: monotonic() + module.CHECK_EVERY_S)
    regranting.tick()
    assert statuses(client)[told:] == [{"ended": [forbidden("b.x" if lifted else "a.x")], "granted": True}]
    regranting.tick()
    assert len(statuses(client)) == told + 1


def test_of_two_at_once_the_one_in_redis_counts(
    here: GatewayOnModel, client: ClientHere, people: PeopleHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is heard last. A gateway that reads them later would else have other grants than those that heard."""
    regranting, redis = here.gateway.access.regranting, people.redis.client()
    monkeypatch.setattr(regranting, "_redis", redis)

    def be_overtaken(*arguments: Any) -> Any:
        explicit = store(*arguments)
        store(redis, "ana", ("c.#",), (), 60)
        return explicit

    monkeypatch.setattr(clients, "store", be_overtaken)
    assert regrant(people, "ana", subscribe=["a.#", "b.#"]).count == 1
    assert may(client, "c.x")
    assert not may(client, "b.x")
    monkeypatch.setattr(regranting, "_redis", SmallRedis().client())
    assert regrant(people, "ana").count == 1
    assert may(client, "a.x")


def test_announced_grants_that_a_failover_has_just_lost_count(
    here: GatewayOnModel, client: ClientHere, people: PeopleHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway writes them back when it reads all grants. It must not take their absence for a lift."""
    regranting, redis = here.gateway.access.regranting, SmallRedis().client()
    monkeypatch.setattr(regranting, "_redis", redis)
    regrant(people, "ana", subscribe=["b.#"])
    assert may(client, "b.x")
    assert not may(client, "a.x")
    regranting.read_all(redis)
    assert set(read_regrants(redis)) == {"ana"}


def test_nothing_at_all_may_be_granted(client: ClientHere, people: PeopleHere) -> None:
    """But for the user's own topics."""
    regrant(people, "ana", subscribe=[])
    assert not may(client, "a.x")
    assert may(client, "users.ana.mail")


def test_a_regrant_that_a_gateway_has_missed_counts_when_it_hears_again(people: PeopleHere, source: Source) -> None:
    """It reads all explicit grants then, and its clients get theirs."""
    here = people.start("deaf/1", source, hears=False)
    client = join(here, "ana", "a.x")
    assert regrant(people, "ana", subscribe=["b.#"]).silent == ("deaf/1",)
    assert may(client, "a.x")
    here.gateway.cluster.answers.begin(people.redis.client())
    gevent.idle(-2)
    assert statuses(client) == [{"ended": [forbidden("a.x")], "granted": True}]
    here.gateway.cluster.answers.begin(people.redis.client())
    gevent.idle(-2)
    assert len(statuses(client)) == 1


def test_a_gateway_that_starts_knows_the_explicit_grants(people: PeopleHere, source: Source) -> None:
    """Before it admits a client, because the link reads them first."""
    store(people.redis.client(), "ana", ("b.#",), (), 60)
    here = people.start("a", source)
    here.gateway.cluster.answers.begin(people.redis.client())
    assert join(here, "ana", "a.x").welcome["subscriptions"][0]["ok"] is False


def test_a_subscribe_that_is_under_way_does_not_outlive_the_grants(
    here: GatewayOnModel, people: PeopleHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for Redis when the grants change, and is refused, and no event comes."""
    client = join(here, "ana")
    go_on = gevent.event.Event()
    wait_for = here.namespace.bus.wait_for
    monkeypatch.setattr(here.namespace.bus, "wait_for", lambda pattern: (go_on.wait(), wait_for(pattern))[1])
    number = client.send_request('["subscribe",{"pattern":"a.x"}]')
    client.read()
    regrant(people, "ana", subscribe=["b.#"])
    assert number not in client.acknowledged
    go_on.set()
    (answer,) = client.wait_for(lambda: client.acknowledged.get(number), "the answer")
    assert answer["error"]["code"] == "forbidden"
    here.publish(topic="a.x")
    client.read()
    assert client.events == []
    assert len(next(iter(here.namespace.clients.values())).subscriptions) == 0


@pytest.mark.parametrize("since", [None, {"last": 1}])
def test_a_subscribe_during_which_grants_go_and_come_back_is_not_lost(
    here: GatewayOnModel, people: PeopleHere, monkeypatch: pytest.MonkeyPatch, since: dict[str, int] | None
) -> None:
    """It became active under grants that do not cover it, so it did not; it is reported as active under those that do."""
    here.publish(topic="a.x")
    client = join(here, "ana")
    subscriptions = here.namespace.subscriptions
    activate_all = subscriptions._activate_all

    def between(*arguments: Any) -> None:
        monkeypatch.setattr(subscriptions, "_activate_all", activate_all)
        regrant(people, "ana", subscribe=["b.#"])
        activate_all(*arguments)
        regrant(people, "ana", subscribe=["a.#"])

    monkeypatch.setattr(subscriptions, "_activate_all", between)
    assert client.request("subscribe", {"pattern": "a.x", **({"since": since} if since else {})})["ok"]
    here.publish(topic="a.x")
    offsets = [meta["offset"] for _, _, meta in client.wait_for_events(2 if since else 1)]
    assert offsets == ([1, 2] if since else [2])


def test_a_subscribe_that_grants_end_while_the_application_is_asked_again_is_refused(
    here: GatewayOnModel, people: PeopleHere
) -> None:
    """The notice of its end comes before the answer, which must not say that it is active."""
    client = join(here, "ana")
    asked = 0

    def asks(identity: Identity, pattern: str, action: str) -> bool:
        nonlocal asked
        asked += 1
        if asked <= 2:
            regrant(people, "ana", subscribe=["a.#"] if asked == 1 else ["b.#"])
        return True

    here.gateway.set_authorizer(asks)
    assert client.request("subscribe", {"pattern": "a.x"})["error"]["code"] == "forbidden"
    (inside,) = here.namespace.clients.values()
    assert list(inside.subscriptions) == []


def test_a_subscription_is_held_against_the_grants_of_when_it_is_active(here: GatewayOnModel) -> None:
    """Of many at once the last become active some slices of the loop later; not even one event may come of the lost ones."""
    join(here, "ana")
    (client,) = here.namespace.clients.values()
    subscriptions = here.namespace.subscriptions
    subscriptions._admitted[client] = client.identity
    needed = {"a.x": None, "b.x": None}
    client.identity = client.identity.granted(("b.#",), ())
    for pattern in ("a.x", "b.x"):
        subscriptions._activate(client, Subscription(pattern, Overflow.CATCH_UP, None), None, needed)
    assert list(client.subscriptions) == ["b.x"]
    assert needed == {"a.x": None}  # which is no longer needed, so it is given back


def test_a_welcome_under_way_tells_what_has_ended(
    here: GatewayOnModel, people: PeopleHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for Redis when they change. A page would else wait for ever for a subscription reported as active."""
    go_on, resume = gevent.event.Event(), here.namespace.resume

    def wait_and_resume(*arguments: Any) -> Any:
        go_on.wait()
        return resume(*arguments)

    monkeypatch.setattr(here.namespace, "resume", wait_and_resume)
    client = here.join({"token": "ana", "subscriptions": [{"pattern": each} for each in ("a.x", "users.ana.x", "b.x")]})
    here.wait_until(lambda: any("a.x" in each.subscriptions for each in here.namespace.clients.values()), "to be subscribed")
    regrant(people, "ana", subscribe=["b.#"])
    go_on.set()
    assert [each["ok"] for each in client.welcome["subscriptions"]] == [False, True, False]
    assert client.welcome["subscriptions"][0] == {**forbidden("a.x"), "ok": False}
    assert statuses(client)[-1] == {"granted": True}
    names = [name for name, *_ in client.received]
    assert names.index("welcome") < len(names) - 1 - names[::-1].index("status")
    assert may(client, "b.x")


@pytest.mark.parametrize("change", ["regrant", "revoke"])
def test_a_client_that_is_on_its_way_in_has_what_holds_when_it_is_in(
    here: GatewayOnModel, people: PeopleHere, source: Source, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It waits for a look at how many clients its user has elsewhere, and is not counted yet when the rights change."""
    go_on = gevent.event.Event()
    joining = here.gateway.population.joining
    monkeypatch.setattr(joining, "_find_place", lambda user, address: go_on.wait())
    client = here.join({"token": "ana", "subscriptions": [{"pattern": "a.x"}]})
    client.read()
    assert source.asked == ["ana"]
    if change == "regrant":
        regrant(people, "ana", subscribe=["b.#"])
    else:
        here.gateway.access.revocations.revocations.apply(b"60 user:ana")
    go_on.set()
    if change == "regrant":
        assert client.welcome["subscriptions"][0]["ok"] is False
    else:
        client.wait_for(lambda: client.refusal, "the refusal")
        assert client.refusal["data"]["reason"] == "revoked"


@pytest.mark.parametrize("waits", ["for the authenticator", "for its place"])
def test_a_client_that_is_on_its_way_in_does_not_enter_with_what_the_source_said_before(
    here: GatewayOnModel, people: PeopleHere, source: Source, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    """The application takes a right away while it is asked, and calls `regrant`, which finds no client of the user yet."""
    go_on = gevent.event.Event()

    def answer_late(handshake: Handshake) -> Identity:
        identity = Identity("ana", subscribe=source.subscribe["ana"])
        if waits == "for the authenticator":
            go_on.wait()
        return identity

    source.says = answer_late
    if waits == "for its place":
        monkeypatch.setattr(here.gateway.population.joining, "_find_place", lambda user, address: go_on.wait())
    client = here.join({"token": "ana", "subscriptions": [{"pattern": "a.x"}]})
    client.read()
    assert source.asked == ["ana"]
    source.subscribe["ana"] = ("b.#",)
    regrant(people, "ana")
    go_on.set()
    assert client.welcome["subscriptions"] == [{**forbidden("a.x"), "ok": False}]
    assert source.asked == ["ana"] * 2


def test_a_refresh_that_was_under_way_does_not_bring_rights_back(client: ClientHere, people: PeopleHere, source: Source) -> None:
    """The application is asked about the new token before it takes a right away, and answers after `regrant`."""
    go_on, answers = gevent.event.Event(), [("a.#",)]

    def answer_late(handshake: Handshake) -> Identity:
        if not answers:
            return Identity("ana", subscribe=("b.#",))
        identity = Identity("ana", subscribe=answers.pop())
        go_on.wait()
        return identity

    source.says = answer_late
    client.send_request('["refresh", {"token": "ana"}]')
    client.read()
    regrant(people, "ana")
    go_on.set()
    client.read()
    assert not may(client, "a.x")
    assert may(client, "b.x")


def test_a_client_that_leaves_while_its_grants_change_is_counted_no_more(here: GatewayOnModel) -> None:
    """Its user has as many places as before, and the gateway keeps nothing of the client."""
    join(here, "ana", "a.x")
    (client,) = here.namespace.clients.values()
    access = here.gateway.access
    here.gateway.population.joining.leave(here.namespace, client.session, "transport close")
    with pytest.raises(Unauthorized, match="left"):
        access.regranting.take(client, client.identity.granted(("b.#",), ()))
    assert access.admission.of_user("ana") == []


def test_a_client_that_leaves_before_its_turn_is_not_asked_about(here: GatewayOnModel, source: Source) -> None:
    """Its greenlet begins a turn of the loop after the look whether it is there."""
    join(here, "ana")
    (client,) = here.namespace.clients.values()
    here.gateway.population.joining.leave(here.namespace, client.session, "transport close")
    here.gateway.access.regranting._regrant_client(client)
    assert source.asked == ["ana"]


def test_a_slow_answer_about_earlier_grants_ends_nothing_of_the_later_ones(here: GatewayOnModel, client: ClientHere) -> None:
    """The application refuses patterns of the first grants, when the second have replaced them."""
    (inside,) = here.namespace.clients.values()
    asked, go_on = gevent.event.Event(), gevent.event.Event()

    def decide(identity: Identity, pattern: str, action: str) -> bool:
        if "first.#" not in identity.subscribe:
            return True
        asked.set()
        go_on.wait()
        return False

    here.gateway.set_authorizer(decide)
    take = here.gateway.access.regranting.take
    first = gevent.spawn(take, inside, inside.identity.granted(("a.#", "first.#"), ()))
    asked.wait()
    take(inside, inside.identity.granted(("a.#", "second.#"), ()))
    go_on.set()
    first.get()
    assert list(inside.subscriptions) == ["a.x"]
    assert statuses(client) == []


# Tokens --------------------------------------------------------------------------------------------------------------------


def token(*subscribe: str) -> str:
    tokens = Tokens.configured(Settings(token_secret=SECRET))
    assert tokens is not None
    return tokens.mint("ana", list(subscribe), [], 3600)


def test_a_client_with_a_token_is_asked_for_a_fresh_one(people: PeopleHere) -> None:
    """Its claims cannot be asked again. With the fresh one it stays, and has its grants."""
    here = people.start("a", dev=False, token_secret=SECRET)
    client = join(here, token("a.#"), "a.x")
    assert regrant(people, "ana").count == 1
    assert statuses(client) == [{"refresh": {"within_s": RENEW_WITHIN_S}}]
    assert client.request("refresh", {"token": token("b.#")})["expires_in_s"] > RENEW_WITHIN_S
    assert statuses(client)[1:] == [{"ended": [forbidden("a.x")]}]
    assert may(client, "b.x")


def test_one_that_brings_none_is_disconnected_as_expired(people: PeopleHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time that it was given is over; its token would have lived longer."""
    here = people.start("a", dev=False, token_secret=SECRET)
    client = join(here, token("a.#"), "a.x")
    expiry = here.gateway.access.expiry
    for late_s, asked in ((RENEW_WITHIN_S + 1, False), (RENEW_WITHIN_S - 5, True), (RENEW_WITHIN_S + 1, True)):
        if asked:
            regrant(people, "ana")
        monkeypatch.setattr(expiry, "_now_s", lambda late_s=late_s: monotonic() + late_s)
        expiry.tick()
        monkeypatch.setattr(expiry, "_now_s", monotonic)
        client.read()
        assert client.disconnected is (asked and late_s > RENEW_WITHIN_S)
    assert statuses(client)[-1]["unauthorized"]["reason"] == "expired"


def test_explicit_grants_hold_for_every_token_of_the_user(people: PeopleHere) -> None:
    """The old one does not bring its rights back with another connection."""
    here = people.start("a", dev=False, token_secret=SECRET)
    shown = token("a.#")
    client = join(here, shown, "a.x")
    regrant(people, "ana", subscribe=["b.#"])
    assert statuses(client) == [{"ended": [forbidden("a.x")], "granted": True}]
    again = join(here, shown, "a.x", "b.x")
    assert [each["ok"] for each in again.welcome["subscriptions"]] == [False, True]


def test_explicit_grants_of_the_anonymous_hold_for_all_of_them_and_then_those_of_the_settings(people: PeopleHere) -> None:
    """The connected and the joining. They have no token that could be fresh."""
    here = people.start("a", dev=False, anonymous_subscribe=("a.#",))
    clients = [here.join({"subscriptions": [{"pattern": "a.x"}]}) for _ in range(2)]
    assert [client.welcome["user"] for client in clients] == ["anonymous"] * 2
    assert regrant(people, "anonymous", subscribe=["b.#"]).count == 2
    clients.append(here.join({"subscriptions": [{"pattern": "b.x"}]}))
    assert statuses(clients[0]) == [{"ended": [forbidden("a.x")], "granted": True}]
    assert [(may(client, "a.x"), may(client, "b.x")) for client in clients] == [(False, True)] * 3
    assert regrant(people, "anonymous").count == 3
    assert [(may(client, "a.x"), may(client, "b.x")) for client in clients] == [(True, False)] * 3
