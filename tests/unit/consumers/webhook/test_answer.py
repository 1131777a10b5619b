"""webhook/post.py: the meaning of each status, and the times that a receiver asks for."""

import time
from collections.abc import Iterator

import pytest

from headgate.consumers.base import Retry
from headgate.consumers.webhook.post import Answer, judge, read_retry_after

ORIGIN = "https://hooks.example"
NOW_S = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_done(status: int) -> None:
    """A `Retry-After` beside it does not matter."""
    judge(Answer(status, None), ORIGIN)
    judge(Answer(status, 30.0), ORIGIN)


@pytest.mark.parametrize(
    "status", [100, 199, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 413, 422, 429, 500, 502, 503, 504, 999]
)
def test_any_other_answer_is_tried_again(status: int) -> None:
    """As the specification says; a redirect is a failure too."""
    with pytest.raises(Retry) as retry:
        judge(Answer(status, 30.0), ORIGIN)

    assert (retry.value.reason, retry.value.after_s) == (f"{ORIGIN} answered {status}", 30.0)


@pytest.fixture
def _in_new_york() -> Iterator[None]:
    """The time zone of this machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_in_new_york")
@pytest.mark.parametrize(
    ("said", "after_s"),
    [
        ("0", 0.0),
        ("30", 30.0),
        ("3601", 3600.0),
        ("9999999999", 3600.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Tue Nov 14 22:13:50 2023", 30.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 400, None),
        ("٣", None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(said: str, after_s: float | None) -> None:
    """An hour at most. A text of neither form asks for nothing. The zone of this machine does not matter."""
    assert read_retry_after(said, NOW_S) == after_s
