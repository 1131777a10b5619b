"""A trace asks the pages of a gateway: the meaning of handled, the asked pages, and how long a caller waits."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InvalidRequest
from headgate.events.wire.requests import Handled, read_handled
from headgate.node.namespace import Namespace
from headgate.node.requests import handling as module
from headgate.node.requests.handling import Handling, PageAnswer, page_answer
from headgate.redis.questions import AtBrowsers, HandledQuestion, total

QUESTION = HandledQuestion("notifications", "e2", 10, "orders.1", 0)


class Page:
    """A client with a page that answers as soon as it is asked; `answers` are of the tabs that share its connection."""

    def __init__(self, *answers: dict[str, Any], arriving: bool = False, had: int = 99) -> None:
        self.state, self.asked, self.had_to = SimpleNamespace(arriving=arriving), 0, had
        self.answers, self.questions = answers, 0
        self.connection = self
        self.take: Any = None

    def offer_control(self, frame: Any) -> None:
        self.questions, number = self.questions + 1, self.asked
        for answer in self.answers:
            self.take(cast(Any, None), self, {"ask": number, "since": 0, "epoch": "e2", "offset": 20} | answer)


@pytest.fixture
def no_signal(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Signals that do not wait; the times of the waits asked for."""
    waits: list[float] = []

    class Signal:
        def __init__(self) -> None:
            self.is_set = False

        def set(self) -> None:
            self.is_set = True

        def wait(self, timeout_s: float) -> bool:
            if not self.is_set:
                waits.append(timeout_s)
            return self.is_set

    monkeypatch.setattr(module, "Signal", Signal)
    monkeypatch.setattr(module, "one_round", lambda: None)
    return waits


def asked(*pages: Page, epoch: str = "e2") -> tuple[Handling, Any]:
    namespace = SimpleNamespace(
        name="notifications", bus=SimpleNamespace(epoch=epoch), audience=lambda topic: pages, had=lambda page: page.had_to
    )
    handling = Handling({"notifications": cast(Namespace, namespace)})
    for page in pages:
        page.take = handling.take
    return handling, namespace


def test_each_page_counts_once_as_the_best_that_a_tab_of_it_has_said(no_signal: list[float]) -> None:
    """Handled, unhandled, behind, unknown, no answer; two with a known lag are not asked."""
    pages = (
        Page({"handled": True}),
        Page({"handled": False}, {"handled": True}, {"handled": False}),
        Page({"handled": False}),
        Page({"handled": False, "offset": 9}),
        Page({"handled": False, "since": 10}),
        Page({"handled": True, "epoch": "e1"}),
        Page(),
        Page(arriving=True),
        Page(had=9),
    )
    handling, _ = asked(*pages)
    assert handling.find(QUESTION) == [AtBrowsers(9, handled=2, unhandled=1, behind=3, unknown=2, unanswered=1)]
    assert [page.questions for page in pages] == [1] * 7 + [0, 0]
    assert no_signal == [0.0]


def test_nobody_waits_when_all_have_handled_it_or_nobody_is_there(no_signal: list[float]) -> None:
    """Nothing better can be said."""
    handling, _ = asked(Page({"handled": True}), Page({"handled": True}))
    assert handling.find(QUESTION) == [AtBrowsers(2, handled=2)]
    assert asked()[0].find(QUESTION) == [AtBrowsers()]
    assert no_signal == []


def test_a_page_that_has_not_answered_is_not_asked_again(no_signal: list[float]) -> None:
    """It may be stopped, and its notices wait. An answer that comes late ends that, and counts for nothing."""
    silent = Page()
    handling, namespace = asked(silent)
    for _ in range(3):
        assert handling.find(QUESTION) == [AtBrowsers(1, unanswered=1)]
    assert silent.questions == 1
    assert handling.take(namespace, cast(Any, silent), {"ask": 1, "handled": True, "since": 0}) == {}
    handling.find(QUESTION)
    assert silent.questions == 2


def test_another_epoch_or_namespace_is_asked_nothing(no_signal: list[float]) -> None:
    """There the offset may be another event's."""
    page = Page({"handled": True})
    assert asked(page, epoch="e3")[0].find(QUESTION) == [AtBrowsers(1, unknown=1)]
    assert Handling({}).find(QUESTION) == [AtBrowsers()]
    assert page.questions == 0


def test_questions_and_the_clients_of_one_are_bounded(no_signal: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients above the bound count as not asked."""
    monkeypatch.setattr(module, "MAX_ASKED", 2)
    pages = [Page({"handled": True}) for _ in range(5)]
    handling, _ = asked(*pages)
    assert handling.find(QUESTION) == [AtBrowsers(5, handled=2, not_asked=3)]
    monkeypatch.setattr(module, "MAX_QUESTIONS", 0)
    assert handling.find(QUESTION) == [AtBrowsers(5, not_asked=5)]


@given(st.booleans(), st.sampled_from(["e1", "e2", None]), st.integers(-1, 20), st.integers(-1, 20))
def test_handled_is_said_only_by_a_page_that_says_it_in_the_epoch_of_the_question(
    handled: bool, epoch: str | None, offset: int, since: int
) -> None:
    """Whatever else it says."""
    found = page_answer(Handled(1, handled, since, epoch, offset), QUESTION)
    assert (found is PageAnswer.HANDLED) == (handled and epoch == "e2")


@pytest.mark.parametrize(
    "body", [{}, {"ask": 1}, {"ask": "1", "handled": True}, {"ask": 1, "handled": 1}, {"ask": 1, "handled": True, "x": 1}]
)
def test_an_answer_that_is_none_is_refused(body: dict[str, Any]) -> None:
    """As any request."""
    with pytest.raises(InvalidRequest):
        read_handled(body)


def test_the_answers_of_several_gateways_add_up() -> None:
    """By name."""
    assert total([AtBrowsers(2, handled=2), AtBrowsers(3, behind=1, unanswered=2)]) == AtBrowsers(
        5, handled=2, behind=1, unanswered=2
    )
