"""`authorize`: an application is asked about each pattern, after the grants. On a model of Redis."""

from typing import Any

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Handshake, Identity
from headgate.errors import AuthorizeFailed, Forbidden
from headgate.node.access import authorizing as module
from headgate.node.access.authorizing import AUTHORIZE_S
from tests.support.gateway_here import ClientHere, GatewayOnModel, StartGatewayOnModel


def by_name(handshake: Handshake) -> Identity | None:
    """The token is the name."""
    return Identity(handshake.token or "?", subscribe=("a.#", "b.#"))


class Application:
    """It notes the questions, and refuses the patterns in `refuses`; it may fail or wait."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.refuses: set[str] = set()
        self.fault: BaseException | None = None
        self.answer: Any = True

    def __call__(self, identity: Identity, pattern: str, action: str) -> bool:
        self.asked.append((identity.user, pattern, action))
        if self.fault is not None:
            raise self.fault
        return self.answer if pattern not in self.refuses else False


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def gateway(gateway_on_model: StartGatewayOnModel, application: Application) -> GatewayOnModel:
    here = gateway_on_model(by_name)
    here.gateway.set_authorizer(application)
    return here


def join(gateway: GatewayOnModel, *patterns: str) -> ClientHere:
    client = gateway.join({"token": "ana", "subscriptions": [{"pattern": each} for each in patterns]})
    assert client.welcome["user"] == "ana"
    return client


def outcomes(client: ClientHere) -> list[bool]:
    return [each["ok"] for each in client.welcome["subscriptions"]]


def test_each_pattern_is_asked_about_once_and_only_behind_the_grants(gateway: GatewayOnModel, application: Application) -> None:
    """Of a CONNECT with several, one after the other; a refusal affects no other, and no event of it comes."""
    application.refuses = {"a.2"}
    client = join(gateway, "a.1", "a.2", "outside.3", "a.1")
    assert outcomes(client) == [True, False, False, True]
    assert client.welcome["subscriptions"][1]["error"]["code"] == "forbidden"
    assert application.asked == [("ana", "a.1", "subscribe"), ("ana", "a.2", "subscribe")]
    gateway.publish(topic="a.2")
    gateway.publish(topic="a.1")
    assert [topic for topic, *_ in client.wait_for_events(1)] == ["a.1"]


def test_a_yes_is_remembered_for_the_connection_and_a_no_is_not(gateway: GatewayOnModel, application: Application) -> None:
    """For the same action. For another connection it is asked again."""
    application.refuses = {"a.2"}
    client = join(gateway, "a.1", "a.2")
    application.asked.clear()
    application.refuses = set()
    assert client.request("subscribe", {"pattern": "a.1"})["ok"]
    assert application.asked == []
    assert client.request("subscribe", {"pattern": "a.2"})["ok"]
    assert application.asked == [("ana", "a.2", "subscribe")]
    application.asked.clear()
    join(gateway, "a.1")
    assert application.asked == [("ana", "a.1", "subscribe")]


def test_only_the_last_answers_are_remembered(
    gateway: GatewayOnModel, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks for one pattern after the other takes no more memory for it."""
    monkeypatch.setattr(module, "MAX_REMEMBERED", 2)
    client = join(gateway)
    for pattern in ("a.1", "a.2", "a.3", "a.3", "a.2", "a.1"):
        assert client.request("subscribe", {"pattern": pattern})["ok"]
    assert [pattern for _, pattern, _ in application.asked] == ["a.1", "a.2", "a.3", "a.1"]


def test_a_yes_to_grants_that_have_changed_meanwhile_is_not_remembered(gateway: GatewayOnModel, application: Application) -> None:
    """The application was asked about the old ones."""
    client = join(gateway)
    (inside,) = gateway.namespace.clients.values()

    def change(identity: Identity, pattern: str, action: str) -> bool:
        inside.allowed = None
        return application(identity, pattern, action)

    gateway.gateway.set_authorizer(change)
    assert client.request("subscribe", {"pattern": "a.1"})["ok"]
    assert client.request("subscribe", {"pattern": "a.1"})["ok"]
    assert len(application.asked) == 2


def test_new_grants_have_everything_asked_anew(gateway: GatewayOnModel, application: Application) -> None:
    """A subscription without authorization ends, and the client is notified."""
    client = join(gateway, "a.1", "a.2")
    application.refuses = {"a.1"}
    application.asked.clear()
    assert client.request("refresh", {"token": "ana"})["ok"]
    assert sorted(application.asked) == [("ana", "a.1", "subscribe"), ("ana", "a.2", "subscribe")]
    ((status,),) = client.named("status")
    assert [each["pattern"] for each in status["ended"]] == ["a.1"]


def test_what_new_grants_lack_ends_before_the_application_is_asked(gateway: GatewayOnModel, application: Application) -> None:
    """It may take its time about the rest; no event of the others comes in that time."""
    client = join(gateway, "a.1", "b.1")
    go_on = gevent.event.Event()

    def wait(identity: Identity, pattern: str, action: str) -> bool:
        go_on.wait()
        return application(identity, pattern, action)

    gateway.gateway.set_authorizer(wait)
    (inside,) = gateway.namespace.clients.values()
    gevent.spawn(gateway.gateway.access.regranting.take, inside, Identity("ana", subscribe=("b.#",)))
    client.wait_for(lambda: client.named("status"), "the word of what has ended")
    gateway.publish(topic="a.1")
    gateway.publish(topic="b.1")
    assert [topic for topic, *_ in client.wait_for_events(1)] == ["b.1"]
    application.refuses = {"b.1"}
    go_on.set()
    client.wait_for(lambda: len(client.named("status")) == 2, "the word of the application")
    ended = [[each["pattern"] for each in status["ended"]] for (status,) in client.named("status")]
    assert ended == [["a.1"], ["b.1"]]


def test_replay_and_presence_are_asked_about_as_such(gateway: GatewayOnModel, application: Application) -> None:
    """Each is another action."""
    client = join(gateway, "a.1")
    application.asked.clear()
    application.refuses = {"a.1"}
    refusals = [
        client.request("replay", {"pattern": "a.1", "from": 1, "to": 2}),
        client.request("presence", {"topic": "a.1", "act": "watch"}),
    ]
    assert [refusal["error"]["code"] for refusal in refusals] == ["forbidden"] * 2
    assert application.asked == [("ana", "a.1", "replay"), ("ana", "a.1", "presence")]
    application.refuses = set()
    gateway.publish(topic="a.1")
    assert len(client.request("replay", {"pattern": "a.1", "from": 1, "to": 2})["events"]) == 1


@pytest.mark.parametrize("answer", [False, None, 1, "yes"])
def test_only_true_allows(gateway: GatewayOnModel, application: Application, answer: Any) -> None:
    """A function that forgot its return refuses."""
    application.answer = answer
    assert outcomes(join(gateway, "a.1")) == [False]


@pytest.mark.parametrize(
    "fault", [RuntimeError("ana's secret"), gevent.Timeout(1), SystemExit("ana's secret")], ids=lambda fault: type(fault).__name__
)
def test_after_one_that_raises_the_client_may_try_again_and_its_text_stays_out_of_the_log(
    gateway: GatewayOnModel, application: Application, fault: BaseException
) -> None:
    """It may hold the application's data on the user; the place in the code is there. A refused one may not."""
    application.fault = fault
    with capture_logs() as lines:
        client = join(gateway, "a.1", "a.2", "outside.3")
    results = client.welcome["subscriptions"]
    assert [(each["error"]["code"], each["error"]["retry"]) for each in results] == [
        ("authorize_failed", True), ("authorize_failed", True), ("forbidden", False),
    ]  # fmt: skip
    (line,) = [line for line in lines if line["event"] == "authorize failed"]
    assert line["error"] == "RuntimeError"
    assert "test_authorizing.py" in line["where"]
    assert "secret" not in str(line)
    requests = [
        ("subscribe", {"pattern": "a.1"}),
        ("replay", {"pattern": "a.1", "from": 1, "to": 2}),
        ("presence", {"topic": "a.1", "act": "enter"}),
    ]
    assert [client.request(*each)["error"]["code"] for each in requests] == ["authorize_failed"] * 3
    application.fault = None
    assert all(client.request(*each)["ok"] for each in requests[:2])


def test_one_may_also_refuse_by_the_error_for_that(gateway: GatewayOnModel, application: Application) -> None:
    """That is an answer, and no fault."""
    application.fault = Forbidden("subscribe to", "a.1")
    with capture_logs() as lines:
        (result,) = join(gateway, "a.1").welcome["subscriptions"]
    assert result["error"]["code"] == "forbidden"
    assert [line for line in lines if line["event"] == "authorize failed"] == []


def test_new_grants_end_what_one_that_raises_was_asked_about_and_the_client_may_try_again(
    gateway: GatewayOnModel, application: Application
) -> None:
    """An old yes says nothing of new grants."""
    client = join(gateway, "a.1", "a.2", "a.#")

    def fails_for_one(identity: Identity, pattern: str, action: str) -> bool:
        if pattern == "a.1":
            raise RuntimeError
        return application(identity, pattern, action)

    gateway.gateway.set_authorizer(fails_for_one)
    application.refuses = {"a.2"}
    with capture_logs():
        assert client.request("refresh", {"token": "ana"})["ok"]
    ended = [(each["pattern"], each["error"]["code"]) for (status,) in client.named("status") for each in status["ended"]]
    assert ended == [("a.1", "authorize_failed"), ("a.2", "forbidden")]
    gateway.publish(topic="a.1")
    assert len(client.wait_for_events(1)) == 1
    gateway.gateway.set_authorizer(application)
    assert client.request("subscribe", {"pattern": "a.1", "since": {"offset": 0}})["ok"]


def test_all_patterns_of_a_request_have_one_time_together(
    gateway: GatewayOnModel, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without an answer in that time are refused; the next request has its own."""
    now_s = [0.0]
    monkeypatch.setattr("headgate.node.access.authorizing.monotonic", lambda: now_s[0])

    def slow(identity: Identity, pattern: str, action: str) -> bool:
        now_s[0] += AUTHORIZE_S * 0.6
        return application(identity, pattern, action)

    gateway.gateway.set_authorizer(slow)
    client = join(gateway, "a.1", "a.2", "a.3")
    assert outcomes(client) == [True, True, False]
    assert client.welcome["subscriptions"][2]["error"]["code"] == "authorize_failed"
    assert client.request("subscribe", {"pattern": "a.3"})["ok"]


def test_after_one_without_answer_in_time_the_client_may_try_again(
    gateway: GatewayOnModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served in the meantime."""
    monkeypatch.setattr(module, "AUTHORIZE_S", 0.01)

    def never(identity: Identity, pattern: str, action: str) -> bool:
        gevent.event.Event().wait()
        return True

    gateway.gateway.set_authorizer(never)
    with capture_logs() as lines:
        (result,) = join(gateway, "a.1").welcome["subscriptions"]
    assert result["error"]["code"] == "authorize_failed"
    assert [line["error"] for line in lines if line["event"] == "authorize failed"] == ["TimeoutError"]


def test_no_greenlet_is_used_again_once_an_application_is_asked(gateway_on_model: StartGatewayOnModel) -> None:
    """It may leave something of one user in it, such as a session of its database."""
    gateway = gateway_on_model()
    greenlets = set[object]()

    def note(identity: Identity, pattern: str, action: str) -> bool:
        greenlets.add(gevent.getcurrent())
        return True

    gateway.gateway.set_authorizer(note)
    for _ in range(4):
        client = gateway.join()
        assert client.welcome
        assert client.request("subscribe", {"pattern": "a.1"})["ok"]
        client.leave()
    assert len(greenlets) == 4


def test_a_caller_over_http_is_asked_about_each_time(gateway: GatewayOnModel, application: Application) -> None:
    """Nothing is remembered, because there is no connection."""
    authorizing = gateway.gateway.authorizing
    for _ in range(2):
        authorizing.ask(Identity("ana"), "a.1", "replay")
    assert application.asked == [("ana", "a.1", "replay")] * 2
    application.refuses = {"a.1"}
    with pytest.raises(Forbidden):
        authorizing.ask(Identity("ana"), "a.1", "replay")
    application.fault = RuntimeError()
    with capture_logs(), pytest.raises(AuthorizeFailed):
        authorizing.ask(Identity("ana"), "a.1", "replay")
    authorizing.authorizer = None
    authorizing.ask(Identity("ana"), "a.1", "replay")
