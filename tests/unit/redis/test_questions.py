"""Questions to all gateway processes: which answer, which are named as silent, and how long a caller waits. On a small Redis."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headgate.errors import BusUnavailable, InvalidRequest
from headgate.redis.keys import answers_key, questions_channel
from headgate.redis.questions import KEPT_S, UNREGISTERED, Question, answer, ask, read_question
from tests.support.small_redis import SmallRedis


class Asked:
    """A Redis, gateways that hear its questions, and a clock that moves while none answers."""

    def __init__(self) -> None:
        self.redis = SmallRedis()
        self.heard: list[Question] = []

    def gateway(self, gateway_id: str, *parts: object) -> None:
        """Add one that answers at once with these parts; with none, never."""

        def hear(message: bytes) -> None:
            question = read_question(message)
            assert question is not None
            self.heard.append(question)
            if parts:  # those of one come before those of the next
                for at, part in enumerate(parts, 1):
                    answer(self.redis.client(), question, gateway_id, part, last=at == len(parts))

        self.redis.hearers.setdefault(questions_channel(0), []).append(hear)

    def ask(self, *living: str, is_enough: Callable[[Any], bool] = lambda body: False, within_s: float = 1.0) -> Any:
        def now_s() -> float:
            return float(self.redis.now_s)

        return ask(
            self.redis.client(), "k", {"a": 1}, living, msgspec.json.decode, within_s=within_s, is_enough=is_enough, now_s=now_s
        )


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_the_answers_of_all_are_collected_in_the_order_in_which_they_come(asked: Asked) -> None:
    """All have had the same question."""
    asked.gateway("web1/7:aa", 1, 2)
    asked.gateway("web2/9:bb", 3)
    answers = asked.ask("web1/7:aa", "web2/9:bb")
    assert answers.parts == [1, 2, 3]
    assert answers.silent == ()
    one, two = asked.heard
    assert one == two
    assert (one.kind, one.within_ms, msgspec.json.decode(one.body)) == ("k", 1000, {"a": 1})


@pytest.mark.parametrize(
    ("gateways", "living", "options", "parts", "silent", "took_s"),
    [
        ({"a:1": ["here"], "b:1": []}, ["a:1", "b:1"], {"within_s": 3}, ["here"], ("b",), 3),
        ({"a:1": ["no", "yes"]}, ["a:1", "b:1"], {"is_enough": lambda part: part == "yes"}, ["no", "yes"], (), 0),
        ({"a:1": [1]}, ["a:1", "killed:1"], {}, [1], ("killed",), 0),
        ({"a:1": ["no"], "leaving:1": ["yes"]}, ["a:1"], {}, ["no", "yes"], (), 0),
        ({"a:1": [1], "stuck:1": []}, ["a:1"], {}, [1], (UNREGISTERED,), 1),
        ({}, [], {}, [], (), 0),
    ],
    ids=[
        "one is late",
        "one answer is enough",
        "one does not hear",
        "one is about to stop",
        "one of these is late",
        "none lives",
    ],
)
def test_those_that_hear_are_waited_for_and_the_silent_are_named(
    asked: Asked, gateways: dict[str, list[Any]], living: list[str], options: dict[str, Any], parts: list[Any],
    silent: tuple[str, ...], took_s: int,
) -> None:  # fmt: skip
    """One that was killed is named at once. One that is about to stop is out of the registry, and still has clients."""
    for gateway, own in gateways.items():
        asked.gateway(gateway, *own)
    answers = asked.ask(*living, **options)
    assert (list(answers.parts), answers.silent, answers.unanswered) == (parts, silent, int(took_s > 0))
    assert asked.redis.now_s == 1000 + took_s


def test_an_answer_that_cannot_be_read_is_none(asked: Asked) -> None:
    """Of another version, or pushed there by another program, so its process is silent."""
    asked.gateway("a:1", 1)

    def of_another_version(message: bytes) -> None:
        question = read_question(message)
        assert question is not None
        asked.redis.execute_command("RPUSH", answers_key(question.id), b"rubbish")

    asked.redis.hearers[questions_channel(0)].append(of_another_version)
    answers = asked.ask("a:1", "b:1")
    assert (answers.parts, answers.silent) == ([1], ("b",))


def test_an_answer_that_nobody_reads_goes_by_itself(asked: Asked) -> None:
    """It comes after the asker has given up."""
    question = Question("1", "k", 1000, msgspec.Raw(b"{}"))
    answer(asked.redis.client(), question, "a:1", "late", last=True)
    assert len(asked.redis.present()) == 1
    asked.redis.now_s += KEPT_S
    assert asked.redis.present() == set()


def test_without_redis_nobody_is_asked(asked: Asked) -> None:
    asked.redis.up = False
    with pytest.raises(BusUnavailable):
        asked.ask("a:1")


@pytest.mark.parametrize("within_s", [0, -1, 31, float("nan")])
def test_a_time_that_cannot_be_is_refused(asked: Asked, within_s: float) -> None:
    """A browser of an operator waits for it."""
    with pytest.raises(InvalidRequest):
        asked.ask("a:1", within_s=within_s)


@pytest.mark.parametrize("message", [b"", b"{}", b"[1", b"\xff", b'{"id":1,"kind":"k","within_ms":1,"body":{}}', b"[" * 100_000])
def test_what_is_no_question_is_none(message: bytes) -> None:
    """Anyone with Redis may publish anything."""
    assert read_question(message) is None
