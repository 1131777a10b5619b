"""A trace of one event, on answers of Redis that the test gives; tests/integration/cli/test_trace.py has a real one."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from headgate.cli.log import lines
from headgate.consumers.work.dead_letters import DeadLetter
from headgate.consumers.work.task import Task
from headgate.delivery.tally import NAMES
from headgate.diagnosis import tracing as module
from headgate.diagnosis.tracing import (
    BROWSERS,
    CONSUMERS,
    DEADLINE_S,
    GATEWAYS,
    HANDLED,
    STEP_EVENTS,
    AtConsumer,
    AtGateway,
    NoSuchEvent,
    Trace,
    epoch_of,
    trace,
)
from headgate.errors import BusRefused, BusUnavailable, InvalidRequest
from headgate.redis import event_ids
from headgate.redis.client import Client
from headgate.redis.event_ids import PART_EVENTS
from headgate.redis.inbox import UserFacts
from headgate.redis.lineage import Head, read_lineage
from headgate.redis.questions import AtBrowsers

NOBODY = cast(Client, None)
TASK = Task("e2", 12, "users.ann.x", "id-12", 1700000000000, b"{}", attempt=3, reason="no answer")
LINEAGE = read_lineage("e2", [("e1", 1, 0), ("e2", 11, 1)])


class Answers:
    """A Redis with a log of `size` events, and one group `mail` in a state that a test sets."""

    def __init__(self, size: int = 20) -> None:
        self.size, self.position = size, 20
        self.deliveries = 0
        self.body: bytes | None = None
        self.out: bytes | None = None
        self.letters: list[DeadLetter] = []
        self.browsers, self.silent = AtBrowsers(), tuple[str, ...]()
        self.told: dict[tuple[str, int], dict[str, list[int]]] = {}
        self.facts = UserFacts()
        self.outcomes: list[str] = []

    def entry(self, offset: int) -> tuple[bytes, dict[bytes, bytes]]:
        fields = {b"topic": b"users.ann.x", b"id": b"id-%d" % offset, b"time": b"1700000000000", b"data": b"{}"}
        return b"%d-0" % offset, fields

    def call(self, client: Client, *command: Any) -> Any:
        match command:
            case ("XRANGE", _, first, _):
                offset = int(first.partition("-")[0])
                return [self.entry(offset)] if 1 <= offset <= self.size else []
            case ("EVAL_RO", _, 1, _, wanted, last, part, _):  # as the script of redis/event_ids.py
                newest = self.size if last == "+" else int(last[1:].partition("-")[0]) - 1
                looked = range(newest, max(newest - part, 0), -1)
                for count, offset in enumerate(looked, 1):
                    if wanted == b"id-%d" % offset:
                        return [count, 2 * count, b"(%d-0" % offset, 1]
                return [len(looked), 2 * len(looked), b"(%d-0" % looked[-1] if newest > part else b"", 0]
            case ("HSCAN", *_):
                return 0, {} if self.body is None else {b"task": self.body}
            case ("HGET", key, _):
                return self.body if key.endswith(":body") else self.out
        raise AssertionError(command)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers()

    class Log:
        def __init__(self, *_: object) -> None: ...

        def head(self, known: str) -> Head:
            return Head("e2", answers.size, 1, 10, LINEAGE)

    class Known:
        def __init__(self, *_: object) -> None: ...

        def names(self) -> list[str]:
            return ["mail"]

    class Letters:
        def __init__(self, *_: object) -> None: ...

        def page(self, after: str | None, limit: int) -> list[DeadLetter]:
            begin = 0 if after is None else [letter.id for letter in answers.letters].index(after) + 1
            return answers.letters[begin : begin + limit]

    monkeypatch.setattr(module, "call", answers.call)
    monkeypatch.setattr(event_ids, "call", answers.call)
    monkeypatch.setattr(module, "place_of", lambda *_: "nowhere")
    monkeypatch.setattr(module, "read_position", lambda *_: answers.position)
    monkeypatch.setattr(module, "deliveries", lambda *_: answers.deliveries)
    monkeypatch.setattr(module, "read_user_facts", lambda *_: answers.facts)
    monkeypatch.setattr(module, "read_outcomes", lambda *_: list(answers.outcomes))
    monkeypatch.setattr(module, "ask_browsers", lambda *_: (answers.browsers, answers.silent))
    monkeypatch.setattr(module, "read", lambda client, namespace, epoch, offset: answers.told.get((epoch, offset), {}))
    for name, fake in (("EventLog", Log), ("Groups", Known), ("DeadLetters", Letters)):
        monkeypatch.setattr(module, name, fake)
    return answers


def of(event: str = "id-12", now_s: Callable[[], float] = lambda: 0.0) -> Trace:
    return trace(NOBODY, "n", event, now_s)


def test_an_event_among_many_that_no_gateway_has_counted_was_not_sampled(answers: Answers) -> None:
    """It names the nearest that was, and how to follow one; among the first events of a log there are not many."""
    answers.size = 300
    assert of("id-50").notes[0].startswith("No gateway has counted")
    [note] = of("id-250").notes
    assert note.startswith("Not sampled: of more than about 100 events a second a gateway counts every 100th")
    assert "headgate trace 200" in note
    assert "HEADGATE_TRACE_EVERY=1" in note
    answers.told["e2", 250] = {"here": [1] * len(NAMES)}
    assert of("id-250").notes == []


def at_mail() -> AtConsumer:
    found = of()
    assert found.unknown == []
    [consumer] = found.consumers
    return consumer


def test_an_epoch_is_that_in_which_the_offset_was_written() -> None:
    assert [epoch_of(LINEAGE, offset) for offset in (1, 10, 11, 99)] == ["e1", "e1", "e2", "e2"]


def test_a_trace_says_how_much_it_has_looked_at(answers: Answers) -> None:
    """Events of the search, steps through the work of consumers, asked pages: also of one that finds nothing."""
    answers.size, answers.position = 2000, 2000
    answers.browsers = AtBrowsers(clients=1500, unanswered=1000, not_asked=500)
    charged: list[int] = []

    def traced(event: str) -> int:
        charged.clear()
        with suppress(NoSuchEvent):
            trace(NOBODY, "n", event, lambda: 0.0, charged.append)
        return sum(charged)

    assert traced("none") == 2000
    assert traced("2000") == STEP_EVENTS + 1000  # a page of letters, and the pages
    assert traced("id-801") == 1200 + STEP_EVENTS + 1000


def test_an_event_is_found_by_its_id_and_by_its_offset(answers: Answers) -> None:
    """Digits without such an offset count as an id."""
    assert (of("id-12").offset, of("12").id, of("id-3").epoch) == (12, "id-12", "e1")
    for missing in ("id-99", "99"):
        with pytest.raises(NoSuchEvent, match="which holds 20, up to offset 20"):
            of(missing)


def test_a_long_log_is_looked_through_until_the_deadline(answers: Answers) -> None:
    """Then the answer gives the searched part, and does not deny the event, because a second try may find it."""
    answers.size = 3 * PART_EVENTS
    assert of("id-1").offset == 1
    times = iter([0.0, 0.0, DEADLINE_S + 1])
    with pytest.raises(BusUnavailable, match=f"among the newest {2 * PART_EVENTS}") as refused:
        of("id-1", lambda: next(times))
    assert refused.value.retry


def test_a_log_that_is_too_long_to_look_through_has_perhaps_the_event(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no word about the event, and to ask again does not help."""
    monkeypatch.setattr(module, "MAX_EVENTS", 2 * PART_EVENTS)
    answers.size = 3 * PART_EVENTS
    with pytest.raises(InvalidRequest, match="give its offset") as refused:
        of("id-1")
    assert not isinstance(refused.value, NoSuchEvent)


def test_the_words_of_a_gateway_in_every_epoch_that_has_the_event_are_added(answers: Answers) -> None:
    """It was written in one, and read from the log in the next."""
    written = [3, 3, *[0] * (len(NAMES) - 2)]
    answers.told = {
        ("e1", 5): {"web/1": written},
        ("e2", 5): {"web/1": [*[0] * (len(NAMES) - 1), 2]},
        ("e1", 12): {"web/2": written},
    }
    [at] = of("5").gateways
    assert (at.gateway, at.counts["written"], at.counts["from_log"]) == ("web/1", 3, 2)
    # Offset 12 of the first epoch is another event.
    found = of("12")
    assert found.gateways == []
    assert "No gateway has counted" in found.notes[0]


def test_a_consumer_stands_where_the_task_is(answers: Answers) -> None:
    assert at_mail() == AtConsumer("mail", "done")
    answers.letters = [DeadLetter(f"{number}-0", 0, "gave_up", "no answer", TASK) for number in range(3)]
    assert at_mail() == AtConsumer("mail", "dead", 3, "gave_up: no answer")
    answers.body = TASK.pack()
    assert at_mail() == AtConsumer("mail", "waiting", 3, "no answer")
    answers.out = b"1"
    assert at_mail().state == "leased"
    answers.body = b"rubbish"
    assert at_mail() == AtConsumer("mail", "waiting", 0, "unreadable")
    answers.deliveries = 2
    assert at_mail() == AtConsumer("mail", "leased", 2)
    answers.position = 11
    assert at_mail() == AtConsumer("mail", "not taken")


def test_the_state_for_its_user_is_that_of_all_facts(answers: Answers) -> None:
    """The acts of a gateway, a page, a consumer and the user, the last of them first."""
    states = [of().state]
    answers.told["e2", 12] = {"here": [1] * len(NAMES)}
    states.append(of().state)
    answers.browsers = AtBrowsers(clients=1, handled=1)
    states.append(of().state)
    answers.outcomes = ["muted"]
    states.append(of().state)
    answers.outcomes = ["pushed", "muted"]
    states.append(of().state)
    answers.outcomes = ["mailed", "pushed", "muted"]
    states.append(of().state)
    answers.facts = UserFacts(is_shown=True)
    states.append(of().state)
    answers.facts = UserFacts(is_read=True, is_shown=True)
    states.append(of().state)

    assert states == ["sent", "delivered", "handled", "withdrawn", "pushed", "mailed", "shown", "read"]
    assert of().consumers == [AtConsumer("mail", "done", outcomes=["mailed", "pushed", "muted"])]


def test_a_group_that_is_gone_holds_nothing(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of an earlier epoch is taken away when all of it is answered."""

    def refuses(*_: object) -> int:
        raise BusRefused("NOGROUP")

    monkeypatch.setattr(module, "read_position", lambda *_: answers.position)
    monkeypatch.setattr(module, "deliveries", refuses)
    assert at_mail().state == "done"


def test_dead_letters_are_looked_through_to_a_bound(answers: Answers) -> None:
    """The notes report that there are more."""
    other = Task("e1", 1, "x", None, 0, b"")
    answers.letters = [DeadLetter(f"{number}-0", 0, "gave_up", "", other) for number in range(module.MAX_LETTERS + 1)]
    found = of()
    assert (found.consumers, found.unknown) == ([], ["consumer mail"])
    assert any("more dead letters" in note for note in found.notes)
    assert found.notes[-1].endswith("not known is consumer mail.")


MAIL = "consumer mail"


@pytest.mark.parametrize(
    ("step", "unknown"),
    [
        ("read", [GATEWAYS, BROWSERS, CONSUMERS, HANDLED]),
        ("read_user_facts", [BROWSERS, CONSUMERS, HANDLED]),
        ("deliveries", [HANDLED, MAIL]),
        ("Known.names", [CONSUMERS, HANDLED]),
        ("Letters.page", [HANDLED, MAIL]),
        ("ask_browsers", [HANDLED]),
    ],
)
def test_what_a_stalled_redis_does_not_tell_by_the_deadline_is_named(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, step: str, unknown: list[str]
) -> None:
    """The rest is there, and nothing more is asked."""
    clock = 0.0

    def stall(*_: object) -> None:
        nonlocal clock
        clock = DEADLINE_S + 1
        raise BusUnavailable("no answer")

    known = {"Known.names": "Groups.names", "Letters.page": "DeadLetters.page"}
    monkeypatch.setattr(f"headgate.diagnosis.tracing.{known.get(step, step)}", stall)
    found = of(now_s=lambda: clock)
    assert (found.offset, found.unknown) == (12, unknown)
    assert f"not known is {', '.join(unknown)}" in found.notes[-1]


def test_a_trace_ends_at_its_deadline_between_two_commands(answers: Answers) -> None:
    """A Redis that answers each command late is asked no more."""
    for late_after in range(1, 14):
        times = iter([0.0] * late_after + [DEADLINE_S + 1] * 100)
        found = of("12", lambda times=times: next(times))  # type: ignore[misc]
        assert bool(found.unknown) == ("not known is" in found.notes[-1] if found.notes else False)
        assert ({each.consumer for each in found.consumers} == {"mail"}) == (found.unknown in ([], [HANDLED])), late_after
    assert not found.unknown


def test_what_browsers_say_is_told_and_so_is_a_gateway_that_does_not_answer(answers: Answers) -> None:
    """For a program as counts, for a person in words; nothing where no client is connected."""
    assert not [line for line in lines(of()) if line.startswith("browsers: of")]
    answers.browsers, answers.silent = AtBrowsers(5, handled=2, unhandled=1, unanswered=2), ("web-2/9",)
    found = of()
    assert (found.browsers, found.unknown) == (answers.browsers, [])
    said = (
        "browsers: of 5 connected now, 2 handled it, 1 passed it without a handler (a gap, or no handler then), 2 did not answer"
    )
    assert said in lines(found)
    assert "note: handled: no answer from the pages of web-2/9." in lines(found)


def test_a_part_that_redis_refuses_is_not_known(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of Redis may lack a right; the rest of the trace is there."""

    def refuses(*_: object) -> bool:
        raise BusRefused("NOPERM")

    monkeypatch.setattr(module, "read_user_facts", refuses)
    found = of()
    assert (found.unknown, found.shown) == (["browsers"], None)
    assert [each.state for each in found.consumers] == ["done"]
    assert any(note.startswith("browsers: ") and "NOPERM" in note for note in found.notes)


@pytest.mark.parametrize("wanted", ["\ud800", "id\udfff", "\udc80" * 1000])
def test_an_id_that_is_not_unicode_is_refused(answers: Answers, wanted: str) -> None:
    """A command line passes on bytes of invalid UTF-8 as halves of surrogate pairs."""
    with pytest.raises(InvalidRequest, match="is not Unicode"):
        of(wanted)


def test_the_entry_says_who_published_it_and_in_which_trace(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's name may have any characters, a key is named as in the audit log, and an entry that names none is a service's."""
    entry = answers.entry
    assert (of().by, of().traceparent) == (None, None)
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    more = {b"publisher": b"%C3%A4nn%20b", b"traceparent": parent.encode()}
    monkeypatch.setattr(answers, "entry", lambda offset: (entry(offset)[0], entry(offset)[1] | more))
    assert (of().by, of().traceparent) == ("\xe4nn b", parent)
    more |= {b"traceparent": b"00-rubbish", b"publisher": b"%00key:4cFy0YeAf1"}
    assert (of().by, of().traceparent) == ("key 4cFy0YeAf1", None)
    assert "by key 4cFy0YeAf1, offset" in lines(of())[1]


def test_an_entry_without_a_time_is_found(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written to the stream by hand."""
    monkeypatch.setattr(answers, "entry", lambda offset: (b"%d-0" % offset, {b"id": b"id-%d" % offset, b"time": b"soon"}))
    assert (of().time_ms, of().topic) == (0, "")


def test_a_person_reads_it_in_lines() -> None:
    """Absent steps are left out."""
    counts = dict.fromkeys(NAMES, 0) | {"matched": 5, "written": 4, "gone": 1, "from_log": 2}
    found = Trace("n", "e2", 12, "users.ann.x", "id-12", 1700000000000, 2, 20)
    found.gateways, found.shown = (
        [AtGateway("web/1", counts), AtGateway("web/2", {**dict.fromkeys(NAMES, 0), "matched": 1, "gone": 1})],
        False,
    )
    found.consumers = [AtConsumer("mail", "done", outcomes=["muted"]), AtConsumer("hook", "dead", 5, "gave_up")]
    found.state, found.notes = "delivered", ["Redis was too slow."]
    assert lines(replace(found, by="ann", traceparent=f"00-{'a' * 32}-{'b' * 16}-01"))[1:3] == [
        "published 2023-11-14T22:13:20.000+00:00 by user ann, offset 12 of 20 in n, epoch e2",
        f"trace {'a' * 32} (traceparent 00-{'a' * 32}-{'b' * 16}-01)",
    ]
    assert lines(found) == [
        "event id-12, topic users.ann.x, 2 bytes",
        "published 2023-11-14T22:13:20.000+00:00 by a service, offset 12 of 20 in n, epoch e2",
        "gateway web/1: for 5 clients: 4 written to at once, 1 whose connection was gone; 2 read it from the log",
        "gateway web/2: for 1 client: 1 whose connection was gone",
        "user ann: delivered",
        "consumer mail: done (muted)",
        "consumer hook: dead, attempt 5 (gave_up)",
        "note: Redis was too slow.",
    ]
