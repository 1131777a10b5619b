"""email/smtp.py: the meaning of each answer of a mail server, and the pauses while it gives no service."""

import pytest

from headgate.consumers.base import Reject, Retry
from headgate.consumers.email.smtp import MESSAGE, RECIPIENT, SENDER, RefusesUs, first_line, judge


@pytest.mark.parametrize("stage", [SENDER, RECIPIENT, MESSAGE])
@pytest.mark.parametrize("code", [250, 251, 252])
def test_an_agreeing_answer_raises_nothing(stage: str, code: int) -> None:
    """251 and 252 promise delivery as 250 does."""
    judge(stage, code, b"OK")


@pytest.mark.parametrize("stage", [SENDER, RECIPIENT, MESSAGE])
@pytest.mark.parametrize("code", [-1, 220, 354, 450, 451, 452])
def test_an_answer_that_will_pass_is_tried_again(stage: str, code: int) -> None:
    """A 4xx, and an answer that does not belong there, say nothing against the mail for good."""
    with pytest.raises(Retry) as retry:
        judge(stage, code, b"later")

    assert (retry.value.reason, retry.value.after_s) == (f"the mail server answered {code} to {stage}: later", None)


@pytest.mark.parametrize("stage", [RECIPIENT, MESSAGE])
@pytest.mark.parametrize("code", [500, 550, 551, 552, 553, 554, 571])
def test_a_refusal_of_the_recipient_or_the_message_rejects_the_mail(stage: str, code: int) -> None:
    """The server will never take it."""
    with pytest.raises(Reject) as rejected:
        judge(stage, code, b"no")

    assert rejected.value.reason == f"the mail server answered {code} to {stage}: no"


@pytest.mark.parametrize("code", [500, 501, 550, 553, 554])
def test_a_refusal_of_the_sender_rejects_no_mail(code: int) -> None:
    """Every mail has the same sender, so the set-up is at fault."""
    with pytest.raises(RefusesUs, match=f"^it answered {code} to the sender: not your domain$"):
        judge(SENDER, code, b"not your domain")


def test_a_message_too_large_is_rejected_with_the_sender() -> None:
    """MAIL announces the size, and 552 there is about the message."""
    with pytest.raises(Reject, match="answered 552 to the sender"):
        judge(SENDER, 552, b"too big")


@pytest.mark.parametrize("stage", [SENDER, RECIPIENT, MESSAGE])
@pytest.mark.parametrize("code", [421, 530, 534, 535, 538])
def test_a_closing_server_and_a_missing_login_reject_no_mail(stage: str, code: int) -> None:
    """They are against us, wherever they come."""
    with pytest.raises(RefusesUs, match=f"^it answered {code} to {stage}: log in$"):
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
