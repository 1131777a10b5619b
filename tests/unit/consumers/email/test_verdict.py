"""email/verdict.py: the meaning of each answer of a mail server, and the pauses while it gives no service."""

from __future__ import annotations

import pytest

from headgate.consumers.base import Reject, Retry
from headgate.consumers.email.verdict import Pause, RefusesUs, Stage, first_line, judge


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("code", [250, 251, 252])
def test_an_agreeing_answer_raises_nothing(stage: Stage, code: int) -> None:
    """251 and 252 promise delivery as 250 does."""
    judge(stage, code, b"OK")


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("code", [-1, 220, 354, 450, 451, 452])
def test_an_answer_that_will_pass_is_tried_again(stage: Stage, code: int) -> None:
    """A 4xx, and an answer that does not belong there, say nothing against the mail for good."""
    with pytest.raises(Retry) as retry:
        judge(stage, code, b"later")

    assert (retry.value.reason, retry.value.after_s) == (f"the mail server answered {code} to {stage.value}: later", None)


@pytest.mark.parametrize("stage", [Stage.RECIPIENT, Stage.MESSAGE])
@pytest.mark.parametrize("code", [500, 550, 551, 552, 553, 554, 571])
def test_a_refusal_of_the_recipient_or_the_message_rejects_the_mail(stage: Stage, code: int) -> None:
    """The server will never take it."""
    with pytest.raises(Reject) as rejected:
        judge(stage, code, b"no")

    assert rejected.value.reason == f"the mail server answered {code} to {stage.value}: no"


@pytest.mark.parametrize("code", [500, 501, 550, 553, 554])
def test_a_refusal_of_the_sender_rejects_no_mail(code: int) -> None:
    """Every mail has the same sender, so the set-up is at fault."""
    with pytest.raises(RefusesUs, match=f"^it answered {code} to the sender: not your domain$"):
        judge(Stage.SENDER, code, b"not your domain")


def test_a_message_too_large_is_rejected_with_the_sender() -> None:
    """MAIL announces the size, and 552 there is about the message."""
    with pytest.raises(Reject, match="answered 552 to the sender"):
        judge(Stage.SENDER, 552, b"too big")


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("code", [421, 530, 534, 535, 538])
def test_a_closing_server_and_a_missing_login_reject_no_mail(stage: Stage, code: int) -> None:
    """They are against us, wherever they come."""
    with pytest.raises(RefusesUs, match=f"^it answered {code} to {stage.value}: log in$"):
        judge(stage, code, "log in")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"5.1.1 no such \x1b[31muser\n550 and more", "5.1.1 no such ?[31muser"),
        (b"one\r\ntwo", "one"),
        ("text\nmore", "text"),
        (b"\xff\xc3\xa9", "??"),
        (b"x" * 300, "x" * 200),
        (b"", ""),
    ],
)
def test_a_reason_holds_one_short_printable_line_of_the_answer(answer: bytes | str, line: str) -> None:
    """No control character of a server reaches a log or a terminal."""
    assert first_line(answer) == line


# Pauses ----------------------------------------------------------------------------------------------------------------------


def test_failures_in_a_row_pause_longer_and_longer() -> None:
    """From the second on, 1 s doubled up to a minute; until its end the next mails get the same trouble without an attempt."""
    pause, now_s, pauses = Pause(), 1000.0, []
    for _ in range(9):
        pause.check(now_s)
        pause_s = pause.begin(now_s, now_s, "554 go away").after_s or 0.0
        pauses.append(pause_s)
        if pause_s:
            with pytest.raises(Retry, match=r"^554 go away$") as sent_back:
                pause.check(now_s + pause_s / 4)
            assert sent_back.value.after_s == pause_s * 3 / 4
        now_s += pause_s

    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_one_success_ends_the_row() -> None:
    """The next failure counts as the first."""
    pause = Pause()
    for _ in range(5):
        pause.begin(1000.0, 1000.0, "gone")
    pause.end()

    assert pause.begin(2000.0, 2000.0, "gone").after_s == 0


@pytest.mark.parametrize("failures", [1, 2, 8])
def test_a_pause_is_never_shorter_than_the_attempt_took(failures: int) -> None:
    """A server that hangs costs a consumer half of its time at most."""
    pause = Pause()
    for _ in range(failures):
        retry = pause.begin(1000.0, 1090.0, "no answer in time")

    assert retry.after_s == 90
    pause.check(1180.0)
    with pytest.raises(Retry):
        pause.check(1179.0)
