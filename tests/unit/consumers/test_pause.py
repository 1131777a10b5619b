"""How long a server without service is left alone."""

import pytest

from headgate.consumers.base import Retry
from headgate.consumers.pause import Pause


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
