"""The answers of a gateway process: bounded, in time, and with every fault reported. On a small Redis and the test's clock."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import gevent
import msgspec
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from headgate.errors import InvalidRequest
from headgate.node.cluster import answers as module
from headgate.node.cluster.answers import MAX_WORKERS, Answers, QuestionKind
from headgate.redis.keys import answers_key
from headgate.redis.questions import Question
from headgate.runtime.log_throttle import EVERY_S
from tests.support.small_redis import SmallRedis


class Wish(msgspec.Struct):
    number: int


def left_out() -> float:
    labels = {"kind": "k", "outcome": "left_out"}
    return REGISTRY.get_sample_value("headgate_questions_total", labels) or 0.0


class Process:
    """One that answers with twice the number; it may be held up, and knows its finished questions."""

    def __init__(self) -> None:
        self.redis = SmallRedis()
        self.now_s = 0.0
        self.worked: list[int] = []
        self.noted: list[Wish] = []
        self.at_once = 0
        self.gate, self.application = gevent.event.Event(), gevent.event.Event()
        self.gate.set()
        self.fault: Exception | None = None
        self.answers = Answers(self.redis.client(), cast(Any, SimpleNamespace(id="a:1")), lambda: self.now_s)
        self.answers.add({"k": QuestionKind(Wish, self._double, self.noted.append)})
        self.answers.add({"slow": QuestionKind(Wish, self._double_slowly, asks_application=True)})

    def ask(self, number: object, kind: str = "k", within_ms: int = 1000) -> None:
        question = Question(f"q{number}", kind, within_ms, msgspec.Raw(msgspec.json.encode({"number": number})))
        self.answers.receive(msgspec.json.encode(question))

    def answered(self, number: object) -> Any:
        """Return the body of the answer to a question, or None."""
        found = self.redis.execute_command("BLPOP", answers_key(f"q{number}"), "0.010")
        return None if found is None else msgspec.json.decode(found[1])["body"]

    def _double(self, wish: Wish) -> list[int]:
        self.at_once = max(self.at_once, self.answers._lane.workers)
        self.gate.wait()
        if self.fault is not None:
            raise self.fault
        self.worked.append(wish.number)
        return [2 * wish.number]

    def _double_slowly(self, wish: Wish) -> list[int]:
        self.application.wait()
        return [2 * wish.number]


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.gate.set()
    process.application.set()
    process.answers.close()
    gevent.idle(-2)


def test_a_question_is_answered_and_one_of_another_kind_is_not(process: Process) -> None:
    """Of a newer Headgate, perhaps; an invalid question is passed over."""
    process.ask(2)
    process.ask(3, kind="unknown")
    process.answers.receive(b"rubbish")
    gevent.idle(-2)
    assert process.answered(2) == 4
    assert process.answered(3) is None


def test_so_many_are_worked_on_and_wait_and_no_more(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond are left out, and counted; the others are answered when there is time."""
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    before = left_out()
    process.gate.clear()
    for number in range(MAX_WORKERS):
        process.ask(number)
    gevent.idle(-2)
    for number in range(MAX_WORKERS, MAX_WORKERS + 13):
        process.ask(number)
    assert process.at_once == MAX_WORKERS
    assert [wish.number for wish in process.noted] == list(range(MAX_WORKERS + 13))  # in order, and also the skipped ones
    assert left_out() == before + 3
    process.gate.set()
    gevent.idle(-2)
    assert sorted(process.worked) == list(range(MAX_WORKERS + 10))
    assert process.answers._lane.workers == 0


def test_an_application_that_hangs_holds_up_no_other_question(process: Process) -> None:
    """One caller regrants many users while their database is slow; operators still see, send and disconnect."""
    for number in range(3 * MAX_WORKERS):
        process.ask(number, kind="slow")
    gevent.idle(-2)
    process.ask(100)
    gevent.idle(-2)
    assert process.answered(100) == 200
    process.application.set()
    gevent.idle(-2)
    assert process.answered(3 * MAX_WORKERS - 1) == 2 * (3 * MAX_WORKERS - 1)


def test_a_question_that_its_asker_has_given_up_is_let_be(process: Process) -> None:
    """A wish that comes true later would be a surprise."""
    process.gate.clear()
    for number in range(MAX_WORKERS + 2):
        process.ask(number, within_ms=1000 if number <= MAX_WORKERS else 5000)
    gevent.idle(-2)
    process.now_s = 2.0
    process.gate.set()
    gevent.idle(-2)
    assert MAX_WORKERS not in process.worked
    assert MAX_WORKERS + 1 in process.worked


@pytest.mark.parametrize("fault", [InvalidRequest("not so"), RuntimeError("a bug")])
def test_a_fault_is_a_line_in_the_log_and_no_answer(process: Process, fault: Exception) -> None:
    """The next question is answered."""
    process.fault = fault
    with capture_logs() as lines:
        process.ask(1)
        gevent.idle(-2)
    assert [line["event"] for line in lines] in (["question not answered"], ["question failed"])
    process.fault = None
    process.ask(2)
    gevent.idle(-2)
    assert (process.answered(1), process.answered(2)) == (None, 4)


def test_a_fault_of_ours_that_comes_again_and_again_is_one_line_in_ten_seconds(process: Process) -> None:
    """With its traceback, because a script may ask thousands of questions that meet it."""
    process.fault = RuntimeError("a bug")
    with capture_logs() as lines:
        for number in range(50):
            process.ask(number)
        gevent.idle(-2)
    assert [(line["event"], line["left_out"]) for line in lines] == [("question failed", 0)]


@pytest.mark.parametrize(("kind", "body"), [("k", b'{"number":"one"}'), ("text", b'"\xff"')], ids=["another shape", "no Unicode"])
def test_a_body_that_cannot_be_read_is_a_line_in_the_log_and_ends_no_link(process: Process, kind: str, body: bytes) -> None:
    """It may be of another version. The link that brings it brings the revocations too."""
    process.answers.add({"text": QuestionKind(str, lambda text: [text], lambda text: None)})
    with capture_logs() as lines:
        process.answers.receive(b'{"id":"q","kind":"%b","within_ms":1000,"body":%b}' % (kind.encode(), body))
        gevent.idle(-2)
    assert [line["event"] for line in lines] == ["question not answered"]


def test_faults_of_one_kind_within_seconds_are_one_line_in_the_log(process: Process) -> None:
    """Redis takes no answers while it fails over, and a script asks thousands of questions. The next line counts them."""
    process.redis.up = False
    with capture_logs() as lines:
        for number in range(100):
            process.ask(number)
        gevent.idle(-2)
        process.now_s = EVERY_S
        process.ask(100)
        gevent.idle(-2)
    assert [(line["event"], line["left_out"]) for line in lines] == [("question not answered", 0), ("question not answered", 99)]


def test_a_closed_one_takes_no_questions(process: Process) -> None:
    """Those that wait are dropped."""
    process.gate.clear()
    for number in range(MAX_WORKERS + 1):
        process.ask(number)
    gevent.idle(-2)
    process.answers.close()
    process.ask(100)
    process.gate.set()
    gevent.idle(-2)
    assert sorted(process.worked) == list(range(MAX_WORKERS))
