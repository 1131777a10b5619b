"""email/smtp.py: the meaning of each answer of a mail server, and the pauses while it gives no service."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from headgate.consumers.base import Reject, Retry
from headgate.consumers.email.smtp import MESSAGE, RECIPIENT, SENDER, RefusesUs, first_line, judge

# Stages, codes, and their meaning.
EACH = (SENDER, RECIPIENT, MESSAGE)
VERDICTS: list[tuple[Sequence[str], Sequence[int], type[Exception] | None]] = [
    (EACH, (200, 220, 250, 251, 252), None),  # a mail that was taken with any 2xx must not go again
    (EACH, (-1, 354, 450, 451, 452), Retry),  # they say nothing against the mail for good
    (EACH[1:], (500, 550, 551, 552, 553, 554, 571), Reject),
    ((SENDER,), (500, 501, 550, 553, 554), RefusesUs),  # every mail has the same sender, so the set-up is at fault
    ((SENDER,), (552,), Reject),  # MAIL announces the size
    (EACH, (421, 530, 534, 535, 538), RefusesUs),  # a closing server and a missing login, wherever they come
]


@pytest.mark.parametrize(
    ("stage", "code", "raised"),
    [(stage, code, raised) for stages, codes, raised in VERDICTS for stage in stages for code in codes],
)
def test_an_answer_is_judged_by_its_stage_and_its_code(stage: str, code: int, raised: type[Exception] | None) -> None:
    """The reason has both, and the answer's line."""
    who = "it" if raised is RefusesUs else "the mail server"
    with pytest.raises(raised, match=f"^{who} answered {code} to {stage}: not so$") if raised else nullcontext() as error:
        judge(stage, code, b"not so")
    assert error is None or getattr(error.value, "after_s", None) is None


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
