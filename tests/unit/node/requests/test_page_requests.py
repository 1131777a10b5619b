"""Page requests: each is answered once, whatever its function does, and functions are bounded until they have ended."""

import json
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.event import Event
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from structlog.testing import capture_logs

from headgate.auth.identity import Identity, PageRequest
from headgate.errors import BusUnavailable, Forbidden, HeadgateError, RequestRefused
from headgate.node.requests import page_requests
from headgate.node.requests.page_requests import PageRequests
from headgate.runtime.metrics import PAGE_REQUESTS, PAGE_REQUESTS_RUNNING
from headgate.settings.settings import Settings
from headgate.transport.socketio_packet import ACK, write_packet

ANA = Identity("ana")
HOUR_S = 3600.0


class Desk:
    """Page requests of one application; `answers` has the acknowledgements by id, as they are after their way over the wire."""

    def __init__(self, **settings: Any) -> None:
        self.requests = PageRequests(Settings(**{"requests_per_s": 1000.0, "request_timeout_s": 600.0, **settings}))
        self.answerers: dict[str, Callable[[PageRequest], object]] = {}
        self.requests.answerers = self.answerers
        self.answers: dict[str, list[dict[str, Any]]] = {}

    def ask(
        self,
        function: Callable[[PageRequest], object],
        id: str = "r",
        *,
        account: str = "ana",
        within_s: float = HOUR_S,
        connection: object = None,
    ) -> Any:
        """Make a request that `function` answers; return a function that cancels it."""
        self.answerers["orders.price"] = function
        later = self.requests.begin(account, PageRequest("orders.price", 7, ANA, "notifications", id), within_s, connection)
        return later(
            lambda answer: self.answers.setdefault(id, []).append(json.loads(write_packet(ACK, b"/", [answer], 1)[2:])[0])
        )

    def answer(self, function: Callable[[PageRequest], object], id: str = "r", **options: Any) -> dict[str, Any]:
        """Make a request, let its function run, and return the one answer."""
        self.ask(function, id, **options)
        gevent.idle(-2)
        (answer,) = self.answers.pop(id)
        return answer

    def refusal(self, **options: Any) -> HeadgateError:
        """Make a request, and return the error that it is refused with."""
        with pytest.raises(HeadgateError) as refused:
            self.ask(lambda request: None, **options)
        return refused.value


def count(outcome: str) -> float:
    return PAGE_REQUESTS.labels("notifications", outcome)._value.get()  # type: ignore[no-any-return]


def raising(error: BaseException) -> Callable[[PageRequest], object]:
    def function(request: PageRequest) -> object:
        raise error

    return function


@pytest.mark.parametrize("answer", [None, 0, "é\u2028", [], {"cents": 995, "at": [1.5, None, True]}])
def test_the_answer_is_what_the_function_returns(answer: object) -> None:
    """As JSON, null too; and it is counted."""
    before = count("answered")
    assert Desk().answer(lambda request: answer) == {"ok": True, "data": answer}
    assert count("answered") == before + 1


def test_a_connection_asks_until_it_has_its_answer() -> None:
    """A stopped function that goes on is answered for; nothing waits for it."""
    desk, go_on = Desk(), Event()

    def stubborn(request: PageRequest) -> None:
        try:
            go_on.wait()
        except gevent.GreenletExit:
            go_on.wait()

    for number in range(2):
        desk.ask(stubborn, f"r{number}", connection=f"c{number}")
    gevent.idle(-2)
    assert desk.requests.asking() == {"c0", "c1"}
    assert desk.requests.cancel("ana", "r0")
    gevent.idle(-2)
    assert desk.requests.asking() == {"c1"}
    go_on.set()
    gevent.idle(-2)
    assert not desk.requests.asking()


def test_a_function_gets_the_data_and_who_asks() -> None:
    """The identity is the gateway's, not the page's."""
    asked: list[PageRequest] = []
    Desk().answer(asked.append, "r1")
    assert asked == [PageRequest("orders.price", 7, ANA, "notifications", "r1")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestRefused("sold_out", "no more of them", sku="a7"), "sold_out"),
        (Forbidden("price", "a7"), "forbidden"),
        (BusUnavailable("redis.internal:6379 is gone", shown="no answer"), "bus_unavailable"),
    ],
)
def test_a_function_refuses_with_a_code_of_its_own(error: HeadgateError, code: str) -> None:
    """The page gets the message and the parts, and of our errors the parts that any client may know."""
    before = count("refused")
    answer = Desk().answer(raising(error))
    assert (answer["ok"], answer["error"]["code"]) == (False, code)
    assert answer["error"] == error.to_wire()
    assert "redis.internal" not in json.dumps(answer)
    assert count("refused") == before + 1


@pytest.mark.parametrize(
    "error", [KeyError("secret-table"), gevent.Timeout(1), SystemExit("secret-table")], ids=lambda error: type(error).__name__
)
def test_of_an_exception_the_page_learns_nothing(error: BaseException) -> None:
    """The log has all of it."""
    with capture_logs() as lines:
        answer = Desk().answer(raising(error))
    assert (answer["error"]["code"], answer["error"]["retry"]) == ("request_failed", False)
    assert "secret" not in json.dumps(answer)
    assert [(line["event"], line["request"], line["exc_info"]) for line in lines] == [
        ("a page request failed", "orders.price", True)
    ]


def test_a_function_that_ends_its_greenlet_is_answered_for() -> None:
    """Without an answer the page would wait for its whole time."""
    assert Desk().answer(raising(gevent.GreenletExit()))["error"]["code"] == "request_failed"


@pytest.mark.parametrize(
    ("answer", "code"), [(object(), "not_serializable"), (float("nan"), "not_serializable"), ("x" * 2000, "payload_too_large")]
)
def test_an_answer_that_cannot_be_sent_is_a_fault_of_the_function(answer: object, code: str) -> None:
    """It is counted as failed and logged, and the page gets the reason."""
    before = count("failed")
    with capture_logs() as lines:
        error = Desk(max_payload_bytes=1024).answer(lambda request: answer)["error"]
    assert error["code"] == code
    assert error.get("where") in (None, "answer")
    assert [line["request"] for line in lines] == ["orders.price"]
    assert count("failed") == before + 1


def test_answers_that_cannot_be_sent_fill_no_log() -> None:
    """Pages decide how often a function is asked."""
    desk = Desk()
    with capture_logs() as lines:
        for number in range(20):
            desk.answer(lambda request: object(), str(number))
    assert [line["left_out"] for line in lines] == [0]


@pytest.mark.parametrize("part", [object(), "x" * 2000])
def test_a_refusal_that_cannot_be_sent_is_one_too(part: object) -> None:
    """Its parts are of the application."""
    with capture_logs():
        answer = Desk(max_payload_bytes=1024).answer(raising(RequestRefused("sold_out", "no", part=part)))
    assert answer["error"]["code"] in ("not_serializable", "payload_too_large")


@pytest.mark.parametrize("stops", [True, False])
def test_a_late_function_is_answered_for_at_once_and_keeps_its_place_until_it_has_ended(*, stops: bool) -> None:
    """It is stopped where it waits; one that goes on nevertheless is bounded all the same."""
    desk, ended = Desk(max_requests=1), Event()

    def late(request: PageRequest) -> str:
        try:
            Event().wait()
        except gevent.GreenletExit:
            if not stops:
                ended.wait()
        return "too late"

    desk.ask(late, within_s=0.01)
    while not desk.answers:
        gevent.sleep(0.001)
    error = desk.answers["r"][0]["error"]
    assert (error["code"], error["name"], error["timeout_s"], error["retry"]) == ("timed_out", "orders.price", 0.01, False)
    gevent.idle(-2)
    if not stops:
        assert desk.refusal(id="r2").parts == {"name": "max_requests", "limit": 1}
        ended.set()
        gevent.idle(-2)
    assert desk.answer(lambda request: 1, "r2") == {"ok": True, "data": 1}
    assert len(desk.answers["r"]) == 1


def test_the_gateways_time_bounds_what_the_page_asks_for() -> None:
    """A page may ask for less."""
    desk = Desk(request_timeout_s=0.05)
    desk.ask(lambda request: Event().wait(), within_s=HOUR_S)
    while not desk.answers:
        gevent.sleep(0.001)
    assert desk.answers["r"][0]["error"]["timeout_s"] == 0.05


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_cancelled_function_is_stopped(*, has_begun: bool) -> None:
    """Where it waits, or before it begins; its answer says so, and its place is free."""
    desk, steps = Desk(max_requests=1), list[str]()

    def function(request: PageRequest) -> None:
        steps.append("begun")
        try:
            Event().wait()
        finally:
            steps.append("stopped")

    desk.ask(function)
    if has_begun:
        gevent.idle(-2)
    assert desk.requests.cancel("ana", "r")
    assert not desk.requests.cancel("ana", "r")
    gevent.idle(-2)
    assert steps == (["begun", "stopped"] if has_begun else [])
    (answer,) = desk.answers["r"]
    assert answer["error"]["message"] == "the request 'orders.price' failed: it was cancelled"
    assert desk.answer(lambda request: 1, "r2")["ok"]


def test_a_name_without_a_function_is_refused() -> None:
    """With the name, and without a list of the others."""
    desk = Desk()
    with pytest.raises(HeadgateError) as refused:
        desk.requests.begin("ana", PageRequest("orders.none", 7, ANA, "notifications", "r"), HOUR_S)
    assert (refused.value.code, refused.value.parts) == ("unknown_request", {"name": "orders.none"})


def test_requests_of_a_user_that_wait_are_bounded() -> None:
    """Those of others go on; `retry` says that there is room again."""
    desk, go_on = Desk(max_requests=2), Event()
    for id in ("r1", "r2"):
        desk.ask(lambda request: go_on.wait(), id)
    error = desk.refusal(id="r3")
    assert (error.code, error.parts, error.retry, error.retry_after_s) == (
        "limit_reached",
        {"name": "max_requests", "limit": 2},
        True,
        1,
    )
    assert desk.answer(lambda request: 1, "r3", account="ben")["ok"]
    go_on.set()
    gevent.idle(-2)
    assert desk.answer(lambda request: 1, "r3")["ok"]


def test_requests_of_all_users_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a greenlet, and perhaps a connection to a database."""
    monkeypatch.setattr(page_requests, "MAX_RUNNING", 2)
    desk, go_on = Desk(), Event()
    for user in ("ana", "ben"):
        desk.ask(lambda request: go_on.wait(), account=user)
    assert desk.refusal(account="cleo").parts == {"name": "requests_running", "limit": 2}
    go_on.set()
    gevent.idle(-2)


def test_requests_of_a_user_have_a_rate() -> None:
    """Twice as many at once; a refusal says when there is room."""
    desk = Desk(requests_per_s=2.0)
    assert all(desk.answer(lambda request: 1)["ok"] for _ in range(4))
    error = desk.refusal()
    assert (error.parts, error.retry_after_s) == ({"name": "requests_per_s", "limit": 2.0}, 1)
    assert desk.answer(lambda request: 1, account="ben")["ok"]


def test_two_requests_of_a_user_that_wait_have_two_ids() -> None:
    """A cancellation names one of them."""
    desk, go_on = Desk(), Event()
    desk.ask(lambda request: go_on.wait())
    assert desk.refusal().code == "invalid_request"
    assert desk.refusal(account="ana").code == "invalid_request"
    go_on.set()
    gevent.idle(-2)


class Histories(RuleBasedStateMachine):
    """Any order of requests, ends, cancellations and departures, against a list of those that run."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(max_requests=2, requests_per_s=100_000.0)
        self.ends: dict[str, Event] = {}
        self.running: dict[str, str] = {}
        self.stubborn: set[str] = set()
        self.asked = 0

    @rule(user=st.sampled_from(["ana", "ben"]), stubborn=st.booleans(), begins=st.booleans())
    def ask(self, user: str, *, stubborn: bool, begins: bool) -> None:
        """A stubborn function ends only by its own end; one that does not begin is cancelled before."""
        id, end = f"r{self.asked}", Event()

        def function(request: PageRequest) -> str:
            while True:
                try:
                    end.wait()
                except gevent.GreenletExit:
                    if not stubborn:
                        raise
                else:
                    return request.id

        if list(self.running.values()).count(user) == 2:
            assert self.desk.refusal(id=id, account=user).parts["name"] == "max_requests"
            return
        self.asked += 1
        cancel = self.desk.ask(function, id, account=user)
        if not begins:
            cancel()
            return
        self.running[id], self.ends[id] = user, end
        if stubborn:
            self.stubborn.add(id)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        waits = id not in self.desk.answers
        assert not self.desk.requests.cancel({"ana": "ben", "ben": "ana"}[self.running[id]], id)
        assert self.desk.requests.cancel(self.running[id], id) is waits
        if id not in self.stubborn:
            del self.running[id]
        assert [each["ok"] for each in self.desk.answers[id]] == [False]

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: Any) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        self.ends[id].set()
        del self.running[id]
        gevent.idle(-2)
        (answer,) = self.desk.answers[id]
        assert answer.get("data") == id or answer["error"]["reason"] == "it was cancelled"

    @invariant()
    def what_runs_is_counted(self) -> None:
        gevent.idle(-2)
        assert {(user, id) for id, user in self.running.items()} == set(self.desk.requests._running)
        assert all(len(answers) == 1 for answers in self.desk.answers.values())

    def teardown(self) -> None:
        for end in self.ends.values():
            end.set()
        gevent.idle(-2)
        assert len(self.desk.answers) == self.asked
        assert self.desk.requests._running == {}
        assert PAGE_REQUESTS_RUNNING._value.get() == 0


def test_whatever_happens_a_request_is_answered_once() -> None:
    """Running ones are counted, of each user and of all, until their end."""
    run_state_machine_as_test(Histories, settings=examples(max_examples=60, stateful_step_count=20))
