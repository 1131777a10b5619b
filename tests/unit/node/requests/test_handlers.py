"""Handlers: each request of a client is acknowledged, with its outcome or with the error that refused it."""

import json
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from headgate.auth.identity import ANONYMOUS, Handshake, Identity
from headgate.errors import BusUnavailable, HeadgateError, LimitReached, PayloadTooLarge, Unauthorized, UnauthorizedReason
from headgate.node.access.access import Access
from headgate.node.cluster.cluster import Cluster
from headgate.node.health import State
from headgate.node.population.evictions import Evictions
from headgate.node.requests.publish_queue import PublishQueue
from headgate.node.requests.requests import Requests
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import SocketIOFace
from tests.unit.node.connections import RecordedClient, RecordedNamespace, RecordedSockets, joined

ANA = Identity("ana", publish=("orders.#",))


class RecordedPublisher:
    """A publisher and its queue, which take everything but an event too large for the publisher, or for Redis."""

    def __init__(self) -> None:
        self.published: list[tuple[str, Any, str]] = []
        self.rounds: list[int] = []
        self.ephemeral: list[tuple[str, Any, str]] = []
        self.error: HeadgateError | None = None

    def prepare(self, topic: str, data: Any, id: str | None, namespace: str, *, by: str) -> Any:
        if data == "large":
            raise PayloadTooLarge(9, 8, "publisher")
        return SimpleNamespace(topic=topic, data=data, id=id or "e-1", by=by, size_bytes=1, namespace=namespace)

    def refuse_while_stalled(self, namespace: str) -> None:
        """Redis answers always."""

    def publish_ephemeral(self, topic: str, data: Any, id: str | None, namespace: str, *, by: str) -> str:
        self.prepare(topic, data, id, namespace, by=by)
        self.ephemeral.append((topic, data, by))
        return id or "e-1"

    def publish(self, events: Sequence[Any]) -> list[Any]:
        if self.error is not None:
            return [self.error] * len(events)
        self.published += [(event.topic, event.data, event.by) for event in events]
        return [SimpleNamespace(id=event.id, epoch="e", offset=1, duplicate=False) for event in events]

    def publish_prepared(self, events: Sequence[Any]) -> list[Any]:
        self.rounds.append(len(events))
        return self.publish(events)


class Desk:
    """Handlers of one namespace with one client, `s`; `ask` sends a request as that client, or as another session."""

    def __init__(self, identify: Callable[[Handshake], Identity | None] = lambda _: ANA, *, queued: bool = False) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.server, self.publisher = RecordedSockets(), RecordedPublisher()
        self.namespace = RecordedNamespace()
        self.client: RecordedClient = joined(self.namespace, "s", self.done)
        self.client.identity = ANA
        settings = Settings(dev=True, redis_url="redis://127.0.0.1:1/0")
        name, sockets = self.namespace.name, cast(SocketIOFace, self.server)
        namespaces = {name: self.namespace.real()}
        cluster = Cluster(settings, {}, State)
        access = Access(settings, identify, sockets, namespaces, Evictions(sockets, namespaces, settings), cluster)
        access.revocations.known = True
        self.admission, self.logins, self.expiry, self.pauses = access.admission, access.logins, access.expiry, cluster.pauses
        self.admission.join(self.client.real(), None)
        queue = PublishQueue(cast(Publisher, self.publisher), list) if queued else cast(PublishQueue, self.publisher)
        publisher = cast(Publisher, self.publisher)
        self.whole = Requests(settings, sockets, {}, access, cast(Any, None), publisher, cluster)
        self.whole.publish_queues = {name: queue}
        self.page_requests = self.whole.page_requests
        self.page_requests.answerers = {"orders.price": lambda request: [request.data, request.identity.user, request.id]}
        self.requests = self.whole.handlers(self.namespace.real())

    def ask(self, name: str, *arguments: object, session: str = "s") -> dict[str, Any]:
        answer = self.requests[name](session, *arguments)
        if callable(answer):
            answers: list[Any] = []
            answer(answers.append)
            gevent.idle(-2)
            (answer,) = answers
        return dict(answer)

    def unknown(self, name: str) -> dict[str, Any]:
        return self.whole.unknown(self.namespace.real(), name, "s")


def code(answer: dict[str, Any]) -> str:
    assert answer["ok"] is False
    return str(answer["error"]["code"])


@pytest.mark.parametrize("arguments", [(), (7,), ("text",), ([],), ({}, {})])
@pytest.mark.parametrize(
    "name", ["subscribe", "unsubscribe", "replay", "publish", "refresh", "seen", "handled", "request", "cancel"]
)
def test_a_request_takes_one_object(name: str, arguments: tuple[object, ...]) -> None:
    """Anything else is refused before any part of it is examined."""
    assert code(Desk().ask(name, *arguments)) == "invalid_request"


def test_a_session_that_has_left_is_told_so() -> None:
    """Its requests may have been under way."""
    answer = Desk().ask("subscribe", {"pattern": "a"}, session="gone")
    assert (code(answer), answer["error"]["reason"]) == ("unauthorized", "left")


def test_an_unknown_request_is_refused_with_those_that_are_known() -> None:
    """However long its name is."""
    answer = Desk().unknown("x" * 1000)
    assert code(answer) == "invalid_request"
    assert "known: subscribe, unsubscribe, replay, publish, refresh, seen" in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 200


@pytest.mark.parametrize("paused", ["publishes", "namespace:notifications"])
def test_a_page_request_is_paused_as_a_publish_is_and_its_function_does_not_run(paused: str) -> None:
    """It may write as a publish does; the gateway cannot know."""
    desk = Desk()
    desk.pauses.replace({paused: 60.0, "connects": 60.0})
    ran: list[Any] = []
    desk.page_requests.answerers = {"orders.price": ran.append}
    answer = desk.ask("request", {"name": "orders.price", "data": 1})
    assert (answer["error"]["code"], answer["error"]["retry"], ran) == ("paused", True, [])
    desk.pauses.replace({"connects": 60.0, "namespace:another": 60.0})
    desk.page_requests.answerers = {"orders.price": lambda request: request.data}
    assert desk.ask("request", {"name": "orders.price", "data": 1})["ok"]


def test_a_publish_that_an_operator_has_paused_is_refused_with_a_time() -> None:
    """And nothing is published; the client stays."""
    desk = Desk()
    desk.pauses.replace({"publishes": 60.0})
    answer = desk.ask("publish", {"topic": "orders.1", "data": 1})
    assert (answer["error"]["code"], answer["error"]["retry"]) == ("paused", True)
    assert answer["error"]["retry_after_s"] >= 5
    assert desk.publisher.published == []


def test_an_ephemeral_publish_goes_past_the_log_at_a_rate_of_its_own() -> None:
    """It has no receipt; beyond the rate it is refused with a time, while other publishes go on."""
    desk = Desk()
    wanted = {"topic": "orders.typing", "data": 1, "ephemeral": True}
    answers = [desk.ask("publish", wanted) for _ in range(45)]
    assert answers[:40] == [{"ok": True, "id": "e-1"}] * 40
    assert (answers[-1]["error"]["name"], answers[-1]["error"]["retry_after_s"]) == ("ephemeral_per_s", 1)
    assert desk.ask("publish", {"topic": "orders.1", "data": 1})["ok"]
    assert desk.publisher.published == [("orders.1", 1, "ana")]
    assert set(desk.publisher.ephemeral) == {("orders.typing", 1, "ana")}


@pytest.mark.parametrize("body", [{"topic": "secret", "data": 1}, {"topic": "orders.1", "data": "large"}])
def test_an_ephemeral_publish_has_the_grants_and_sizes_of_any_other(body: dict[str, Any]) -> None:
    """The refusal is the same."""
    desk = Desk()
    plain, ephemeral = desk.ask("publish", body), desk.ask("publish", {**body, "ephemeral": True})
    assert (ephemeral, desk.publisher.ephemeral) == (plain, [])


def test_a_publish_within_the_grants_goes_out_in_the_name_of_its_user() -> None:
    """The receipt is the acknowledgement."""
    desk = Desk()
    answer = desk.ask("publish", {"topic": "orders.1", "data": None})
    assert answer == {"ok": True, "id": "e-1", "epoch": "e", "offset": 1, "duplicate": False}
    assert desk.publisher.published == [("orders.1", None, "ana")]


def test_a_payload_that_is_too_large_is_refused_by_the_gateway() -> None:
    """`where` is the place that the client talks to, not the publisher inside."""
    desk = Desk()
    answer = desk.ask("publish", {"topic": "orders.1", "data": "large"})
    assert (code(answer), answer["error"]["where"]) == ("payload_too_large", "gateway")
    desk.publisher.error = PayloadTooLarge(9, 8, "bus")
    answer = desk.ask("publish", {"topic": "orders.1", "data": "as large as Redis takes"})
    assert (code(answer), answer["error"]["where"]) == ("payload_too_large", "gateway")


def test_clients_that_publish_at_one_moment_share_a_round_trip() -> None:
    """As callers of the HTTP API do; in the order in which they came, each with its own receipt."""
    desk = Desk(queued=True)
    asking = [
        gevent.spawn(desk.ask, "publish", {"topic": f"orders.{number}", "data": number, "id": f"e{number}"})
        for number in range(5)
    ]
    gevent.joinall(asking, raise_error=True)
    assert desk.publisher.rounds == [5]
    assert [topic for topic, *_ in desk.publisher.published] == [f"orders.{number}" for number in range(5)]
    assert [each.value["id"] for each in asking] == [f"e{number}" for number in range(5)]


@pytest.mark.parametrize("error", [BusUnavailable("no answer"), LimitReached("publish_queue_events", 20_000, 1)])
def test_a_publish_that_redis_or_the_queue_refuses_is_told_so(error: HeadgateError) -> None:
    """With the error's own code, and whether to try again."""
    desk = Desk()
    desk.publisher.error = error
    answer = desk.ask("publish", {"topic": "orders.1", "data": 1})
    assert (code(answer), answer["error"]["retry"]) == (error.code, True)


def test_a_page_request_is_answered_by_a_function_of_the_application() -> None:
    """Which gets the data, and the user as the gateway knows it."""
    desk = Desk()
    answer = desk.ask("request", {"name": "orders.price", "data": {"sku": "a7"}, "id": "r1", "timeout_ms": 5000})
    assert (answer["ok"], json.loads(bytes(answer["data"]))) == (True, [{"sku": "a7"}, "ana", "r1"])


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"name": "chat.price", "data": 1}, "forbidden"),
        ({"name": "chat.none", "data": 1}, "forbidden"),
        ({"name": "orders.none", "data": 1}, "unknown_request"),
        ({"name": "orders.*", "data": 1}, "invalid_topic"),
        ({"data": 1}, "invalid_topic"),
        ({"name": "orders.price"}, "invalid_request"),
        ({"name": "orders.price", "data": 1, "topic": "a"}, "invalid_request"),
        ({"name": "orders.price", "data": 1, "id": "a b"}, "invalid_event"),
        ({"name": "orders.price", "data": 1, "timeout_ms": 0}, "invalid_request"),
        ({"name": "orders.price", "data": 1, "timeout_ms": "5"}, "invalid_request"),
        ({"name": "orders.price", "data": "large"}, "payload_too_large"),
    ],
)
def test_a_page_request_that_may_not_be_is_refused(body: dict[str, Any], refused: str) -> None:
    """Grants come first, so that names that exist cannot be guessed without one; no function runs."""
    desk = Desk()
    desk.page_requests.answerers = {"orders.price": lambda request: pytest.fail("it ran")}
    answer = desk.ask("request", body)
    assert code(answer) == refused
    assert answer["error"].get("where") in (None, "gateway")


def test_a_cancellation_of_what_has_ended_is_no_fault() -> None:
    """The answer may be on its way to the page."""
    assert Desk().ask("cancel", {"id": "r1"}) == {"ok": True, "cancelled": False}


def test_the_anonymous_have_seen_nothing() -> None:
    """They share one name, so one visitor would hide every visitor's mail."""
    desk = Desk()
    desk.client.identity = Identity(ANONYMOUS)
    assert code(desk.ask("seen", {"ids": ["e-1"]})) == "forbidden"


def test_events_that_a_user_has_seen_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the name of the user; a Redis that does not answer is reported."""
    seen: list[tuple[str, str, list[str]]] = []

    def mark_seen(client: Any, namespace: str, user: str, ids: list[str]) -> None:
        if ids == ["e-9"]:
            raise BusUnavailable("Redis does not say")
        seen.append((namespace, user, ids))

    monkeypatch.setattr("headgate.node.requests.requests.mark_seen", mark_seen)
    desk = Desk()
    assert desk.ask("seen", {"ids": ["e-1", "e-2"]}) == {"ok": True, "seen": 2}
    assert seen == [("notifications", "ana", ["e-1", "e-2"])]
    assert code(desk.ask("seen", {"ids": ["e-9"]})) == "bus_unavailable"


def test_a_refresh_for_a_client_that_has_left_meanwhile_changes_nothing() -> None:
    """An authenticator may take its time."""

    def leave(handshake: Handshake) -> Identity:
        desk.namespace.clients.clear()
        return Identity("ana", token_id="t-2")

    desk = Desk(leave)
    answer = desk.ask("refresh", {"token": "new"})
    assert answer["error"] == Unauthorized(UnauthorizedReason.LEFT).to_wire()
    assert desk.admission.of_token("t-2") == []


def test_a_refresh_takes_another_token_of_the_same_user() -> None:
    """The client has its grants from then on."""
    desk = Desk(lambda _: Identity("ana", token_id="t-2"))
    assert desk.ask("refresh", {"token": "new"}) == {"ok": True, "user": "ana", "expires_in_s": None}
    assert desk.admission.of_token("t-2") == [desk.client.real()]


REFRESHES: list[tuple[object, str, str | None]] = [
    ({"token": "ben"}, "unauthorized", "another_user"),
    ({"token": "nobody"}, "unauthorized", "not_accepted"),
    ({"token": "expired"}, "unauthorized", "expired"),
    ({"token": "malformed"}, "unauthorized", "malformed"),
    ({"token": None}, "invalid_request", None),
    ({}, "invalid_request", None),
    ({"token": "ana", "user": "ana"}, "invalid_request", None),
]


@pytest.mark.parametrize(("body", "refused", "reason"), REFRESHES, ids=str)
def test_a_refresh_that_is_refused_leaves_identity_and_expiry(body: object, refused: str, reason: str | None) -> None:
    """Above all, the client stays the user that it was."""

    def identify(handshake: Handshake) -> Identity | None:
        match handshake.token:
            case "nobody":
                return None
            case "expired":
                return Identity("ana", ("#",), expires_at=1.0)
            case "malformed":
                raise Unauthorized(UnauthorizedReason.MALFORMED)
            case name:
                return Identity(str(name), ("#",), expires_at=4e9)

    desk = Desk(identify)
    answer = desk.ask("refresh", body)
    assert (code(answer), answer["error"]["reason"] if reason else None) == (refused, reason)
    assert desk.client.identity is ANA
    assert desk.expiry._slot_of == {}
    assert desk.ask("refresh", {"token": "ana"})["ok"]
    assert desk.client.identity.subscribe == ("#", "users.ana.#")


def test_a_refresh_moves_the_expiry_and_ends_subscriptions_that_are_no_longer_granted() -> None:
    """Each ended one is named in a notice ahead of the answer; the answer has the remaining seconds."""
    desk = Desk(lambda _: Identity("ana", ("stock.*",), expires_at=time.time() + 600))
    desk.namespace.subscribed = ["orders.*", "stock.1"]
    answer = desk.ask("refresh", {"token": "new"})
    assert (answer["ok"], answer["user"]) == (True, "ana")
    assert 0 <= answer["expires_in_s"] <= 600
    assert list(desk.expiry._slot_of) == [desk.client.real()]
    assert desk.namespace.subscribed == ["stock.1"]
    assert desk.done == [("notice", "s")]
    desk.expiry.close()


def test_the_anonymous_publish_nothing() -> None:
    """They have configured patterns to subscribe to, and no others."""
    desk = Desk()
    desk.client.identity = Identity(ANONYMOUS, subscribe=("news.#",))
    assert code(desk.ask("publish", {"topic": "news.a", "data": 1})) == "forbidden"
    assert desk.publisher.published == []


@pytest.mark.parametrize(("ids", "refused"), [([], "invalid_request"), (["good", "not good"], "invalid_event")])
def test_nothing_of_a_wrong_list_of_seen_events_is_stored(ids: list[str], refused: str) -> None:
    """Without a Redis, everything that would be stored is a fault."""
    assert code(Desk().ask("seen", {"ids": ids})) == refused


def test_the_numbers_of_a_console_are_asked_for_as_who_the_client_is() -> None:
    """The watch on vitals decides; the request brings nothing itself."""
    desk = Desk()
    assert code(desk.ask("vitals", {"user": "root", "admin": "act"})) == "forbidden"
